#include "core/base/rank_thread.h"

namespace hone {

static thread_local RankThread current;

RankThread rank_thread() { return current; }
void set_rank_thread(RankThread value) { current = value; }

void note_progress() {
  if (current.progress) current.progress->fetch_add(1, std::memory_order_relaxed);
}

}  // namespace hone
