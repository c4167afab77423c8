// Visitors that read settings through fields(): TOML, JSON and documentation writers, and the checker.
#include <algorithm>
#include <map>

#include "core/config/config.h"

namespace hone {
namespace {

// The common part: passes values on as Json and visits the members of tables. path: of the table, "stage[0].".
// document: as for to_toml().
class Writer : public Fields {
 public:
  explicit Writer(std::string path = "", const Config* document = nullptr)
      : path_(std::move(path)), document_(document) {}
  void value(const char* key, bool& v, const char* doc) override { put(key, "boolean", v, doc); }
  void value(const char* key, int64_t& v, const char* doc) override { put(key, "integer", v, doc); }
  void value(const char* key, double& v, const char* doc) override { put(key, "number", v, doc); }
  void value(const char* key, std::string& v, const char* doc) override { put(key, "string", written(key, v), doc); }
  void value(const char* key, std::vector<int64_t>& v, const char* doc) override {
    put(key, "integers", Json::array(v), doc);
  }
  void value(const char* key, std::vector<double>& v, const char* doc) override {
    put(key, "numbers", Json::array(v), doc);
  }
  void value(const char* key, std::vector<std::string>& v, const char* doc) override {
    std::vector<std::string> all;
    for (size_t i = 0; i < v.size(); ++i) {
      const std::string whole = v.size() == 1 ? written(key, v[i]) : v[i];  // one string is a list of one
      all.push_back(whole != v[i] ? whole : written(concat(key, "[", i, "]"), v[i]));
    }
    put(key, "strings", Json::array(all), doc);
  }
  void value(const char* key, Json& v, const char* doc) override { put(key, "table", v, doc); }
  void require(const char*, bool, const std::string&) override {}
  bool reading() const override { return false; }
  void alias(const char* old_key, const char* key) override { old_keys_[key] = old_key; }
  void table(const char*, const std::function<void(Fields&)>& fields, const char*) override { fields(*this); }
  void tables(const char*, size_t count, const std::function<void(size_t)>&,
              const std::function<void(size_t, Fields&)>& item, const char*) override {
    for (size_t i = 0; i < count; ++i) item(i, *this);
  }

 protected:
  virtual void put(const char* key, const char* type, const Json& v, const char* doc) = 0;

  // The value as the document has it, under the key or its old name.
  std::string written(const std::string& key, const std::string& v) const {
    if (!document_) return v;
    const std::string text = document_->as_written(path_ + key, v);
    const auto old_key = old_keys_.find(key.substr(0, key.find('[')));
    if (text != v || old_key == old_keys_.end()) return text;
    return document_->as_written(path_ + old_key->second + key.substr(std::min(key.find('['), key.size())), v);
  }

  const std::string path_;
  const Config* document_;
  std::map<std::string, std::string> old_keys_;
};

// A JSON string is a TOML one but for DEL, which TOML wants escaped.
std::string toml_string(const Json& v) {
  std::string text = v.dump();
  for (size_t at = text.find('\x7f'); at != std::string::npos; at = text.find('\x7f', at))
    text.replace(at, 1, "\\u007f");
  return text;
}

std::string toml_value(const Json& v) {
  if (v.is_object()) {  // null has no TOML: such a member is left out
    std::string out;
    for (const auto& [key, value] : v.as_object())
      if (!value.is_null()) out += concat(out.empty() ? " " : ", ", toml_string(key), " = ", toml_value(value));
    return out.empty() ? "{}" : "{" + out + " }";
  }
  if (v.is_array()) {
    std::string out;
    for (const Json& item : v.as_array()) out += (out.empty() ? "" : ", ") + toml_value(item);
    return "[" + out + "]";
  }
  if (v.is_number() && !v.is_int()) {
    const std::string text = number_text(v.as_double());
    return text.find_first_not_of("-0123456789") == std::string::npos ? text + ".0" : text;
  }
  return toml_string(v);
}

// Writes the values of a table before its sub-tables, whatever the order of the fields: in TOML nothing returns to the
// outer table after a header.
class TomlWriter : public Writer {
 public:
  // header: the name of the table in headers, "stage.".
  TomlWriter(std::string path, const Config* document, std::string header)
      : Writer(std::move(path), document), header_(std::move(header)) {}
  void table(const char* key, const std::function<void(Fields&)>& fields, const char*) override {
    below("[", key, "]", concat(path_, key, "."), fields);
  }
  void tables(const char* key, size_t count, const std::function<void(size_t)>&,
              const std::function<void(size_t, Fields&)>& item, const char*) override {
    if (count == 0) values_ += concat(key, " = []\n");
    for (size_t i = 0; i < count; ++i)
      below("[[", key, "]]", concat(path_, key, "[", i, "]."), [&](Fields& f) { item(i, f); });
  }
  std::string text() const { return values_ + tables_; }

 private:
  void put(const char* key, const char*, const Json& v, const char*) override {
    values_ += concat(key, " = ", toml_value(v), "\n");
  }
  void below(const char* open, const char* key, const char* close, std::string path,
             const std::function<void(Fields&)>& fields) {
    TomlWriter writer(std::move(path), document_, header_ + key + ".");
    fields(writer);
    tables_ += concat("\n", open, header_, key, close, "\n", writer.text());
  }
  const std::string header_;
  std::string values_, tables_;
};

class JsonWriter : public Writer {
 public:
  using Writer::Writer;
  void table(const char* key, const std::function<void(Fields&)>& fields, const char*) override {
    JsonWriter writer(concat(path_, key, "."), document_);
    fields(writer);
    object.emplace_back(key, std::move(writer.object));
  }
  void tables(const char* key, size_t count, const std::function<void(size_t)>&,
              const std::function<void(size_t, Fields&)>& item, const char*) override {
    JsonArray items;
    for (size_t i = 0; i < count; ++i) {
      JsonWriter writer(concat(path_, key, "[", i, "]."), document_);
      item(i, writer);
      items.emplace_back(std::move(writer.object));
    }
    object.emplace_back(key, std::move(items));
  }
  JsonObject object;

 private:
  void put(const char* key, const char*, const Json& v, const char*) override { object.emplace_back(key, v); }
};

class DocWriter : public Writer {
 public:
  using Writer::Writer;
  void table(const char* key, const std::function<void(Fields&)>& fields, const char* doc) override {
    row(concat(path_, key), "table", "", doc);
    DocWriter writer(concat(path_, key, "."));
    fields(writer);
    rows += writer.rows;
  }
  void tables(const char* key, size_t count, const std::function<void(size_t)>& resize,
              const std::function<void(size_t, Fields&)>& item, const char* doc) override {
    row(concat(path_, key), "array of tables", "", doc);
    DocWriter writer(concat(path_, key, "[]."));
    if (count == 0) resize(1);
    item(0, writer);
    if (count == 0) resize(0);
    rows += writer.rows;
  }
  std::string rows;

 private:
  void put(const char* key, const char* type, const Json& v, const char* doc) override {
    const auto alias = old_keys_.find(key);
    const std::string formerly = alias == old_keys_.end() ? "" : concat(" (formerly `", alias->second, "`)");
    row(concat(path_, key), type, "`" + toml_value(v) + "`", doc + formerly);
  }
  void row(const std::string& key, const char* type, const std::string& initial, std::string_view doc) {
    rows += concat("| `", key, "` | ", type, " | ", cell(initial), " | ", cell(doc), " |\n");
  }
  static std::string cell(std::string_view text) {
    std::string out;
    for (const char c : text) out += c == '|' ? std::string("\\|") : std::string(1, c);
    return out;
  }
};

class Checker : public Writer {
 public:
  void require(const char*, bool fact, const std::string& message) override { HONE_CHECK(fact, message); }

 private:
  void put(const char*, const char*, const Json&, const char*) override {}
};

}  // namespace

void check_settings(const std::function<void(Fields&)>& fields) {
  Checker checker;
  fields(checker);
}

std::string to_toml(const std::function<void(Fields&)>& fields, const Config* document) {
  TomlWriter writer("", document, "");
  fields(writer);
  return writer.text();
}

Json to_json(const std::function<void(Fields&)>& fields, const Config* document) {
  JsonWriter writer("", document);
  fields(writer);
  return std::move(writer.object);
}

std::string document_fields(std::string_view title, const std::function<void(Fields&)>& fields) {
  DocWriter writer;
  fields(writer);
  return concat("## ", title, "\n\n| key | type | default | meaning |\n|---|---|---|---|\n", writer.rows);
}

}  // namespace hone
