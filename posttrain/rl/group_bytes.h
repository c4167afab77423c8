#pragma once
// Scored groups as bytes, for other ranks. They keep what a checkpoint keeps (posttrain/rl/group_state.h).
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/sample.h"

namespace hone {

// Returns the task with an id; throws an Error if there is none.
using TaskOfId = std::function<const Task&(const std::string& id)>;

std::string pack_groups(std::span<const Group> groups);
// The groups that were packed, in order. An Error if the bytes are damaged.
std::vector<Group> unpack_groups(std::string_view bytes, const TaskOfId& task_of);

}  // namespace hone
