// Reads settings from JSON through fields().
#include <algorithm>
#include <map>

#include "core/base/suggest.h"
#include "core/config/config.h"
#include "core/config/renamed.h"

namespace hone {
namespace {

class JsonReader : public Fields {
 public:
  JsonReader(const Json& object, std::string path) : object_(object), path_(std::move(path)) {
    object.as_object(path_);
  }

  void value(const char* key, bool& v, const char*) override {
    if (const Json* found = find(key)) v = found->as_bool(name(key));
  }
  void value(const char* key, int64_t& v, const char*) override {
    if (const Json* found = find(key))
      v = found->as_int(name(key));
    else if (const auto absent = defaults_.find(key); absent != defaults_.end())
      v = static_cast<int64_t>(absent->second);
  }
  void value(const char* key, double& v, const char*) override {
    if (const Json* found = find(key))
      v = found->as_double(name(key));
    else if (const auto absent = defaults_.find(key); absent != defaults_.end())
      v = absent->second;
  }
  void value(const char* key, std::string& v, const char*) override {
    const Json* found = find(key);
    if (!found) return;
    v = found->as_string(name(key));
    const auto renamed = old_values_.find(key);
    if (renamed == old_values_.end() || v != renamed->second.first) return;
    warn_renamed(path_, concat(key, " = \"", v, "\""), concat(key, " = \"", renamed->second.second, "\""));
    v = renamed->second.second;
  }
  void value(const char* key, std::vector<int64_t>& v, const char*) override {
    list(key, v, [&](const Json& item) { return item.as_int(name(key)); });
  }
  void value(const char* key, std::vector<double>& v, const char*) override {
    list(key, v, [&](const Json& item) { return item.as_double(name(key)); });
  }
  void value(const char* key, std::vector<std::string>& v, const char*) override {
    list(key, v, [&](const Json& item) { return item.as_string(name(key)); });
  }
  void value(const char* key, Json& v, const char*) override {
    if (const Json* found = find(key)) v = found->as_object(name(key));
  }
  void table(const char* key, const std::function<void(Fields&)>& fields, const char*) override {
    if (const Json* found = find(key)) read(*found, name(key), fields);
  }
  void tables(const char* key, size_t, const std::function<void(size_t)>& resize,
              const std::function<void(size_t, Fields&)>& item, const char*) override {
    const Json* found = find(key);
    if (!found) return;
    const JsonArray& items = found->as_array(name(key));
    resize(items.size());
    for (size_t i = 0; i < items.size(); ++i)
      read(items[i], concat(name(key), "[", i, "]"), [&](Fields& f) { item(i, f); });
  }
  void require(const char* key, bool fact, const std::string& message) override {
    HONE_CHECK(fact, name(key), ": ", message);
  }
  bool reading() const override { return true; }
  void alias(const char* old_key, const char* key) override { old_keys_[key] = old_key; }
  void alias_value(const char* key, const char* old_value, const char* value) override {
    old_values_[key] = {old_value, value};
  }
  void default_if_absent(const char* key, double value) override { defaults_[key] = value; }

  static void read(const Json& object, const std::string& path, const std::function<void(Fields&)>& fields) {
    JsonReader reader(object, path);
    fields(reader);
    for (const auto& [key, value] : object.as_object(path))
      HONE_CHECK(std::ranges::find(reader.known_, key) != reader.known_.end() ||
                     std::ranges::find(reader.old_names_, key) != reader.old_names_.end(),
                 path, ": unknown member '", key, "'", suggestion(key, reader.known_));
  }

 private:
  std::string name(const char* key) const { return path_ + "." + key; }
  const Json* find(const char* key) {
    known_.emplace_back(key);
    const Json* value = object_.find(key);
    const auto alias = old_keys_.find(key);
    if (alias == old_keys_.end()) return value;
    const Json* old_value = object_.find(alias->second);
    if (!old_value) return value;
    HONE_CHECK(!value, path_, ": '", alias->second, "' is the old name of '", key, "', and both are given: remove '",
               alias->second, "'");
    warn_renamed(path_, alias->second, key);
    old_names_.push_back(alias->second);
    return old_value;
  }
  template <class T, class Item>
  void list(const char* key, std::vector<T>& v, Item item) {
    const Json* found = find(key);
    if (!found) return;
    v.clear();
    for (const Json& one : found->as_array(name(key))) v.push_back(item(one));
  }

  const Json& object_;
  const std::string path_;
  std::vector<std::string> known_, old_names_;  // keys visited; old names found
  std::map<std::string, std::string> old_keys_;
  std::map<std::string, std::pair<std::string, std::string>> old_values_;
  std::map<std::string, double> defaults_;
};

}  // namespace

void from_json(const Json& json, const std::string& source, const std::function<void(Fields&)>& fields) {
  JsonReader::read(json, source, fields);
}

}  // namespace hone
