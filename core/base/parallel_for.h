#pragma once
// The CPU thread pool of the process. Results must not depend on the number of threads: a reduction uses pieces whose
// boundaries depend on sizes alone, and adds them in order (ordered_sum).
#include <cstdint>
#include <functional>
#include <vector>

namespace hone {

int num_threads();
// Sets the number of threads (1 = no pool). The default is HONE_NUM_THREADS, else the number of hardware threads. Never
// call it while work is running.
void set_num_threads(int count);

// Calls body(begin, end) on all threads for pieces of [0, count) of at most `grain` items. Returns when all are done.
// Rethrows the first exception of a body. A call from inside a body runs on the calling thread alone.
void parallel_for(int64_t count, int64_t grain, const std::function<void(int64_t begin, int64_t end)>& body);

// The sum of piece(begin, end) over pieces of `grain` items (the last may be shorter), added in ascending order.
template <class Piece>
double ordered_sum(int64_t count, int64_t grain, Piece piece) {
  const int64_t pieces = (count + grain - 1) / grain;
  std::vector<double> partial(static_cast<size_t>(pieces));
  parallel_for(pieces, 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p)
      partial[static_cast<size_t>(p)] = piece(p * grain, p + 1 == pieces ? count : (p + 1) * grain);
  });
  double sum = 0;
  for (const double value : partial) sum += value;
  return sum;
}

}  // namespace hone
