#pragma once
// The rank that a thread works for, in a program that runs one thread per device (core/comm/launch.h). A thread of any
// other program works for rank 0.
#include <atomic>
#include <cstdint>

namespace hone {

struct RankThread {
  int rank = 0;
  std::atomic<uint64_t>* progress = nullptr;  // of the rank; null: nobody waits for it
};
// Of the calling thread. A thread that works for a rank's thread takes over its value.
RankThread rank_thread();
void set_rank_thread(RankThread value);

// Called by loops whose passes take seconds at most. Ranks that wait for this one then see that it works and does not
// hang. Costs one atomic addition.
void note_progress();

}  // namespace hone
