#include "train/metrics_log.h"

#include <gtest/gtest.h>

#include "tests/support/support.h"

namespace hone::test {
namespace {

class MetricsLogTest : public ::testing::Test {
 protected:
  void fill(MetricsLog& log, int64_t first, int64_t last) const {
    for (int64_t step = first; step <= last; ++step) {
      log.metrics(step, {{"loss", 1.0 / static_cast<double>(step)}});
      log.sample(JsonObject{{"step", step}});
    }
  }
  std::string text(const char* name) const { return read_file(folder.path() / name); }
  TemporaryFolder folder;
};

TEST_F(MetricsLogTest, RowsPastTheCheckpointAreCut) {
  StateSection saved;
  {
    MetricsLog log(folder.path());
    fill(log, 1, 3);
    log.save_state(saved);
    fill(log, 4, 6);
  }
  MetricsLog resumed(folder.path());
  resumed.load_state(saved);
  fill(resumed, 4, 5);
  StateSection after;
  resumed.save_state(after);

  const TemporaryFolder other;
  MetricsLog whole(other.path());
  fill(whole, 1, 5);
  StateSection uninterrupted;
  whole.save_state(uninterrupted);
  EXPECT_EQ(text("metrics.jsonl"), read_file(other.path() / "metrics.jsonl"));
  EXPECT_EQ(text("samples.jsonl"), read_file(other.path() / "samples.jsonl"));
  EXPECT_EQ(after.values, uninterrupted.values);
}

TEST_F(MetricsLogTest, ALogShorterThanItWasIsAnError) {
  StateSection saved;
  {
    MetricsLog log(folder.path());
    fill(log, 1, 3);
    log.save_state(saved);
  }
  std::filesystem::resize_file(folder.path() / "samples.jsonl", 1);
  EXPECT_THROW(MetricsLog(folder.path()).load_state(saved), Error);
  saved.values.set("samples_bytes", -1);
  EXPECT_THROW(MetricsLog(folder.path()).load_state(saved), Error);
}

TEST_F(MetricsLogTest, NothingIsMadeBeforeTheFirstRow) {
  MetricsLog log(folder.path());
  StateSection empty;
  log.save_state(empty);
  EXPECT_EQ(empty.values.at("metrics_bytes").as_int(), 0);
  log.load_state(empty);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace hone::test
