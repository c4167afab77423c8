#pragma once
// Memory use of a process and its descendants, read from /proc.
#include <sys/types.h>

#include <cstdint>

namespace hone {

// Returns the private resident memory of the processes in bytes (file pages excluded), summed; 0 after they have ended.
// A page that a fork shares with its parent counts in both.
int64_t tree_memory(pid_t root);

}  // namespace hone
