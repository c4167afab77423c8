#include "posttrain/rl/gather_all.h"

#include <algorithm>

#include "core/base/log.h"

namespace hone {

void collect_all(Collector& actor, std::span<const Task> tasks, std::span<const uint64_t> ids, const std::string& what,
                 const std::function<void(size_t i, const Group& group)>& take) {
  constexpr size_t at_once = 256;
  HONE_CHECK(ids.empty() || ids.size() == tasks.size(), "collect_all: ", tasks.size(), " tasks have ", ids.size(),
             " ids");
  log::Progress progress(what, static_cast<int64_t>(tasks.size()), "prompt");
  for (size_t begin = 0; begin < tasks.size(); begin += at_once) {
    const size_t end = std::min(begin + at_once, tasks.size());
    std::vector<const Task*> some;
    std::vector<uint64_t> numbers;
    for (size_t i = begin; i < end; ++i) some.push_back(&tasks[i]), numbers.push_back(ids.empty() ? i : ids[i]);
    const std::vector<Group> groups = actor.gather(some, numbers);
    for (size_t i = begin; i < end; ++i) take(i, groups[i - begin]);
    progress.update(static_cast<int64_t>(end));
  }
}

}  // namespace hone
