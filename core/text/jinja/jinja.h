#pragma once
// Jinja2 templates, as far as Hugging Face chat templates use them (trim_blocks and lstrip_blocks on): output,
// if/elif/else, for with loop.*, set and namespace, macro, filters, tests, slices, string and dict methods,
// break/continue, {% generation %}, raise_exception, strftime_now. Depth, work and output size are bounded. A template
// can access only its variables.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.h"

namespace hone {

class JinjaTemplate {
 public:
  // Parses the template. Errors of parsing and rendering name the line and the unsupported syntax, after the file name
  // `name` if there is one.
  explicit JinjaTemplate(std::string_view source, std::string_view name = "");
  ~JinjaTemplate();
  JinjaTemplate(JinjaTemplate&&) noexcept;

  struct Output {
    std::string text;
    std::vector<std::pair<size_t, size_t>> generation;  // byte ranges of text written inside {% generation %}
  };
  // Renders the template. variables: an object (messages, tools, add_generation_prompt, bos_token, ...). today: the
  // date of strftime_now in seconds since 1970.
  Output render(const Json& variables, int64_t today) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hone
