#include "kernels/bench.h"

#include <chrono>
#include <cstdio>

#include "core/parallel_for.h"

namespace hone {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// The median time of one run; the first run, which warms caches and scratch, does not count.
double median_seconds(const std::function<void()>& run, double seconds) {
  constexpr size_t fewest = 3, most = 1000;
  run();
  std::vector<double> times;
  for (const double start = now(); times.size() < fewest || (now() - start < seconds && times.size() < most);) {
    const double before = now();
    run();
    times.push_back(now() - before);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace

Registry<BenchCases>& bench_cases() {
  static Registry<BenchCases> registry("benchmark");
  return registry;
}

std::vector<BenchRow> run_bench(Context& context, const MachineLimits& limits, const std::string& filter, double seconds) {
  std::vector<BenchRow> rows;
  for (const std::string& name : bench_cases().names()) {
    if (name.find(filter) == std::string::npos) continue;
    const ScratchScope scope(context);
    for (const BenchCase& one : bench_cases().at(name)(context))
      for (const BenchCase::Body& body : one.bodies) {
        const double time = median_seconds(body.run, seconds);
        const double compute = one.flops / limits.flops, reading = one.bytes / limits.read_bandwidth;
        rows.push_back(
            {one.op, one.shape, body.name, time, one.flops / time, one.bytes / time, std::max(compute, reading) / time, compute > reading});
      }
  }
  return rows;
}

std::string bench_table(const MachineLimits& limits, const std::vector<BenchRow>& rows) {
  char line[200];
  std::snprintf(line, sizeof line, "%d threads: %.0f GFLOP/s of f32 multiply-adds, %.1f GB/s read\n", num_threads(), limits.flops / 1e9,
                limits.read_bandwidth / 1e9);
  std::string out = line;
  std::snprintf(line, sizeof line, "%-22s %-22s %-16s %10s %9s %8s  %s\n", "op", "shape", "body", "ms", "GFLOP/s", "GB/s", "share of limit");
  out += line;
  for (const BenchRow& row : rows) {
    std::snprintf(line, sizeof line, "%-22s %-22s %-16s %10.3f %9.1f %8.1f  %5.1f%% of %s\n", row.op.c_str(), row.shape.c_str(), row.body.c_str(),
                  row.seconds * 1e3, row.flops / 1e9, row.bytes / 1e9, row.share * 100, row.compute_bound ? "arithmetic" : "reading");
    out += line;
  }
  return out;
}

}  // namespace hone
