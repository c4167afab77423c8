#pragma once
// Recipes and task files: TOML through core/config/fields.h. toml++ is included by config.cpp alone.
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/config/fields.h"
#include "core/io/json.h"

namespace hone {

// A parsed TOML document with "key=value" overrides applied. Overrides are TOML ("steps=100",
// "stage.sft.learning_rate=1e-3", "model.hidden_size=64"); a bare word that is no TOML value is a string; an element of
// an array of tables is named by its index, or by its `name`, else its `objective`, else its `kind`. Strings have
// ${NAME} expanded. Syntax errors are Errors "file:line:column: what". An override with a string for a table sets the
// table's key `kind`; an override of a key of a string makes the string a table's `kind`. So "device=cpu" keeps the
// other keys of [device], and "device.memory=8 GB" keeps device = "cuda".
class Config {
 public:
  static Config from_file(const std::string& path, std::span<const std::string> overrides = {});
  static Config from_text(std::string_view text, std::string_view source, std::span<const std::string> overrides = {});
  ~Config();
  Config(Config&&) noexcept;

  // A string of the document before it is read, by its place: "stage[0].kind". None if no string is there.
  std::optional<std::string> text_at(std::string_view place) const;
  // True if the document, or an override, has the key ("stage[0].prompt").
  bool has(std::string_view key) const;
  // The document with more overrides.
  Config with(std::span<const std::string> overrides) const;
  // The place of a key ("stage[0].prompt") as "file:line:column" or "override '...'". A key that the document does not
  // have gets the place of its table.
  std::string place_of(std::string_view key) const;
  // The place of the first string below a table ("stage[0]"; "" = the document) that is `text`. None if there is none.
  std::optional<std::string> place_of_text(std::string_view table, std::string_view text) const;
  // The text of the document at `key` if the reader made `value` of it: with ${NAME} in place of the variable's value.
  // Otherwise `value`.
  std::string as_written(std::string_view key, const std::string& value) const;
  const std::string& source() const;
  // Reads the document into settings. An unknown key, a wrong type or a failed require() is an Error
  // "file:line:column: what", with the nearest known name for an unknown key.
  void read(const std::function<void(Fields&)>& fields) const;
  template <class T>
  T as() const {
    T out;
    read([&](Fields& f) { out.fields(f); });
    return out;
  }

 private:
  struct Impl;
  explicit Config(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Checks settings that did not come from TOML (a command line): a failed require() is an Error with its message.
void check_settings(const std::function<void(Fields&)>& fields);
// Settings as TOML with every key (the resolved recipe). It reads back to the same values. With the document that the
// settings were read from, strings are as written there: ${NAME} stays, since an environment variable may be a secret.
std::string to_toml(const std::function<void(Fields&)>& fields, const Config* document = nullptr);
// Settings as JSON, for report.json and run.json. document: as for to_toml.
Json to_json(const std::function<void(Fields&)>& fields, const Config* document = nullptr);
// Settings from JSON. A missing member keeps its value; an unknown one, a wrong type, a failed require() is an Error
// "source.key: what".
void from_json(const Json& json, const std::string& source, const std::function<void(Fields&)>& fields);
// A Markdown table of every key, its type, default and meaning (docs/reference/recipes/ is made of these).
std::string document_fields(std::string_view title, const std::function<void(Fields&)>& fields);

}  // namespace hone
