#pragma once
// Facts of a process and of all that descend from it, as /proc tells them.
#include <sys/types.h>

#include <cstdint>

namespace hone {

// Bytes of memory that the processes have to themselves (resident, not of files), added up; 0 once they have ended. A
// page that a fork shares with its parent counts in both.
int64_t tree_memory(pid_t root);

}  // namespace hone
