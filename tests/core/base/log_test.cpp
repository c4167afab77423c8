#include "core/base/log.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "core/base/rank_thread.h"
#include "core/io/file.h"
#include "tests/support/support.h"

namespace hone {
namespace {

TEST(Log, LinesGoToStandardErrorAndTheFile) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path() / "hone.log";
  log::also_to_file(path);
  testing::internal::CaptureStderr();
  log::info("step ", 3, ": loss ", 1.5);
  log::debug("not at this level");
  log::warning("careful");
  const std::string shown = testing::internal::GetCapturedStderr();
  EXPECT_NE(shown.find("step 3: loss 1.5"), std::string::npos);
  EXPECT_EQ(shown.find("not at this level"), std::string::npos);
  const std::string kept = read_file(path);
  EXPECT_NE(kept.find("I step 3: loss 1.5\n"), std::string::npos) << kept;
  EXPECT_NE(kept.find("W careful\n"), std::string::npos) << kept;
  EXPECT_THROW(log::also_to_file("/proc/none/hone.log"), Error);
}

TEST(Log, AWarningOfAllRanksIsLoggedOnceForEachTimeTheyHaveIt) {
  std::atomic<uint64_t> progress{0};
  testing::internal::CaptureStderr();
  const auto as_rank = [&](int rank, const std::function<void()>& work) {
    std::thread([&] {
      set_rank_thread({.rank = rank, .progress = &progress});
      work();
    }).join();
  };
  const auto work = [] {
    log::warning("every rank has this");
    log::info("every rank does this");
  };
  for (const int rank : {0, 1, 2}) as_rank(rank, work);
  for (const int rank : {2, 1, 0}) as_rank(rank, work);
  as_rank(2, [] { log::warning("one rank has this"); });
  const std::string shown = testing::internal::GetCapturedStderr();
  const auto times = [&](const std::string& line) {
    int64_t out = 0;
    for (size_t at = shown.find(line); at != std::string::npos; at = shown.find(line, at + 1)) ++out;
    return out;
  };
  EXPECT_EQ(times("every rank has this"), 2) << shown;
  EXPECT_EQ(times("every rank does this"), 2) << shown;
  EXPECT_EQ(times("[rank 2] one rank has this"), 1) << shown;
}

TEST(Log, LinesOfManyThreadsStayWhole) {
  testing::internal::CaptureStderr();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([] {
      for (int i = 0; i < 100; ++i) log::info("0123456789");
    });
  for (std::thread& thread : threads) thread.join();
  const std::string shown = testing::internal::GetCapturedStderr();
  size_t lines = 0;
  for (size_t at = shown.find("0123456789\n"); at != std::string::npos; at = shown.find("0123456789\n", at + 1))
    ++lines;
  EXPECT_EQ(lines, 400u);
}

TEST(Progress, EndsWithALineThatHasTheCountAndTheRate) {
  testing::internal::CaptureStderr();
  {
    log::Progress progress("tokenize", 100, "rows");
    for (int64_t i = 1; i <= 100; ++i) progress.update(i, "note");
  }
  const std::string shown = testing::internal::GetCapturedStderr();
  EXPECT_NE(shown.find("tokenize 100/100 rows, "), std::string::npos) << shown;
  EXPECT_NE(shown.find("/s, took "), std::string::npos) << shown;
  EXPECT_EQ(std::count(shown.begin(), shown.end(), '\n'), 1) << shown;
}

}  // namespace
}  // namespace hone
