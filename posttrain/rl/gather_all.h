#pragma once
// Replies to any number of tasks, so many tasks at a time: what lies in memory at once is bounded.
#include <functional>

#include "posttrain/rl/actor.h"

namespace hone {

// take(i, group) for each task, in order. ids: a number for each request (Actor::gather); empty: the task's place.
// Progress is shown as `what`.
void collect_all(Collector& actor, std::span<const Task> tasks, std::span<const uint64_t> ids, const std::string& what,
                 const std::function<void(size_t i, const Group& group)>& take);

}  // namespace hone
