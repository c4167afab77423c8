#pragma once
// Fields: a visitor of the members of a settings struct. One fields() serves every use: reading TOML or JSON, writing
// the resolved recipe, and the reference page.
//
//   struct OptimizerConfig {
//     double learning_rate = 3e-4;
//     void fields(Fields& f) { f("learning_rate", learning_rate, "peak learning rate"); }
//   };
//
// Anything with fields() may be a member of anything else (a table), or an element of a std::vector (an array of
// tables). Registered types (an objective, a reward) are chosen by a key of their table (core/config/choice.h).
//
// fields() visits members and nothing else: it makes no objects and writes no other members. Only readers change the
// members that they visit.
#include <concepts>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace hone {

class Json;

class Fields {
 public:
  virtual ~Fields() = default;
  virtual void value(const char* key, bool& v, const char* doc) = 0;
  virtual void value(const char* key, int64_t& v, const char* doc) = 0;
  virtual void value(const char* key, double& v, const char* doc) = 0;
  virtual void value(const char* key, std::string& v, const char* doc) = 0;
  virtual void value(const char* key, std::vector<int64_t>& v, const char* doc) = 0;
  virtual void value(const char* key, std::vector<double>& v, const char* doc) = 0;
  virtual void value(const char* key, std::vector<std::string>& v, const char* doc) = 0;
  // A table with keys of the user's choice. Readers make v an object.
  virtual void value(const char* key, Json& v, const char* doc) = 0;
  // A nested table, and an array of tables: item(i) gives the i-th element's fields; resize is called first when
  // reading.
  virtual void table(const char* key, const std::function<void(Fields&)>& fields, const char* doc) = 0;
  virtual void tables(const char* key, size_t count, const std::function<void(size_t)>& resize,
                      const std::function<void(size_t, Fields&)>& item, const char* doc) = 0;

  // Checks a value inside fields(). A reader throws an Error at the key's place (file:line:column); other visitors do
  // nothing.
  virtual void require(const char* key, bool fact, const std::string& message) = 0;
  // True for a reader. For Choice, which makes the settings whose members it visits next.
  virtual bool reading() const = 0;

  // The following three stand before the visit of `key` and say how a reader finds its value; they do not visit.
  //
  // An old name of `key`. A reader takes it with one warning per process and key; both names in a table are an Error,
  // unless one of them is an override, which then counts. Nothing writes the old name.
  virtual void alias(const char* /*old_key*/, const char* /*key*/) {}
  // An old value of the string `key`, read as `value` with one warning per process.
  virtual void alias_value(const char* /*key*/, const char* /*old_value*/, const char* /*value*/) {}
  // The value of `key` where the table does not have it, if it depends on other keys.
  virtual void default_if_absent(const char* /*key*/, double /*value*/) {}

  template <class T>
  requires(!std::integral<T> || std::same_as<T, bool> || std::same_as<T, int64_t>) void operator()(const char* key,
                                                                                                   T& v,
                                                                                                   const char* doc) {
    if constexpr (requires { v.fields(*this); })
      table(
          key, [&v](Fields& f) { v.fields(f); }, doc);
    else
      value(key, v, doc);
  }
  template <class T>
  requires requires(T& t, Fields& f) { t.fields(f); }
  void operator()(const char* key, std::vector<T>& v, const char* doc) {
    tables(
        key, v.size(), [&v](size_t n) { v.resize(n); }, [&v](size_t i, Fields& f) { v[i].fields(f); }, doc);
  }
};

}  // namespace hone
