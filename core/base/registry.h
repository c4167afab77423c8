#pragma once
// Registry<T>: named things that files add by themselves at start-up, so that an addition edits no existing file. Names
// are sorted, so nothing depends on the order of linking or initialisation.
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
  // kind is what messages call the things: "objective", "reward".
  explicit Registry(std::string kind) : kind_(std::move(kind)) {}

  // Returns true so that a file can join with one line: const bool added = objectives().add("grpo", {...});
  bool add(std::string name, T thing) {
    HONE_CHECK(things_.emplace(name, std::move(thing)).second, kind_, " '", name, "' is registered twice");
    return true;
  }
  // An unknown name is an Error, unknown(name).
  const T& at(std::string_view name) const {
    const T* found = find(name);
    HONE_CHECK(found, unknown(name));
    return *found;
  }
  // What a message says of a name that is not here: the nearest, and all that are.
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
