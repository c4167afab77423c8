#pragma once
// Fields: how a struct of settings shows its members, once, for every use: reading TOML, writing the resolved recipe,
// and the reference page.
//
//   struct OptimizerConfig {
//     double learning_rate = 3e-4;
//     void fields(Fields& f) { f("learning_rate", learning_rate, "peak learning rate"); }
//   };
//
// Anything with fields() may be a member of anything else (a table), or an element of a std::vector (an array of
// tables). A registered thing (an objective, a reward) has a virtual fields() and is chosen by a "kind"-like key of the
// struct that holds it.
#include <concepts>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace hone {

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
  // A nested table, and an array of tables: item(i) gives the i-th element's fields; resize is called first when
  // reading.
  virtual void table(const char* key, const std::function<void(Fields&)>& fields, const char* doc) = 0;
  virtual void tables(const char* key, size_t count, const std::function<void(size_t)>& resize,
                      const std::function<void(size_t, Fields&)>& item, const char* doc) = 0;

  // For checks inside fields(): throws an Error at the key's place in the recipe (file:line:column) when reading; does
  // nothing otherwise.
  virtual void require(const char* key, bool fact, const std::string& message) = 0;
  // True while values are being read (so a kind just read can be used to make the thing whose fields follow).
  virtual bool reading() const = 0;

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
