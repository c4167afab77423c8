// Settings read from JSON through their fields().
#include <algorithm>

#include "core/base/suggest.h"
#include "core/config/config.h"

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
    if (const Json* found = find(key)) v = found->as_int(name(key));
  }
  void value(const char* key, double& v, const char*) override {
    if (const Json* found = find(key)) v = found->as_double(name(key));
  }
  void value(const char* key, std::string& v, const char*) override {
    if (const Json* found = find(key)) v = found->as_string(name(key));
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

  static void read(const Json& object, const std::string& path, const std::function<void(Fields&)>& fields) {
    JsonReader reader(object, path);
    fields(reader);
    for (const auto& [key, value] : object.as_object(path))
      HONE_CHECK(std::ranges::find(reader.known_, key) != reader.known_.end(), path, ": unknown member '", key, "'",
                 suggestion(key, reader.known_));
  }

 private:
  std::string name(const char* key) const { return path_ + "." + key; }
  const Json* find(const char* key) {
    known_.emplace_back(key);
    return object_.find(key);
  }
  template <class T, class Item>
  void list(const char* key, std::vector<T>& v, Item item) {
    const Json* found = find(key);
    if (!found) return;
    v.clear();
    for (const Json& of : found->as_array(name(key))) v.push_back(item(of));
  }

  const Json& object_;
  const std::string path_;
  std::vector<std::string> known_;
};

}  // namespace

void from_json(const Json& json, const std::string& source, const std::function<void(Fields&)>& fields) {
  JsonReader::read(json, source, fields);
}

}  // namespace hone
