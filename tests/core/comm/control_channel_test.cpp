#include "core/comm/control_channel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "core/base/rank_thread.h"
#include "core/base/stopwatch.h"
#include "tests/support/errors.h"
#include "tests/support/ranks.h"

namespace hone::test {
namespace {

void sleep_for(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

TEST(ControlChannel, BytesArriveInRankOrderCallAfterCall) {
  on_ranks(4, [](const Ranks& ranks, Context&) {
    for (int call = 0; call < 200; ++call) {
      std::string own(static_cast<size_t>((ranks.rank() + call) % 4 * 100), static_cast<char>('a' + ranks.rank()));
      const std::vector<std::string> all = ranks.all_gather(own, "bytes");
      ASSERT_EQ(all.size(), 4u);
      for (int r = 0; r < 4; ++r)
        ASSERT_EQ(all[static_cast<size_t>(r)],
                  std::string(static_cast<size_t>((r + call) % 4 * 100), static_cast<char>('a' + r)));
    }
  });
}

TEST(ControlChannel, OneRankNeedsNoOther) {
  run_ranks({"cpu"}, {}, [](const Ranks& ranks, Device&) {
    EXPECT_EQ(ranks.size(), 1);
    EXPECT_TRUE(ranks.is_first());
    EXPECT_EQ(ranks.all_gather("own", "bytes"), std::vector<std::string>{"own"});
    EXPECT_EQ(ranks.on_first("work", [] { return std::string("done"); }), "done");
    EXPECT_TRUE(ranks.any(true, "fact"));
  });
}

TEST(ControlChannel, WorkOfTheFirstRankIsDoneOnceAndItsResultIsEverywhere) {
  std::atomic<int> calls{0};
  on_ranks(3, [&](const Ranks& ranks, Context&) {
    EXPECT_EQ(ranks.on_first("work", [&] { return concat("call ", ++calls); }), "call 1");
    EXPECT_TRUE(ranks.any(ranks.rank() == 2, "fact"));
    EXPECT_FALSE(ranks.any(false, "fact"));
  });
  EXPECT_EQ(calls, 1);
}

// All ranks know the error, so it has no rank's name, and each may go on.
TEST(ControlChannel, AnErrorOfTheFirstRanksWorkIsThrownByAll) {
  std::atomic<int> caught{0};
  const auto body = [&](const Ranks& ranks, Context&) {
    EXPECT_EQ(error_of([&] { ranks.do_on_first("saving", [] { fail("the disk is full"); }); }), "the disk is full");
    ++caught;
    EXPECT_EQ(ranks.all_gather("x", "afterwards").size(), 3u);
    ranks.do_on_first("saving", [] { fail("the disk is full"); });
  };
  EXPECT_EQ(error_of([&] { on_ranks(3, body); }), "the disk is full");
  EXPECT_EQ(caught, 3);
}

TEST(ControlChannel, WorkOfAllRanksThatFailsOnAllIsOneError) {
  const auto body = [](const Ranks& ranks, Context&) {
    int done = 0;
    ranks.do_on_all("evaluation", [&] { done += static_cast<int>(ranks.all_gather("x", "inner").size()); });
    EXPECT_EQ(done, 2);
    ranks.do_on_all("evaluation", [] { fail("there is no such task"); });
  };
  EXPECT_EQ(error_of([&] { on_ranks(2, body); }), "there is no such task");
}

// The other rank may be at a call inside of the work, or at its end.
TEST(ControlChannel, WorkOfAllRanksThatFailsOnOneNamesIt) {
  for (const bool inside : {false, true}) {
    const std::string error = error_of([&] {
      on_ranks(2, [&](const Ranks& ranks, Context&) {
        ranks.do_on_all("evaluation", [&] {
          if (ranks.rank() == 1) fail("its device is lost");
          if (inside) ranks.all_gather("", "inner");
        });
      });
    });
    EXPECT_EQ(error, "rank 1 (cpu): its device is lost") << inside;
  }
}

TEST(ControlChannel, ASplitChannelServesAnotherThread) {
  on_ranks(3, [](const Ranks& ranks, Context&) {
    const std::unique_ptr<ControlChannel> other = ranks.control()->split(), third = ranks.control()->split();
    std::thread thread([&] {
      for (int i = 0; i < 50; ++i)
        EXPECT_EQ(other->all_gather(concat("other ", i), "their call").at(2), concat("other ", i));
    });
    for (int i = 0; i < 50; ++i) EXPECT_EQ(ranks.all_gather(concat(i), "my call").at(1), concat(i));
    thread.join();
    EXPECT_EQ(third->all_gather(concat(third->rank()), "once"), (std::vector<std::string>{"0", "1", "2"}));
  });
}

TEST(ControlChannel, AClosedChannelEndsCallsThatCannotComplete) {
  on_ranks(2, [](const Ranks& ranks, Context&) {
    const std::unique_ptr<ControlChannel> other = ranks.control()->split();
    EXPECT_EQ(other->all_gather("x", "first").size(), 2u);  // complete: both have come
    if (ranks.is_first())
      other->close("the stage has ended");
    else
      EXPECT_EQ(error_of([&] { other->all_gather("x", "second"); }), "the stage has ended");
    EXPECT_EQ(ranks.all_gather("x", "the run goes on").size(), 2u);
  });
}

TEST(ControlChannel, ARankThatThrowsEndsTheOthersWithItsNameAndMessage) {
  const Stopwatch watch;
  std::atomic<int> failed{0};
  const auto body = [&](const Ranks& ranks, Context&) {
    if (ranks.rank() == 2) fail("its device is lost");
    try {
      ranks.all_gather("", "a call");
    } catch (const RankFailed& error) {
      EXPECT_STREQ(error.what(), "rank 2 (cpu): its device is lost");
      ++failed;
      throw;
    }
  };
  EXPECT_EQ(error_of([&] { on_ranks(4, body); }), "rank 2 (cpu): its device is lost");
  EXPECT_EQ(failed, 3);
  EXPECT_LT(watch.seconds(), 2);
}

// A fault of a file that each of them reads is no fault of a rank.
TEST(ControlChannel, AnErrorThatEveryRankFindsByItselfNamesNone) {
  const auto body = [](const Ranks& ranks, Context&) { fail("rows.jsonl:", ranks.size(), ": no field 'text'"); };
  EXPECT_EQ(error_of([&] { on_ranks(3, body); }), "rows.jsonl:3: no field 'text'");
}

TEST(ControlChannel, AnExceptionOfAnyTypeIsOfItsRank) {
  EXPECT_EQ(error_of([] {
              on_ranks(2, [](const Ranks& ranks, Context&) {
                if (ranks.rank() == 1) throw std::bad_alloc();
                ranks.all_gather("", "a call");
              });
            }),
            "rank 1 (cpu): std::bad_alloc");
}

TEST(ControlChannel, RanksAtDifferentCallsFail) {
  const std::string error = error_of([] {
    on_ranks(2, [](const Ranks& ranks, Context&) { ranks.all_gather("", ranks.is_first() ? "step 3" : "step 4"); });
  });
  EXPECT_NE(error.find("ranks are at different calls: rank "), std::string::npos) << error;
  EXPECT_NE(error.find("rank 0 (cpu) at 'step 3'"), std::string::npos) << error;
  EXPECT_NE(error.find("'step 4'"), std::string::npos) << error;
}

TEST(ControlChannel, ARankThatHasEndedIsNotWaitedFor) {
  const Stopwatch watch;
  EXPECT_EQ(error_of([] {
              on_ranks(2, [](const Ranks& ranks, Context&) {
                if (ranks.is_first()) ranks.all_gather("", "one more step");
              });
            }),
            "rank 1 (cpu) has ended its work; rank 0 (cpu) waits for it at 'one more step'");
  EXPECT_LT(watch.seconds(), 5);
}

TEST(ControlChannel, ARankThatMakesNoProgressIsNamedWithItsPhase) {
  const Stopwatch watch;
  const auto body = [](const Ranks& ranks, Context&) {
    if (ranks.rank() == 1) {
      ranks.set_phase("rewards of step 12");
      sleep_for(1.5);
    }
    ranks.all_gather("", "step 12");
  };
  const std::string error = error_of([&] { on_ranks(2, body, 0.5); });
  EXPECT_EQ(error,
            "rank 1 (cpu) has made no progress for 0.5 s (parallel.timeout) at 'rewards of step 12'; rank 0 (cpu) "
            "waits for it at 'step 12'");
  EXPECT_LT(watch.seconds(), 5);
}

TEST(ControlChannel, ALateRankThatWorksIsWaitedFor) {
  on_ranks(
      2,
      [](const Ranks& ranks, Context&) {
        if (ranks.rank() == 1)
          for (int i = 0; i < 15; ++i) {
            sleep_for(0.1);
            note_progress();
          }
        EXPECT_EQ(ranks.all_gather("", "step 1").size(), 2u);
      },
      0.5);
}

// A rank whose work failed goes to the call where all agree. The others are told there; one that cannot come fails.
TEST(ControlChannel, ANotedFailureIsReportedInsteadOfTheDifferentCall) {
  const std::string error = error_of([] {
    on_ranks(2, [](const Ranks& ranks, Context&) {
      if (ranks.rank() == 1) ranks.note_failure("the reward is lost");
      ranks.all_gather("", ranks.rank() == 1 ? "step 4" : "checkpoint of step 3");
    });
  });
  EXPECT_EQ(error, "rank 1 (cpu): the reward is lost");
}

TEST(ControlChannelDeathTest, ARankThatHangsForGoodEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(run_ranks({"cpu", "cpu"}, {.timeout = 0.3, .grace = 0.2},
                        [](const Ranks& ranks, Device&) {
                          if (ranks.rank() == 1) {
                            ranks.set_phase("an endless loop");
                            sleep_for(1e6);
                          }
                          ranks.all_gather("", "step 1");
                        }),
              testing::ExitedWithCode(1), "rank 1 \\(cpu\\) has made no progress .* at 'an endless loop'");
}

TEST(Launcher, ProcessesOfOtherLaunchersAreRefusedWithAWayToGo) {
  const auto error_with = [](const char* variable, const char* value) {
    ::setenv(variable, value, 1);
    ::setenv("RANK", "1", 1);
    const std::string out = error_of([] { check_launcher(); });
    ::unsetenv(variable);
    ::unsetenv("RANK");
    return out;
  };
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "WORLD_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    const std::string error = error_with(variable, "4");
    EXPECT_NE(error.find(variable), std::string::npos) << error;
    EXPECT_NE(error.find("[parallel] ranks"), std::string::npos) << error;
    EXPECT_EQ(error_with(variable, "1"), "no error") << variable;
  }
}

}  // namespace
}  // namespace hone::test
