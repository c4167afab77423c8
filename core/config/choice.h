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
// prepare(), which checks that the values fit together (or throws an Error) and computes what follows from them.
// Reading makes a new object, visits its members and prepares it; after that only update() changes it. So copies of a
// Choice share their settings and stay values: run-time objects are made from the settings, never kept in them.
#include <functional>
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
  explicit Choice(std::string kind) : kind_(std::move(kind)) {
    std::shared_ptr<Settings> made = make();
    if constexpr (requires { made->prepare(); }) made->prepare();
    settings_ = std::move(made);
  }

  const std::string& kind() const { return kind_; }
  // False until a kind is chosen.
  explicit operator bool() const { return settings_ != nullptr; }
  const Settings& operator*() const { return *settings_; }
  const Settings* operator->() const { return settings_.get(); }
  const Settings* get() const { return settings_.get(); }
  const std::shared_ptr<const Settings>& shared() const { return settings_; }
  // Takes settings of a type that is not registered, under the name `kind`.
  void set(std::string kind, std::shared_ptr<const Settings> settings) {
    kind_ = std::move(kind);
    settings_ = std::move(settings);
  }

  // Changes the settings, which no other Choice may share yet: right after reading.
  void update(const std::function<void(Settings&)>& change) {
    HONE_CHECK(settings_.use_count() == 1, "choice: '", kind_, "' is shared by copies");
    change(const_cast<Settings&>(*settings_));
  }

  // Visits the kind under `key`, then the members that all kinds share (`shared`), then the settings' members, all in
  // one table. An unknown kind is an Error at the key; so is an empty one, unless `optional`.
  void fields(
      Fields& f, const char* key, const char* doc, const std::function<void()>& shared = [] {}, bool optional = false) {
    if (!f.reading()) {
      f(key, kind_, doc);
      shared();
      // Visitors other than readers change no member (Fields), so the shared object stays as it is.
      if (settings_) const_cast<Settings&>(*settings_).fields(f);
      return;
    }
    f(key, kind_, doc);
    shared();
    settings_.reset();
    if (optional && kind_.empty()) return;
    const auto& registry = Settings::registry();
    f.require(key, registry.contains(kind_), kind_.empty() ? missing(key) : registry.unknown(kind_));
    std::shared_ptr<Settings> made = make();
    made->fields(f);
    if constexpr (requires { made->prepare(); }) {
      std::string problem;
      try {
        made->prepare();
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
