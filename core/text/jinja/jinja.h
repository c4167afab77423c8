#pragma once
// The part of Jinja2 that Hugging Face chat templates use (trim_blocks and lstrip_blocks on): output, if/elif/else, for
// with loop.*, set and namespace, macro, filters, tests, slices, string and dict methods, break/continue, {% generation
// %}, raise_exception, strftime_now. Bounded in depth and in output size; a template cannot reach anything outside its
// variables.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.h"

namespace hone {

class JinjaTemplate {
 public:
  // Errors say line and what is not understood, of parsing and of rendering; they begin with the name of the file, if
  // it has one.
  explicit JinjaTemplate(std::string_view source, std::string_view name = "");
  ~JinjaTemplate();
  JinjaTemplate(JinjaTemplate&&) noexcept;

  struct Output {
    std::string text;
    std::vector<std::pair<size_t, size_t>> generation;  // byte ranges of text written inside {% generation %}
  };
  // variables is an object (messages, tools, add_generation_prompt, bos_token, ...). today is what strftime_now
  // formats, seconds since 1970.
  Output render(const Json& variables, int64_t today) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hone
