#pragma once
// RewardWatch: warns in the log if rewards stop to differ between completions. Training then continues without a
// gradient, and nothing else shows it.
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "data/sample.h"

namespace hone {

class RewardWatch {
 public:
  // Takes one step's scored groups. Warns once of each: `patience` steps in a row in which no group's rewards differed
  // (groups of two or more completions), and in which the reward, or a part of it, was the same number for every
  // completion.
  void observe(std::span<const Group> groups);

  static constexpr int64_t patience = 3;

 private:
  // A reward that has been one number for some steps.
  struct Constant {
    double value = 0;
    int64_t steps = 0;
  };
  void observe_reward(const std::string& name, std::span<const double> rewards);
  void warn_once(const std::string& subject, const std::string& message);

  int64_t flat_steps_ = 0;
  std::map<std::string, Constant> constants_;  // by the part's name; "" is the reward itself
  std::set<std::string> warned_;
};

}  // namespace hone
