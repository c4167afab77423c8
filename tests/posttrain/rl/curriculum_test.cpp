#include "posttrain/rl/curriculum.h"

#include <gtest/gtest.h>

#include "core/config/config.h"

namespace hone {
namespace {

constexpr CurriculumConfig config{.revisit_epochs = 3, .easy = 0.9, .hard = 0.1, .smoothing = 0.5, .threshold = 1};

// A curriculum over four tasks in file order.
class CurriculumTest : public ::testing::Test {
 protected:
  // The tasks up to the end of the order's epoch.
  std::string epoch() {
    std::string out;
    do out += std::to_string(curriculum.next(order));
    while (order.num_given() % 4 != 0);
    return out;
  }
  void record(int64_t task, double rate) { curriculum.record(task, order.epoch(), rate); }

  Mixture order{{{.name = "", .count = 4}}, 0, false};
  Curriculum curriculum{config, 4};
};

TEST_F(CurriculumTest, SetsAsideWhatIsTooEasyOrTooHardAndRevisitsIt) {
  EXPECT_EQ(epoch(), "0123");
  record(0, 1), record(1, 0), record(2, 0.5), record(3, 0.5);
  EXPECT_EQ(epoch(), "23");
  EXPECT_EQ(epoch(), "23");
  EXPECT_EQ(epoch(), "0123");  // epoch 3: last sampled in epoch 0
  record(0, 1);
  EXPECT_EQ(epoch(), "123");  // no result of task 1 was recorded: it is sampled again
  record(1, 0.5);             // (0 + 0.5) / 2: no longer too hard
  EXPECT_EQ(epoch(), "123");
}

TEST_F(CurriculumTest, TheRunningRateForgets) {
  record(0, 1);
  EXPECT_DOUBLE_EQ(curriculum.metrics().at("curriculum/pass_rate"), 1);
  record(0, 0.5);
  EXPECT_DOUBLE_EQ(curriculum.metrics().at("curriculum/pass_rate"), 0.75);
  record(0, 0);
  EXPECT_DOUBLE_EQ(curriculum.metrics().at("curriculum/pass_rate"), 0.375);
}

TEST_F(CurriculumTest, MetricsCountThePools) {
  EXPECT_EQ(curriculum.metrics(), (Metrics{{"curriculum/active", 4}, {"curriculum/easy", 0}, {"curriculum/hard", 0}}));
  record(0, 0.9), record(1, 0.1), record(2, 0.5);
  EXPECT_EQ(
      curriculum.metrics(),
      (Metrics{
          {"curriculum/active", 2}, {"curriculum/easy", 1}, {"curriculum/hard", 1}, {"curriculum/pass_rate", 0.5}}));
}

TEST_F(CurriculumTest, WhereAllAreSetAsideTheyComeBackTogether) {
  epoch();
  for (int64_t task = 0; task < 4; ++task) record(task, 1);
  EXPECT_EQ(curriculum.next(order), 0);
  EXPECT_EQ(order.epoch(), 3);
}

TEST_F(CurriculumTest, GoesOnFromItsState) {
  epoch();
  record(0, 1), record(1, 0), record(3, 0.4);
  StateSection section;
  curriculum.save_state(section);
  Curriculum resumed(config, 4);
  resumed.load_state(section);
  EXPECT_EQ(resumed.metrics(), curriculum.metrics());
  Mixture copy = order;
  for (int i = 0; i < 20; ++i) EXPECT_EQ(resumed.next(copy), curriculum.next(order));
  EXPECT_THROW(Curriculum(config, 5).load_state(section), Error);
  EXPECT_THROW(Curriculum(config, 4).load_state(StateSection{}), Error);
}

TEST_F(CurriculumTest, WithoutOneTheOrderIsAsItIs) {
  Curriculum off({}, 4);
  off.record(0, 0, 1);
  EXPECT_EQ(off.next(order), 0);
  EXPECT_TRUE(off.metrics().empty());
  StateSection section;
  off.save_state(section);
  EXPECT_TRUE(section.tensors.empty());
  off.load_state(section);
}

TEST(CurriculumConfig, RefusesWhatCannotBe) {
  for (const char* wrong :
       {"revisit_epochs = -1", "easy = 1.5", "easy = 0.1\nhard = 0.1", "hard = -0.1", "smoothing = 1.0"})
    EXPECT_THROW(Config::from_text(wrong, "test").as<CurriculumConfig>(), Error) << wrong;
}

}  // namespace
}  // namespace hone
