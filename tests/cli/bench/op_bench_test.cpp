#include "cli/bench/op_bench.h"

#include "tests/kernels/op_check.h"

namespace hone::test {

TEST(Bench, MeasuresEveryBodyOfACaseAgainstTheLimit) {
  static Floats numbers({1 << 16}, 1.0f);
  static int runs = 0;
  static const bool added = bench_cases().add("bench_test", [](Context&) {
    return std::vector<BenchCase>{{"sum", "65536", 65536, 4 * 65536, {{"a loop", [] { ++runs; }}, {"nothing", [] {}}}}};
  });
  ASSERT_TRUE(added);
  const MachineLimits limits{1e9, 1e9};
  const std::vector<BenchRow> rows = run_bench(cpu(), limits, "bench_test", 0.01);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_GE(runs, 4);
  EXPECT_EQ(rows[0].body, "a loop");
  EXPECT_FALSE(rows[0].compute_bound);
  EXPECT_NEAR(rows[0].roofline_fraction, 4 * 65536 / limits.read_bandwidth / rows[0].seconds,
              1e-9 * rows[0].roofline_fraction);
  EXPECT_NE(bench_table(limits, rows).find("nothing"), std::string::npos);
}

TEST(Bench, ComparesWithTheOpBesideIt) {
  static const bool added = bench_cases().add("beside_test", [](Context&) {
    const auto loop = [](int count) {
      return [count] {
        volatile int sum = 0;
        for (int i = 0; i < count; ++i) sum = sum + i;
      };
    };
    return std::vector<BenchCase>{{"twice", "1", 1, 1, {{"own", loop(200000)}, {"(other)", loop(20000)}}},
                                  {"alone", "1", 1, 1, {{"own", loop(10)}}}};
  });
  ASSERT_TRUE(added);
  const MachineLimits limits{1e9, 1e9};
  const std::vector<BenchRow> rows = run_bench(cpu(), limits, "beside_test", 0.01);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_DOUBLE_EQ(rows[0].beside, rows[1].seconds / rows[0].seconds);
  EXPECT_GT(rows[0].beside, 0);
  EXPECT_EQ(rows[1].beside, 0);
  EXPECT_EQ(rows[2].beside, 0);
  EXPECT_NE(bench_table(limits, rows).find("of (op)"), std::string::npos);
}

TEST(Bench, LimitsArePlausible) {
  const MachineLimits limits = measure_limits(0.1);
  EXPECT_GT(limits.flops, 1e8);
  EXPECT_GT(limits.read_bandwidth, 1e7);
}

}  // namespace hone::test
