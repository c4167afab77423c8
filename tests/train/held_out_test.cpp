#include "train/held_out.h"

#include <gtest/gtest.h>

#include <limits>

namespace hone {
namespace {

TEST(EarlyStop, EndsAfterSoManyEvaluationsWithoutALowerLoss) {
  EarlyStop stop({.early_stopping_patience = 2});
  EXPECT_TRUE(stop.observe(10, 3.0));
  EXPECT_FALSE(stop.observe(20, 3.5));
  EXPECT_FALSE(stop.stop());
  EXPECT_TRUE(stop.observe(30, 2.0));
  EXPECT_FALSE(stop.observe(40, 2.0));
  EXPECT_FALSE(stop.stop());
  EXPECT_FALSE(stop.observe(50, 2.5));
  EXPECT_TRUE(stop.stop());
  EXPECT_EQ(stop.best_step(), 30);
}

TEST(EarlyStop, AFallWithinTheThresholdIsTheBestYetAndStillAMiss) {
  EarlyStop stop({.early_stopping_patience = 2, .early_stopping_threshold = 0.5});
  stop.observe(1, 3.0);
  EXPECT_TRUE(stop.observe(2, 2.75));
  EXPECT_TRUE(stop.observe(3, 2.5));
  EXPECT_TRUE(stop.stop());
  EXPECT_EQ(stop.best_step(), 3);
}

TEST(EarlyStop, WithoutPatienceItNeverEndsAndANumberThatIsNoneIsNeverTheBest) {
  EarlyStop stop({.load_best_model_at_end = true});
  EXPECT_FALSE(stop.observe(1, std::numeric_limits<double>::quiet_NaN()));
  EXPECT_EQ(stop.kept_step(1), 1);
  EXPECT_TRUE(stop.observe(2, 1.0));
  for (int64_t step = 3; step < 20; ++step) stop.observe(step, 2.0);
  EXPECT_FALSE(stop.stop());
  EXPECT_EQ(stop.kept_step(19), 2);
  EXPECT_EQ(EarlyStop({}).kept_step(19), 19);
}

TEST(EarlyStop, ResumedItGoesOnAsItWas) {
  const EarlyStopConfig config{.early_stopping_patience = 3};
  EarlyStop whole(config), resumed(config);
  whole.observe(1, 0.1);
  whole.observe(2, 0.3);
  StateSection section;
  whole.save_state(section);
  section.values = parse_json(section.values.dump(), "early_stop.json");
  resumed.load_state(section);
  for (EarlyStop* stop : {&whole, &resumed}) {
    EXPECT_FALSE(stop->observe(3, 0.1));
    EXPECT_FALSE(stop->stop());
    EXPECT_FALSE(stop->observe(4, 0.2));
    EXPECT_TRUE(stop->stop());
    EXPECT_EQ(stop->best_step(), 1);
  }
}

}  // namespace
}  // namespace hone
