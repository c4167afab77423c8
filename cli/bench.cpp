#include "kernels/bench.h"

#include <cstdio>

#include "cli/command.h"
#include "core/json.h"
#include "core/parallel_for.h"

namespace hone {
namespace {

Json to_json(const MachineLimits& limits, const std::vector<BenchRow>& rows) {
  JsonArray table;
  for (const BenchRow& row : rows)
    table.push_back(JsonObject{{"op", row.op},
                               {"shape", row.shape},
                               {"body", row.body},
                               {"seconds", row.seconds},
                               {"flops", row.flops},
                               {"bytes", row.bytes},
                               {"share", row.share},
                               {"limit", row.compute_bound ? "arithmetic" : "reading"}});
  return JsonObject{{"threads", num_threads()}, {"flops", limits.flops}, {"read_bandwidth", limits.read_bandwidth}, {"ops", std::move(table)}};
}

class BenchCommand : public Command {
 public:
  std::string summary() const override { return "how fast operations are, beside what this machine could do"; }
  std::string example() const override { return "hone bench ops --filter gemm\n  hone bench ops --json"; }
  void arguments(Arguments& a) override {
    a.positional("what", what_, "ops: every operation that has benchmark cases", false);
    a.option("filter", filter_, "only cases whose name contains this");
    a.option("seconds", seconds_, "time for each body of each case");
    a.flag("json", json_, "one JSON object");
  }
  int run() override {
    HONE_CHECK(what_ == "ops", "bench: unknown subject '", what_, "'; known: ops");
    const std::unique_ptr<Device> device = devices().at("cpu")(0);
    Context context(*device);
    const MachineLimits limits = measure_limits();
    const std::vector<BenchRow> rows = run_bench(context, limits, filter_, seconds_);
    std::printf("%s", json_ ? (to_json(limits, rows).dump() + "\n").c_str() : bench_table(limits, rows).c_str());
    return 0;
  }

 private:
  std::string what_ = "ops", filter_;
  double seconds_ = 0.3;
  bool json_ = false;
};

[[maybe_unused]] const bool added = commands().add("bench", [] { return std::unique_ptr<Command>(new BenchCommand); });

}  // namespace
}  // namespace hone
