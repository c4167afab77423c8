#pragma once
// Problems: collects everything that is wrong with settings, so that one check reports all of it. Each problem has the
// place of its key in the document.
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/config/config.h"

namespace hone {

class Problems {
 public:
  // document: where the settings were read from; null: places are key names.
  explicit Problems(std::shared_ptr<const Config> document = nullptr);
  // The same list for the keys of a table ("stage[1]"). label begins the messages ("stage sft: ").
  Problems table(std::string path, std::string label) const;
  // The same list for the keys of a table below this one ("source[0]"). An empty path is this table.
  Problems below(std::string_view path, std::string_view label) const;

  // Adds a problem at `key` of the table; "" is the table itself.
  void add(std::string_view key, std::string_view message) const;
  // Calls check(). An Error that it throws becomes a problem at `key`, or at the key whose template it names
  // (TextError).
  void attempt(std::string_view key, const std::function<void()>& check) const;
  size_t size() const { return list_->size(); }
  // Throws one Error with all problems, a line each, if there are any.
  void throw_if_any() const;

 private:
  void add_line(std::string problem) const;

  std::shared_ptr<const Config> document_;
  std::string path_, label_;
  std::shared_ptr<std::vector<std::string>> list_;
};

// An Error about a text of the settings, such as a template that a row does not fit.
class TextError : public Error {
 public:
  TextError(std::string_view text, const std::string& what) : Error(what), text_(text) {}
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace hone
