#pragma once
// Choice<Settings>: a table whose `kind` key selects a registered type of settings; the other keys of the table are
// that type's own.
//
//   struct StageSpec {
//     Choice<Stage> stage;
//     void fields(Fields& f) { stage.fields(f, "kind", "what the stage does (hone list stages)"); }
//   };
//
// `Settings` is a polymorphic base with fields(Fields&) and a static registry() of factories. Optionally it has
// validate(), which throws an Error if values do not fit together. Reading makes a new object, visits its members and
// validates it; after that nobody changes it. So copies of a Choice share their settings and stay values: run-time
// objects are made from the settings, never kept in them.
#include <memory>
#include <string>
#include <utility>

#include "core/base/check.h"
#include "core/base/registry.h"
#include "core/config/fields.h"

namespace hone {

template <class Settings>
class Choice {
 public:
  Choice() = default;
  // The registered kind with its default values; an unknown one is an Error.
  explicit Choice(std::string kind) : kind_(std::move(kind)), settings_(make()) {}

  const std::string& kind() const { return kind_; }
  // False until a kind is chosen.
  explicit operator bool() const { return settings_ != nullptr; }
  const Settings& operator*() const { return *settings_; }
  const Settings* operator->() const { return settings_.get(); }
  const std::shared_ptr<const Settings>& get() const { return settings_; }

  // Takes settings of the same kind instead (resolved ones); null changes nothing.
  void replace(std::shared_ptr<const Settings> settings) {
    if (settings) settings_ = std::move(settings);
  }

  // Visits the kind under `key`, then the settings' members in the same table. An unknown kind is an Error at the key;
  // so is an empty one, unless `optional`.
  void fields(Fields& f, const char* key, const char* doc, bool optional = false) {
    if (!f.reading()) {
      std::string kind = kind_;
      f(key, kind, doc);
      // Visitors other than readers change no member (Fields), so the shared object stays as it is.
      if (settings_) const_cast<Settings&>(*settings_).fields(f);
      return;
    }
    f(key, kind_, doc);
    settings_.reset();
    if (optional && kind_.empty()) return;
    const auto& registry = Settings::registry();
    f.require(key, registry.contains(kind_), kind_.empty() ? missing(key) : registry.unknown(kind_));
    std::shared_ptr<Settings> made = make();
    made->fields(f);
    if constexpr (requires { made->validate(); }) {
      std::string problem;
      try {
        made->validate();
      } catch (const Error& error) {  // gets the place of the key
        problem = concat(kind_, ": ", error.what());
      }
      f.require(key, problem.empty(), problem);
    }
    settings_ = std::move(made);
  }

 private:
  std::shared_ptr<Settings> make() const { return Settings::registry().at(kind_)(); }
  static std::string missing(const char* key) {
    return concat("'", key, "' is missing; known: ", join(Settings::registry().names()));
  }

  std::string kind_;
  std::shared_ptr<const Settings> settings_;
};

}  // namespace hone
