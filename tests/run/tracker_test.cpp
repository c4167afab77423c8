// Trackers that behave, and trackers that do not: none may delay or end a run, and no row may be lost on the way to one
// that reads.
#include "run/recipe/tracker.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>

#include "core/io/file.h"
#include "core/io/jsonl.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

class TrackerTest : public ::testing::Test {
 protected:
  // Appends rows from `first` on to metrics.jsonl, and tells the tracker about each. Returns the seconds it took.
  double write_rows(Tracker& tracker, int first, int count) const {
    const auto start = Clock::now();
    for (int step = first; step < first + count; ++step) {
      std::error_code missing;
      const auto size = fs::file_size(metrics(), missing);
      std::ofstream(metrics(), std::ios::app)
          << R"({"step": )" << step << R"(, "pad": ")" << std::string(200, 'x') << "\"}\n";
      tracker.notify(missing ? 0 : static_cast<int64_t>(size));
    }
    return std::chrono::duration<double>(Clock::now() - start).count();
  }
  TrackerConfig shell(const std::string& script, double grace = 10) const {
    return {.command = {"/bin/sh", "-c", script, "tracker", (folder.path() / "seen").string()}, .grace = grace};
  }
  fs::path metrics() const { return folder.path() / "metrics.jsonl"; }
  // The steps of the rows that the tracker wrote to `seen`; -1 for the first line.
  std::vector<int64_t> seen() const {
    std::vector<int64_t> out;
    if (!fs::exists(folder.path() / "seen")) return out;
    read_jsonl(folder.path() / "seen",
               [&](const Json& row, int64_t) { out.push_back(row.find("step") ? row.at("step").as_int() : -1); });
    return out;
  }
  static std::vector<int64_t> config_and_steps(int first, int last) {
    std::vector<int64_t> out{-1};
    for (int step = first; step <= last; ++step) out.push_back(step);
    return out;
  }
  const Json about = JsonObject{{"name", "small"}, {"config", JsonObject{{"seed", 3}}}};
  TemporaryFolder folder;
};

TEST_F(TrackerTest, GetsTheConfigurationAndEveryRow) {
  {
    Tracker tracker(shell("cat > \"$1\""), folder.path(), about);
    write_rows(tracker, 1, 500);
  }
  EXPECT_EQ(seen(), config_and_steps(1, 500));
  JsonlReader reader(folder.path() / "seen");
  Json first;
  ASSERT_TRUE(reader.next(first));
  EXPECT_EQ(first.at("config").at("seed").as_int(), 3);
  EXPECT_EQ(first.at("name").as_string(), "small");
  EXPECT_FALSE(first.at("resumed").as_bool());
  EXPECT_EQ(first.at("folder").as_string(), folder.path().string());
}

TEST_F(TrackerTest, AResumedRunContinuesWhereTheProcessIs) {
  { Tracker(shell("cat >> \"$1\""), folder.path(), about).notify(0); }
  {
    Tracker tracker(shell("cat >> \"$1\""), folder.path(), about);
    write_rows(tracker, 1, 5);
  }
  {  // the run was killed after step 5, and resumes from a checkpoint of step 3
    JsonlReader reader(metrics());
    Json row;
    std::string kept;
    for (int i = 0; i < 3 && reader.next(row); ++i) kept += row.dump() + "\n";
    write_file_atomic(metrics(), kept);
    Tracker tracker(shell("cat >> \"$1\""), folder.path(), about);
    write_rows(tracker, 4, 3);
  }
  EXPECT_EQ(seen(), (std::vector<int64_t>{-1, -1, 1, 2, 3, 4, 5, -1, 4, 5, 6}));
  std::vector<std::string> ids;
  read_jsonl(folder.path() / "seen", [&](const Json& row, int64_t) {
    if (row.find("id")) ids.push_back(row.at("id").as_string());
  });
  ASSERT_EQ(ids.size(), 3u);
  EXPECT_EQ(ids[0], ids[2]);  // one run of the service
}

TEST_F(TrackerTest, ASlowProcessGetsEveryRowAndDelaysNothing) {
  {
    Tracker tracker(shell("while IFS= read -r line; do printf '%s\\n' \"$line\" >> \"$1\"; sleep 0.001; done"),
                    folder.path(), about);
    EXPECT_LT(write_rows(tracker, 1, 1000), 2.0);  // 230 kB: more than a pipe holds
  }
  EXPECT_EQ(seen(), config_and_steps(1, 1000));
}

TEST_F(TrackerTest, AProcessThatExitsAtOnceChangesNothing) {
  Tracker tracker(shell("exit 3"), folder.path(), about);
  EXPECT_LT(write_rows(tracker, 1, 200), 2.0);
  const auto start = Clock::now();
  tracker.finish();
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(5));
}

TEST_F(TrackerTest, AProcessThatClosesItsInputChangesNothing) {
  Tracker tracker(shell("exec <&-; sleep 60", 0.2), folder.path(), about);
  EXPECT_LT(write_rows(tracker, 1, 2000), 4.0);
  const auto start = Clock::now();
  tracker.finish();
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(8));
}

TEST_F(TrackerTest, AProcessThatNeverReadsIsEndedAfterItsGrace) {
  Tracker tracker(shell("trap '' TERM; while :; do sleep 1; done", 0.3), folder.path(), about);
  EXPECT_LT(write_rows(tracker, 1, 2000), 4.0);
  const auto start = Clock::now();
  tracker.finish();
  const auto taken = Clock::now() - start;
  EXPECT_GT(taken, std::chrono::milliseconds(300));
  EXPECT_LT(taken, std::chrono::seconds(8));
}

TEST_F(TrackerTest, HugeOutputNeitherBlocksItNorFillsTheDisk) {
  {
    Tracker tracker(shell("head -c 5000000 /dev/zero | tr '\\0' e >&2; cat > \"$1\""), folder.path(), about);
    write_rows(tracker, 1, 20);
  }
  EXPECT_EQ(seen(), config_and_steps(1, 20));
  const std::string log = read_file(folder.path() / "tracker.log");
  EXPECT_LT(log.size(), size_t{1} << 21);
  EXPECT_NE(log.find("output beyond 1 MiB is dropped"), std::string::npos);
}

TEST_F(TrackerTest, ACommandThatDoesNotExistIsAWarning) {
  Tracker tracker({.command = {"/nowhere/tracker"}}, folder.path(), about);
  write_rows(tracker, 1, 3);
  tracker.finish();
  EXPECT_FALSE(fs::exists(folder.path() / "tracker.json"));
}

TEST_F(TrackerTest, WithoutACommandNothingIsStarted) {
  Tracker tracker({}, folder.path(), about);
  write_rows(tracker, 1, 3);
  tracker.finish();
  EXPECT_FALSE(fs::exists(folder.path() / "tracker.json"));
  EXPECT_FALSE(fs::exists(folder.path() / "tracker.log"));
}

}  // namespace
}  // namespace hone::test
