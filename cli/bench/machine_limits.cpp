// Loops that measure arithmetic and memory bandwidth.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cli/bench/machine_limits.cpp"
#include "cli/bench/machine_limits.h"

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <atomic>
#include <chrono>

#include "core/base/parallel_for.h"

HWY_BEFORE_NAMESPACE();
namespace hone {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr int chains = 12;  // independent sums: more than latency times rate of a multiply-add

}  // namespace

// Multiply-adds on values in registers. Returns the number of float operations of `rounds` rounds.
double multiply_adds(int64_t rounds, float* sink) {
  const D d;
  const V factor = hn::Set(d, 0.999f), term = hn::Set(d, 1e-3f);
  V sum[chains];
#pragma GCC unroll 12
  for (int c = 0; c < chains; ++c) sum[c] = hn::Set(d, static_cast<float>(c));
  for (int64_t i = 0; i < rounds; ++i)
#pragma GCC unroll 12
    for (int c = 0; c < chains; ++c) sum[c] = hn::MulAdd(sum[c], factor, term);
  V all = hn::Zero(d);
#pragma GCC unroll 12
  for (int c = 0; c < chains; ++c) all = hn::Add(all, sum[c]);
  *sink = hn::GetLane(all);
  return 2.0 * chains * static_cast<double>(hn::Lanes(d)) * static_cast<double>(rounds);
}

// Reads count floats; count is a multiple of 64.
void read(const float* from, int64_t count, float* sink) {
  const D d;
  V sum[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < count; i += 4 * lanes)
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) sum[c] = hn::Add(sum[c], hn::LoadU(d, from + i + c * lanes));
  *sink = hn::GetLane(hn::Add(hn::Add(sum[0], sum[1]), hn::Add(sum[2], sum[3])));
}

}  // namespace HWY_NAMESPACE
}  // namespace hone
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hone {
namespace {

HWY_EXPORT(multiply_adds);
HWY_EXPORT(read);

// The best rate of the repeats of `work`, which returns an amount. Other programs slow down some of the repeats.
template <class Work>
double best_rate(double seconds, Work work) {
  using Clock = std::chrono::steady_clock;
  double best = 0;
  for (const auto start = Clock::now(); Clock::now() - start < std::chrono::duration<double>(seconds);) {
    const auto before = Clock::now();
    const double amount = work();
    best = std::max(best, amount / std::chrono::duration<double>(Clock::now() - before).count());
  }
  return best;
}

}  // namespace

MachineLimits measure_limits(double seconds) {
  MachineLimits out;
  const int64_t threads = num_threads();
  std::vector<float> sinks(static_cast<size_t>(threads) * 16);
  const auto on_all_threads = [&](auto work) {
    parallel_for(threads, 1, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) work(t, &sinks[static_cast<size_t>(t) * 16]);
    });
  };
  out.flops = best_rate(seconds / 2, [&] {
    std::atomic<int64_t> amount{0};
    on_all_threads([&](int64_t, float* sink) {
      amount += static_cast<int64_t>(HWY_DYNAMIC_DISPATCH(multiply_adds)(200000, sink));
    });
    return static_cast<double>(amount);
  });

  constexpr int64_t floats = int64_t{1} << 27;  // 512 MiB
  const std::unique_ptr<Device> device = devices().at("cpu")(0);
  const Buffer buffer(*device, floats * sizeof(float));
  device->zero(buffer.data(), buffer.size(), nullptr);
  const int64_t each = floats / threads / 64 * 64;
  out.read_bandwidth = best_rate(seconds / 2, [&] {
    on_all_threads([&](int64_t t, float* sink) {
      HWY_DYNAMIC_DISPATCH(read)(static_cast<const float*>(buffer.data()) + t * each, each, sink);
    });
    return static_cast<double>(threads * each) * sizeof(float);
  });
  return out;
}

}  // namespace hone
#endif
