#include "train/step_record.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/errors.h"
#include "tests/support/ranks.h"

namespace hone::test {
namespace {

// Exchanges the record that `change` made of the common one on each of three ranks. Returns the decisions; `error`: of
// the run.
std::vector<StepDecision> decide(const std::function<void(int rank, StepRecord&)>& change,
                                 std::string* error = nullptr) {
  std::vector<StepDecision> out(3);
  const std::string found = error_of([&] {
    on_ranks(3, [&](const Ranks& ranks, Context&) {
      StepRecord record{
          .step = 7, .loss = 0.1, .grad_norm = 3, .num_tokens = 64, .samples_digest = ~0ull, .loader = "{\"at\":5}"};
      change(ranks.rank(), record);
      out[static_cast<size_t>(ranks.rank())] = exchange_records(ranks, record);
    });
  });
  if (error) *error = found;
  if (!error) {
    EXPECT_EQ(found, "no error");
  }
  return out;
}

TEST(StepRecord, EqualRanksGoOn) {
  for (const StepDecision& one : decide([](int, StepRecord&) {})) {
    EXPECT_FALSE(one.stop);
    EXPECT_FALSE(one.save);
    EXPECT_EQ(one.error, "");
    EXPECT_TRUE(one.is_consistent);
  }
}

// Ranks differ in what their own devices took.
TEST(StepRecord, ThePassesOfAllRanksAreKnown) {
  for (const StepDecision& one : decide([](int rank, StepRecord&record) { record.passes = 0.25 * rank; }))
    EXPECT_EQ(one.passes, (std::vector<double>{0, 0.25, 0.5}));
}

// A signal and the clock reach ranks at different times; all of them act after the same step.
TEST(StepRecord, ASignalAtOneRankStopsAllAndTheFirstRanksClockSavesAll) {
  for (const StepDecision& one : decide([](int rank, StepRecord&record) {
         record.interrupted = rank == 2;
         record.save_due = rank == 1;
       })) {
    EXPECT_TRUE(one.stop);
    EXPECT_FALSE(one.save);
  }
  for (const StepDecision& one : decide([](int rank, StepRecord&record) { record.save_due = rank == 0; })) {
    EXPECT_FALSE(one.stop);
    EXPECT_TRUE(one.save);
  }
}

TEST(StepRecord, TheFirstDifferenceIsNamed) {
  const auto difference = [](const std::function<void(StepRecord&)>& change) {
    std::string error;
    decide(
        [&](int rank, StepRecord& record) {
          if (rank == 1) change(record);
        },
        &error);
    return error;
  };
  const std::string start = "rank 1 (cpu) disagrees with rank 0 at step 7: the ";
  EXPECT_EQ(difference([](StepRecord& r) { r.loss = std::nextafter(0.1, 1.0); }),
            start + "loss is 0.10000000000000002, rank 0 has 0.1");
  EXPECT_EQ(difference([](StepRecord& r) { r.grad_norm = 2; }), start + "gradient norm is 2.0, rank 0 has 3.0");
  EXPECT_EQ(difference([](StepRecord& r) { r.num_tokens = 63; }), start + "number of tokens is 63, rank 0 has 64");
  EXPECT_EQ(difference([](StepRecord& r) { r.samples_digest = 1; }),
            start + "digest of the samples' tokens is 1, rank 0 has 18446744073709551615");
  EXPECT_EQ(difference([](StepRecord& r) { r.weights_digest = 8; }),
            start + "digest of some weights before the step is 8, rank 0 has 0");
  EXPECT_EQ(difference([](StepRecord& r) {
              r.loader = "{\"at\":6}";
              r.loss = 9;
            }),
            start + "position in the data is {\"at\":6}, rank 0 has {\"at\":5}");
  EXPECT_EQ(difference([](StepRecord& r) { r.loss = std::numeric_limits<double>::quiet_NaN(); }),
            start + "loss is null, rank 0 has 0.1");
}

TEST(StepRecord, AnErrorOfEveryRankIsConsistentAndAnErrorOfOneIsNot) {
  for (const StepDecision& one : decide([](int rank, StepRecord&record) { record.error = concat("error ", rank); })) {
    EXPECT_EQ(one.error, "error 0");
    EXPECT_TRUE(one.is_consistent);
  }
  for (const StepDecision& one : decide([](int rank, StepRecord&record) {
         record.error = "lost";
         record.changed_weights = rank == 2;
       }))
    EXPECT_FALSE(one.is_consistent);
  for (const StepDecision& one : decide([](int rank, StepRecord&record) {
         if (rank == 1) record.error = "the device is lost";
       })) {
    EXPECT_EQ(one.error, "rank 1 (cpu): the device is lost");
    EXPECT_FALSE(one.is_consistent);
  }
}

TEST(StepRecord, OneRankDecidesAlone) {
  const StepDecision failed = exchange_records(Ranks(), {.changed_weights = true, .error = "lost"});
  EXPECT_EQ(failed.error, "lost");
  EXPECT_FALSE(failed.is_consistent);
  EXPECT_TRUE(exchange_records(Ranks(), {.interrupted = true}).stop);
}

}  // namespace
}  // namespace hone::test
