#pragma once
// The process's CPU thread pool. Results never depend on the number of threads: a caller that reduces does so over
// pieces whose boundaries depend on sizes alone, and adds the pieces in order.
#include <cstdint>
#include <functional>
#include <vector>

namespace hone {

int num_threads();
// Sets the pool's size (1 = no pool). Not while work is running. The default is HONE_NUM_THREADS, or the hardware's.
void set_num_threads(int count);

// Calls body(begin, end) over pieces of [0, count) of at most `grain` items, on all threads, and returns when all are
// done. The first exception of a body is rethrown. Calls from inside a body run on the calling thread alone.
void parallel_for(int64_t count, int64_t grain, const std::function<void(int64_t begin, int64_t end)>& body);

// The sum of piece(begin, end) over pieces of exactly `grain` items (the last may be shorter), added in ascending
// order.
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
