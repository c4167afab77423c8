#include "train/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace hone {
namespace {

// From 1 to `least` as height goes from 1 to 0.
double between(double height, double least) { return least + (1 - least) * height; }

double linear(double done, double least) { return between(1 - done, least); }
double cosine(double done, double least) { return between(0.5 * (1 + std::cos(std::numbers::pi * done)), least); }

}  // namespace

const Registry<DecayShape>& decay_shapes() {
  static const Registry<DecayShape> registry = [] {
    Registry<DecayShape> r("decay_type");
    r.add("linear", linear);
    r.add("cosine", cosine);
    r.add("1-sqrt", [](double done, double least) { return between(1 - std::sqrt(done), least); });
    r.add("exponential", [](double done, double least) { return std::pow(least, done); });
    return r;
  }();
  return registry;
}

const Registry<ScheduleShape>& schedule_shapes() {
  static const Registry<ScheduleShape> registry = [] {
    Registry<ScheduleShape> r("lr_scheduler_type");
    r.add("constant", [](double, double, const ScheduleConfig& c) { return between(1, c.min_lr_ratio); });
    r.add("linear", [](double done, double, const ScheduleConfig& c) { return linear(done, c.min_lr_ratio); });
    r.add("cosine", [](double done, double, const ScheduleConfig& c) { return cosine(done, c.min_lr_ratio); });
    r.add("wsd", [](double done, double decay, const ScheduleConfig& c) {
      if (done <= 1 - decay) return between(1, c.min_lr_ratio);
      return decay_shapes().at(c.decay_type)(std::min(1.0, (done - (1 - decay)) / decay), c.min_lr_ratio);
    });
    return r;
  }();
  return registry;
}

void ScheduleConfig::fields(Fields& f) {
  f("lr_scheduler_type", lr_scheduler_type, "constant | linear | cosine | wsd");
  f("learning_rate", learning_rate, "peak learning rate");
  f("min_lr_ratio", min_lr_ratio, "final learning rate as a share of learning_rate");
  f("warmup_steps", warmup_steps, "steps in which the rate rises linearly from 0; 0 = no warm-up");
  f("decay_ratio", decay_ratio, "wsd: share of all steps in which the rate decays, at the end");
  f("decay_type", decay_type,
    "wsd: shape of the decay: cosine | linear | 1-sqrt | exponential (min_lr_ratio^share; needs a min_lr_ratio above "
    "0)");
  f.require("lr_scheduler_type", schedule_shapes().contains(lr_scheduler_type),
            schedule_shapes().unknown(lr_scheduler_type));
  f.require("decay_type", decay_shapes().contains(decay_type), decay_shapes().unknown(decay_type));
  f.require("decay_type", decay_type != "exponential" || min_lr_ratio > 0,
            "decay_type = exponential ends at min_lr_ratio * learning_rate, which must be above 0");
  f.require("learning_rate", learning_rate >= 0, "learning_rate must not be negative");
  f.require("min_lr_ratio", min_lr_ratio >= 0 && min_lr_ratio <= 1, "min_lr_ratio must be in [0, 1]");
  f.require("warmup_steps", warmup_steps >= 0, "warmup_steps must not be negative");
  f.require("decay_ratio", decay_ratio >= 0 && decay_ratio <= 1, "decay_ratio must be in [0, 1]");
}

double learning_rate_at(const ScheduleConfig& config, int64_t step, int64_t total_steps) {
  if (step < config.warmup_steps)
    return config.learning_rate * static_cast<double>(step) / static_cast<double>(config.warmup_steps);
  const auto rest = static_cast<double>(std::max<int64_t>(1, total_steps - config.warmup_steps));
  const double done = std::min(1.0, static_cast<double>(step - config.warmup_steps) / rest);
  // decay_ratio is a share of all steps; the shape takes a share of the steps after warm-up.
  const double decay = std::clamp(config.decay_ratio * static_cast<double>(total_steps) / rest, 1e-12, 1.0);
  return config.learning_rate * schedule_shapes().at(config.lr_scheduler_type)(done, decay, config);
}

}  // namespace hone
