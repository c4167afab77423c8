#include "core/config/config.h"

#include <toml++/toml.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "core/base/suggest.h"
#include "core/config/renamed.h"
#include "core/io/file.h"
#include "core/io/json.h"

namespace hone {
namespace {

std::string place(const toml::source_region& region, std::string_view source) {
  if (!region.path) return std::string(source);
  if (*region.path != source) return *region.path;  // an override
  return concat(source, ":", region.begin.line, ":", region.begin.column);
}

std::string_view kind_of(const toml::node& node) {
  if (node.is_string()) return "a string";
  if (node.is_integer()) return "an integer";
  if (node.is_floating_point()) return "a number";
  if (node.is_boolean()) return "a boolean";
  if (node.is_table()) return "a table";
  if (node.is_array_of_tables()) return "an array of tables";
  if (node.is_array()) return "an array";
  return "a date or time";
}

// The value of an override, under the key "value": as TOML if it parses, else as a string.
toml::table parse_override(std::string_view text, const std::string& source) {
  std::string why;
  for (const std::string& value : {std::string(text), Json(text).dump()}) {
    try {
      toml::table parsed = toml::parse("value = " + value, source);
      const toml::node* node = parsed.get("value");
      if (parsed.size() == 1 && !node->is_date() && !node->is_time() && !node->is_date_time()) return parsed;
    } catch (const toml::parse_error& error) {
      why = error.description();
      if (text.find_first_of("[{\"'") == 0) break;
    }
  }
  fail(source, ": ", why);
}

// The element of an array of tables that is named by a segment of an override's key.
toml::node& element(toml::array& array, const std::string& segment, const std::string& source) {
  size_t index = 0;
  const auto [end, error] = std::from_chars(segment.data(), segment.data() + segment.size(), index);
  if (error == std::errc{} && end == segment.data() + segment.size()) {
    HONE_CHECK(index < array.size(), source, ": index ", index, " of ", array.size(), " elements");
    return array[index];
  }
  std::vector<std::string> known;
  for (const char* key : {"name", "objective", "kind"}) {
    for (toml::node& item : array) {
      const toml::table* table = item.as_table();
      const auto name = table ? (*table)[key].value<std::string>() : std::nullopt;
      if (name == segment) return item;
      if (name && std::ranges::find(known, *name) == known.end()) known.push_back(*name);
    }
  }
  fail(source, ": no element is named '", segment, "'", suggestion(segment, known), "; known: ", join(known));
}

// A table may be given by one string, which is this key of it: device = "cuda" is [device] kind = "cuda".
constexpr const char* short_key = "kind";

void apply_override(toml::table& root, std::string_view text) {
  const size_t equals = text.find('=');
  HONE_CHECK(equals != std::string_view::npos && equals > 0, "override '", text, "': expected key=value");
  const std::string source = concat("override '", text, "'");
  const auto path = std::make_shared<const std::string>(source);
  const auto key = [&](const std::string& name) { return toml::key(name, toml::source_region{{1, 1}, {1, 1}, path}); };

  std::vector<std::string> segments(1);
  for (const char c : text.substr(0, equals))
    if (c == '.')
      segments.emplace_back();
    else if (c != ' ')
      segments.back() += c;
  HONE_CHECK(segments.size() <= 64, source, ": the key is nested too deep");
  for (const std::string& segment : segments) HONE_CHECK(!segment.empty(), source, ": a part of the key is empty");

  toml::node* at = &root;
  for (size_t i = 0; i + 1 < segments.size(); ++i) {
    if (toml::array* array = at->as_array()) {
      at = &element(*array, segments[i], source);
    } else {
      toml::table* table = at->as_table();
      HONE_CHECK(table, source, ": '", segments[i - 1], "' is ", kind_of(*at), ", it has no '", segments[i], "'");
      if (!table->contains(segments[i])) table->insert(key(segments[i]), toml::table{});
      if (toml::node* old = table->get(segments[i]); old->is_string()) {  // the short form of a table
        toml::table whole;
        whole.insert(short_key, std::move(*old->as_string()));  // moved: a copy would lose its place
        table->insert_or_assign(key(segments[i]), std::move(whole));
      }
      at = table->get(segments[i]);
    }
  }
  toml::table* table = at->as_table();
  HONE_CHECK(table, source, ": '", segments.back(), "' is no key of ", kind_of(*at));
  toml::table given = parse_override(text.substr(equals + 1), source);
  std::string last = segments.back();
  if (toml::node* old = table->get(last); old && old->is_table() && given.get("value")->is_string()) {
    table = old->as_table();
    last = short_key;
  }
  table->erase(last);
  given.get("value")->visit([&](auto& value) { table->insert(key(last), std::move(value)); });
}

Json json_of(const toml::node& node, std::string_view source);

Json json_of(const toml::table& table, std::string_view source) {
  JsonObject out;
  for (const auto& [key, value] : table) out.emplace_back(key.str(), json_of(value, source));
  return out;
}

// The values of a table that the program does not know; strings stay as they are.
Json json_of(const toml::node& node, std::string_view source) {
  if (const toml::table* table = node.as_table()) return json_of(*table, source);
  if (const toml::array* array = node.as_array()) {
    JsonArray out;
    for (const toml::node& item : *array) out.push_back(json_of(item, source));
    return out;
  }
  if (const auto text = node.value_exact<std::string>()) return *text;
  if (const auto whole = node.value_exact<int64_t>()) return *whole;
  if (const auto number = node.value_exact<double>()) return *number;
  if (const auto truth = node.value_exact<bool>()) return *truth;
  fail(place(node.source(), source), ": ", kind_of(node), " cannot stand here; write it as a string");
}

// Reads one table. finish() throws an Error for the first key that was not visited.
class Reader : public Fields {
 public:
  Reader(const toml::table& table, std::string_view source) : table_(table), source_(source) {}

  void value(const char* key, bool& v, const char*) override { scalar(key, v, "a boolean"); }
  void value(const char* key, int64_t& v, const char*) override { scalar(key, v, "an integer"); }
  void value(const char* key, double& v, const char*) override { scalar(key, v, "a number"); }
  void value(const char* key, std::string& v, const char*) override { scalar(key, v, "a string"); }
  void value(const char* key, std::vector<int64_t>& v, const char*) override { list(key, v, "an integer"); }
  void value(const char* key, std::vector<double>& v, const char*) override { list(key, v, "a number"); }
  void value(const char* key, std::vector<std::string>& v, const char*) override { list(key, v, "a string"); }
  void value(const char* key, Json& v, const char*) override {
    const toml::node* node = ask(key);
    if (!node) return;
    const toml::table* table = node->as_table();
    HONE_CHECK(table, place(node->source(), source_), ": '", key, "' should be a table, it is ", kind_of(*node));
    v = json_of(*table, source_);
  }

  void table(const char* key, const std::function<void(Fields&)>& fields, const char*) override {
    if (const toml::node* node = ask(key)) nested(key, *node, fields);
  }

  void tables(const char* key, size_t, const std::function<void(size_t)>& resize,
              const std::function<void(size_t, Fields&)>& item, const char*) override {
    const toml::node* node = ask(key);
    if (!node) return;
    const toml::array* array = node->as_array();
    HONE_CHECK(array, place(node->source(), source_), ": '", key, "' should be an array of tables ([[", key,
               "]]), it is ", kind_of(*node));
    resize(array->size());
    for (size_t i = 0; i < array->size(); ++i) nested(key, (*array)[i], [&](Fields& f) { item(i, f); });
  }

  void require(const char* key, bool fact, const std::string& message) override {
    if (fact) return;
    const toml::node* node = ask(key);
    const std::string name = key;
    // A missing key is most likely present under a misspelled name.
    if (!node)
      for (const auto& [other, ignored] : table_)
        if (!is_known(other.str()) && !suggestion(other.str(), {&name, 1}).empty()) unknown(other);
    fail(place(node ? node->source() : table_.source(), source_), ": ", message);
  }
  bool reading() const override { return true; }
  void alias(const char* old_key, const char* key) override { old_keys_[key] = old_key; }
  void alias_value(const char* key, const char* old_value, const char* value) override {
    old_values_[key] = {old_value, value};
  }
  void default_if_absent(const char* key, double value) override { defaults_[key] = value; }

  void finish() const {
    const toml::key* first = nullptr;
    for (const auto& [key, ignored] : table_)
      if (!is_known(key.str()) && (!first || key.source().begin < first->source().begin)) first = &key;
    if (first) unknown(*first);
  }

 private:
  const toml::node* ask(const char* key) {
    asked_.insert(key);
    const toml::node* node = table_.get(key);
    const auto alias = old_keys_.find(key);
    return alias == old_keys_.end() ? node : either(node, alias->second, key);
  }

  // The node of a key that has an old name, too.
  const toml::node* either(const toml::node* node, const std::string& old_key, const char* key) {
    const toml::node* old_node = table_.get(old_key);
    if (!old_node) return node;
    old_names_.insert(old_key);
    const std::string where = place(old_node->source(), source_);
    HONE_CHECK(!node || is_override(*node) != is_override(*old_node), where, ": '", old_key, "' is the old name of '",
               key, "', and both are given: remove '", old_key, "'");
    if (node && is_override(*node)) return node;
    warn_renamed(where, old_key, key);
    return old_node;
  }
  bool is_override(const toml::node& node) const { return node.source().path && *node.source().path != source_; }

  bool is_known(std::string_view key) const {
    return asked_.contains(std::string(key)) || old_names_.contains(std::string(key));
  }

  [[noreturn]] void unknown(const toml::key& key) const {
    const std::vector<std::string> known(asked_.begin(), asked_.end());
    fail(place(key.source(), source_), ": unknown key '", key.str(), "'", suggestion(key.str(), known),
         "; known: ", join(known));
  }

  void nested(const char* key, const toml::node& node, const std::function<void(Fields&)>& fields) const {
    const toml::table* below = node.as_table();
    HONE_CHECK(below, place(node.source(), source_), ": '", key, "' should be a table, it is ", kind_of(node));
    Reader reader(*below, source_);
    fields(reader);
    reader.finish();
  }

  template <class T>
  void convert(const char* key, const toml::node& node, T& v, const char* expected) const {
    const auto found = node.value_exact<T>();
    if (found)
      v = *found;
    else if (const auto whole = node.value_exact<int64_t>(); whole && std::is_same_v<T, double>)
      v = static_cast<T>(*whole);
    else
      fail(place(node.source(), source_), ": '", key, "' should be ", expected, ", it is ", kind_of(node));
  }
  void convert(const char* key, const toml::node& node, std::string& v, const char* expected) const {
    const auto found = node.value_exact<std::string>();
    HONE_CHECK(found, place(node.source(), source_), ": '", key, "' should be ", expected, ", it is ", kind_of(node));
    HONE_CHECK(found->find('\0') == std::string::npos, place(node.source(), source_), ": '", key,
               "' has a zero character: no file name and no text of a recipe may");
    try {
      v = expand_path(*found);
    } catch (const Error& error) {
      fail(place(node.source(), source_), ": '", key, "': ", error.what());
    }
  }

  template <class T>
  void scalar(const char* key, T& v, const char* expected) {
    const toml::node* node = ask(key);
    std::string wanted = expected;
    if constexpr (std::is_same_v<T, int64_t>)
      if (const auto word = old_values_.find(key); word != old_values_.end())
        wanted += concat(" or \"", word->second.first, "\"");
    if (node && !is_word_for_number(key, *node, v)) convert(key, *node, v, wanted.c_str());
    if constexpr (std::is_same_v<T, double> || std::is_same_v<T, int64_t>)
      if (const auto found = defaults_.find(key); !node && found != defaults_.end()) v = static_cast<T>(found->second);
    if constexpr (std::is_same_v<T, std::string>)
      if (const auto found = old_values_.find(key); node && found != old_values_.end() && v == found->second.first) {
        warn_renamed(place(node->source(), source_), concat(key, " = \"", v, "\""),
                     concat(key, " = \"", found->second.second, "\""));
        v = found->second.second;
      }
  }
  // A word that alias_value() gives for a number: "auto" for 0. True if the node is that word.
  template <class T>
  bool is_word_for_number(const char* key, const toml::node& node, T& v) const {
    if constexpr (std::is_same_v<T, int64_t>) {
      const auto word = node.value_exact<std::string>();
      const auto found = old_values_.find(key);
      if (!word || found == old_values_.end() || *word != found->second.first) return false;
      v = std::stoll(found->second.second);
      return true;
    }
    return false;
  }
  template <class T>
  void list(const char* key, std::vector<T>& v, const char* expected) {
    const toml::node* node = ask(key);
    if (!node) return;
    if constexpr (std::is_same_v<T, std::string>)
      if (node->is_string()) {  // one string is a list of one
        v.assign(1, {});
        return convert(key, *node, v[0], expected);
      }
    const toml::array* array = node->as_array();
    HONE_CHECK(array, place(node->source(), source_), ": '", key, "' should be an array, it is ", kind_of(*node));
    v.assign(array->size(), T{});
    for (size_t i = 0; i < array->size(); ++i) convert(key, (*array)[i], v[i], expected);
  }

  const toml::table& table_;
  std::string_view source_;
  std::set<std::string> asked_, old_names_;  // keys visited; old names found
  std::map<std::string, std::string> old_keys_;
  std::map<std::string, std::pair<std::string, std::string>> old_values_;
  std::map<std::string, double> defaults_;
};

}  // namespace

struct Config::Impl {
  std::string source, text;
  std::vector<std::string> overrides;
  toml::table root;
};

Config::Config(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Config::~Config() = default;
Config::Config(Config&&) noexcept = default;

Config Config::from_file(const std::string& path, std::span<const std::string> overrides) {
  return from_text(read_file(path, max_recipe_bytes), path, overrides);
}

Config Config::from_text(std::string_view text, std::string_view source, std::span<const std::string> overrides) {
  auto impl = std::make_unique<Impl>();
  impl->source = source;
  impl->text = text;
  impl->overrides.assign(overrides.begin(), overrides.end());
  try {
    impl->root = toml::parse(text, source);
  } catch (const toml::parse_error& error) {
    fail(source, ":", error.source().begin.line, ":", error.source().begin.column, ": ", error.description());
  }
  for (const std::string& one : overrides) apply_override(impl->root, one);
  return Config(std::move(impl));
}

std::optional<std::string> Config::text_at(std::string_view place) const {
  return toml::at_path(impl_->root, place).value_exact<std::string>();
}

bool Config::has(std::string_view key) const { return static_cast<bool>(toml::at_path(impl_->root, key)); }

Config Config::with(std::span<const std::string> overrides) const {
  std::vector<std::string> all = impl_->overrides;
  all.insert(all.end(), overrides.begin(), overrides.end());
  return from_text(impl_->text, impl_->source, all);  // parsed again: copies of nodes would lose their places
}

const std::string& Config::source() const { return impl_->source; }

std::string Config::place_of(std::string_view key) const {
  for (;;) {
    if (key.empty()) return impl_->source;
    if (const auto node = toml::at_path(impl_->root, key)) return place(node.node()->source(), impl_->source);
    const size_t end = key.find_last_of(".[");
    key = key.substr(0, end == std::string_view::npos ? 0 : end);
  }
}

// The first string of the document at or below the node that is `text`; nullptr if there is none.
static const toml::node* find_string(const toml::node& node, std::string_view text) {
  if (node.is_string()) return node.value_exact<std::string>() == text ? &node : nullptr;
  const toml::node* first = nullptr;
  const auto visit = [&](const toml::node& below) {
    const toml::node* found = find_string(below, text);
    if (found && (!first || found->source().begin < first->source().begin)) first = found;
  };
  if (const toml::table* table = node.as_table())
    for (const auto& [key, below] : *table) visit(below);
  if (const toml::array* array = node.as_array())
    for (const toml::node& below : *array) visit(below);
  return first;
}

std::optional<std::string> Config::place_of_text(std::string_view table, std::string_view text) const {
  const toml::node* top = table.empty() ? &impl_->root : toml::at_path(impl_->root, table).node();
  const toml::node* found = top ? find_string(*top, text) : nullptr;
  return found ? std::optional(place(found->source(), impl_->source)) : std::nullopt;
}

std::string Config::as_written(std::string_view key, const std::string& value) const {
  const std::optional<std::string> written = text_at(key);
  if (!written || *written == value) return value;
  try {
    return expand_path(*written) == value ? *written : value;
  } catch (const Error&) {  // the environment has changed since the document was read
    return value;
  }
}

void Config::read(const std::function<void(Fields&)>& fields) const {
  Reader reader(impl_->root, impl_->source);
  fields(reader);
  reader.finish();
}

}  // namespace hone
