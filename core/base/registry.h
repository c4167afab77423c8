#pragma once
// Registry<T>: a map from names to objects that files join at start-up, so that an addition edits no existing file.
// Names are sorted: nothing depends on the order of linking or initialization.
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/check.h"
#include "core/base/suggest.h"

namespace hone {

template <class T>
class Registry {
 public:
  // kind: the noun of error messages, such as "objective" or "reward".
  explicit Registry(std::string kind) : kind_(std::move(kind)) {}

  // Always returns true, so that a file can join with one line: const bool added = objectives().add("grpo", {...});
  bool add(std::string name, T thing) {
    HONE_CHECK(things_.emplace(name, std::move(thing)).second, kind_, " '", name, "' is registered twice");
    return true;
  }
  // Throws Error with unknown(name) if the name is not registered.
  const T& at(std::string_view name) const {
    const T* found = find(name);
    HONE_CHECK(found, unknown(name));
    return *found;
  }
  // Text of the error for an unregistered name: the nearest name, then all names.
  std::string unknown(std::string_view name) const {
    return concat("unknown ", kind_, " '", name, "'", suggestion(name, names()), "; known: ", join(names()));
  }
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  const T* find(std::string_view name) const {
    const auto found = things_.find(name);
    return found == things_.end() ? nullptr : &found->second;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& [name, thing] : things_) out.push_back(name);
    return out;
  }

 private:
  std::string kind_;
  std::map<std::string, T, std::less<>> things_;
};

}  // namespace hone
