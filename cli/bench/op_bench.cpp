#include "cli/bench/op_bench.h"

#include <chrono>
#include <cstdio>

#include "cli/bench/op_inputs.h"
#include "kernels/gemm/gemm.h"

namespace hone {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double median(std::vector<double>& times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

// The median time of one run, after a warm-up run. On an asynchronous device several runs are queued together and timed
// as one; short ones in larger numbers.
double median_seconds(Context& context, const std::function<void()>& run, double seconds) {
  constexpr size_t fewest = 3, most = 1000;
  int64_t together = 1;
  const auto timed = [&] {
    const double before = now();
    for (int64_t i = 0; i < together; ++i) run();
    context.synchronize();
    return (now() - before) / static_cast<double>(together);
  };
  timed();
  if (context.device().asynchronous()) {
    constexpr double long_enough = 5e-3;  // seconds; the wait for the end is negligible then
    together = std::clamp<int64_t>(static_cast<int64_t>(long_enough / timed()), 1, 1000);
    timed();
  }
  std::vector<double> times;
  for (const double start = now(); times.size() < fewest || (now() - start < seconds && times.size() < most);)
    times.push_back(timed());
  return median(times);
}

// Sets `beside` of the rows of a case.
void compare_beside(std::span<BenchRow> rows) {
  const auto other =
      std::find_if(rows.begin(), rows.end(), [](const BenchRow& row) { return row.body.starts_with('('); });
  if (other == rows.end()) return;
  for (BenchRow& row : rows)
    if (&row != &*other) row.beside = other->seconds / row.seconds;
}

}  // namespace

Registry<BenchCases>& bench_cases() {
  static Registry<BenchCases> registry("benchmark");
  return registry;
}

std::vector<BenchRow> run_bench(Context& context, const MachineLimits& limits, const std::string& filter,
                                double seconds) {
  std::vector<BenchRow> rows;
  for (const std::string& name : bench_cases().names()) {
    if (name.find(filter) == std::string::npos) continue;
    const ScratchScope scope(context);
    for (const BenchCase& one : bench_cases().at(name)(context)) {
      const size_t first = rows.size();
      for (const BenchCase::Body& body : one.bodies) {
        const double time = median_seconds(context, body.run, seconds);
        const double compute = one.flops / limits.flops, reading = one.bytes / limits.read_bandwidth;
        rows.push_back({one.op, one.shape, body.name, time, one.flops / time, one.bytes / time,
                        std::max(compute, reading) / time, compute > reading});
      }
      compare_beside(std::span(rows).subspan(first));
    }
  }
  return rows;
}

MachineLimits measure_limits(Context& context) {
  if (context.kind() != DeviceKind::cuda) return measure_limits();
  constexpr int64_t n = 8192, bytes = int64_t{1} << 31;
  MachineLimits out;
  {
    Arena arena(context.device());
    const auto matrix = [&] { return bench_numbers(context, arena, {n, n}); };
    const Tensor y = matrix(), x = matrix(), w = matrix();
    const double seconds = median_seconds(
        context, [&] { gemm_backward_input(context, y, x, w); }, 0.2);
    out.flops = 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n) / seconds;
  }
  Arena arena(context.device());
  const Tensor to = arena.take(DType::u8, {bytes}), from = arena.take(DType::u8, {bytes});
  context.zero(from);
  out.read_bandwidth = 2.0 * static_cast<double>(bytes) /
                       median_seconds(
                           context, [&] { context.copy(to, from); }, 0.2);
  return out;
}

std::string bench_table(const MachineLimits& limits, const std::vector<BenchRow>& rows, const std::string& machine) {
  char line[240];
  std::snprintf(line, sizeof line, "%s%.0f GFLOP/s, %.1f GB/s\n", machine.empty() ? "" : (machine + ": ").c_str(),
                limits.flops / 1e9, limits.read_bandwidth / 1e9);
  std::string out = line;
  std::snprintf(line, sizeof line, "%-22s %-34s %-16s %10s %9s %8s  %-20s %s\n", "op", "shape", "body", "ms", "GFLOP/s",
                "GB/s", "share of limit", "of (op)");
  out += line;
  for (const BenchRow& row : rows) {
    std::snprintf(line, sizeof line, "%-22s %-34s %-16s %10.3f %9.1f %8.1f  %5.1f%% of %-10s", row.op.c_str(),
                  row.shape.c_str(), row.body.c_str(), row.seconds * 1e3, row.flops / 1e9, row.bytes / 1e9,
                  row.roofline_fraction * 100, row.compute_bound ? "arithmetic" : "bandwidth");
    out += line;
    if (row.beside > 0) {
      std::snprintf(line, sizeof line, " %5.1f%%", row.beside * 100);
      out += line;
    }
    out += '\n';
  }
  return out;
}

}  // namespace hone
