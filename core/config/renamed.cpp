#include "core/config/renamed.h"

#include <mutex>
#include <set>
#include <utility>

#include "core/base/log.h"

namespace hone {

void warn_renamed(const std::string& where, const std::string& old_name, const std::string& new_name) {
  static std::mutex mutex;
  static std::set<std::pair<std::string, std::string>> warned;
  const std::lock_guard lock(mutex);
  if (!warned.emplace(old_name, new_name).second) return;
  log::warning(where, ": ", old_name, " is now called ", new_name, "; the old name is read until version 1.0");
}

}  // namespace hone
