#include "train/optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/config/config.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "tests/support/errors.h"
#include "tests/support/support.h"

namespace hone {
namespace {

TEST(Schedule, CosineAgreesWithPublishedNumbers) {
  HONE_SHARED_OR_SKIP(path, "vectors/a1/nn_utils.json");
  const Json all = parse_json(read_file(path), path.string());
  const Json& section = all.at("cosine_schedule");
  const ScheduleConfig config{.learning_rate = section.at("max_lr").as_double(),
                              .min_lr_ratio = section.at("min_lr").as_double() / section.at("max_lr").as_double(),
                              .warmup_steps = section.at("warmup_iters").as_int()};
  const JsonArray &steps = section.at("it").as_array(), &expected = section.at("expected").as_array();
  for (size_t i = 0; i < steps.size(); ++i)
    EXPECT_NEAR(learning_rate_at(config, steps[i].as_int(), section.at("cosine_cycle_iters").as_int()),
                expected[i].as_double(), 1e-7);
}

TEST(Schedule, ShapesAreWhatTheirNamesSay) {
  const auto at = [](const char* type, int64_t step) {
    return learning_rate_at(
        {.lr_scheduler_type = type, .learning_rate = 2, .min_lr_ratio = 0.5, .warmup_steps = 10, .decay_ratio = 0.3},
        step, 110);
  };
  for (const std::string& type : schedule_shapes().names()) {
    EXPECT_EQ(at(type.c_str(), 0), 0) << type;
    EXPECT_DOUBLE_EQ(at(type.c_str(), 5), 1) << type;
    EXPECT_DOUBLE_EQ(at(type.c_str(), 10), 2) << type;
    EXPECT_NEAR(at(type.c_str(), 110), type == "constant" ? 2 : 1, 1e-12) << type;
    EXPECT_EQ(at(type.c_str(), 110), at(type.c_str(), 500)) << type;
    for (int64_t step = 10; step < 110; ++step)
      EXPECT_GE(at(type.c_str(), step), at(type.c_str(), step + 1)) << type << " " << step;
  }
  EXPECT_DOUBLE_EQ(at("linear", 60), 1.5);
  EXPECT_NEAR(at("cosine", 60), 1.5, 1e-12);
  // 33 of the 110 steps decay: 77 to 110.
  EXPECT_EQ(at("wsd", 77), 2);
  EXPECT_LT(at("wsd", 78), 2);
  EXPECT_NEAR(at("wsd", 77) - at("wsd", 88), 1 * (1 - 0.5 * (1 + std::cos(std::acos(-1.0) / 3))), 1e-9);
}

// The shapes of transformers' get_wsd_schedule, and the exponential one of MiniCPM; 40 of 100 steps decay.
TEST(Schedule, WsdDecaysInTheChosenShape) {
  const auto at = [](const char* type, int64_t step) {
    return learning_rate_at(
        {.lr_scheduler_type = "wsd", .learning_rate = 2, .min_lr_ratio = 0.25, .decay_ratio = 0.4, .decay_type = type},
        step, 100);
  };
  for (const std::string& type : decay_shapes().names()) {
    EXPECT_EQ(at(type.c_str(), 0), 2) << type;
    EXPECT_EQ(at(type.c_str(), 60), 2) << type;
    EXPECT_NEAR(at(type.c_str(), 100), 0.5, 1e-12) << type;
    for (int64_t step = 60; step < 100; ++step) EXPECT_GT(at(type.c_str(), step), at(type.c_str(), step + 1)) << type;
  }
  EXPECT_NEAR(at("linear", 70), 2 * (0.25 + 0.75 * 0.75), 1e-12);
  EXPECT_NEAR(at("1-sqrt", 70), 2 * (0.25 + 0.75 * 0.5), 1e-12);
  EXPECT_NEAR(at("exponential", 80), 2 * 0.5, 1e-12);
  EXPECT_NEAR(at("cosine", 80), 2 * (0.25 + 0.75 * 0.5), 1e-12);
}

TEST(Schedule, DecaysThatCannotBeAreRefused) {
  const auto message = [](const char* toml) {
    return test::error_of([&] { Config::from_text(toml, "recipe.toml").as<ScheduleConfig>(); });
  };
  EXPECT_EQ(message("lr_scheduler_type = \"wsd\"\ndecay_type = \"exponential\""), "no error");
  EXPECT_EQ(message("min_lr_ratio = 0.0\nlr_scheduler_type = \"wsd\"\ndecay_type = \"exponential\""),
            "recipe.toml:3:14: decay_type = exponential ends at min_lr_ratio * learning_rate, which must be above 0");
  EXPECT_NE(message("decay_type = \"lineer\"").find("did you mean 'linear'"), std::string::npos);
}

TEST(Schedule, NoStepsAreNoTrouble) { EXPECT_TRUE(std::isfinite(learning_rate_at({.warmup_steps = 0}, 0, 0))); }

}  // namespace
}  // namespace hone
