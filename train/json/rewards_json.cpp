#include "train/json/rewards_json.h"

#include <algorithm>

#include "core/base/suggest.h"

namespace hone {

GivenRewards::GivenRewards(const Json& input, size_t num_sequences, std::string_view source)
    : by_sequence_(num_sequences) {
  const Json& rewards = input.at("rewards", source);
  const auto check_count = [&](const std::string& name, size_t count) {
    HONE_CHECK(count == num_sequences, source, ": ", name, " has ", count, " sequences, logp has ", num_sequences);
  };
  const auto add = [&](size_t s, const std::string& name, const Json& value) {
    if (std::ranges::find(names_, name) == names_.end()) names_.push_back(name);
    if (!value.is_null()) by_sequence_[s][name] = value.as_double(concat(source, ": rewards[", s, "]"));
  };
  if (rewards.is_object()) {
    for (const auto& [name, values] : rewards.as_object("rewards")) {
      const JsonArray& own = values.as_array(concat(source, ": rewards.", name));
      check_count(concat("rewards.", name), own.size());
      for (size_t s = 0; s < own.size(); ++s) add(s, name, own[s]);
    }
  } else {
    const JsonArray& sequences = rewards.as_array("rewards");
    check_count("rewards", sequences.size());
    for (size_t s = 0; s < sequences.size(); ++s) {
      HONE_CHECK(sequences[s].is_array() == sequences[0].is_array(), source, ": rewards[", s,
                 "] is a list or rewards[0] is one; give all sequences a number, or all of them a list");
      if (!sequences[s].is_array()) {
        add(s, "reward", sequences[s]);
        continue;
      }
      const JsonArray& own = sequences[s].as_array("rewards");
      HONE_CHECK(s == 0 || own.size() == names_.size(), source, ": rewards[", s, "] has ", own.size(),
                 " rewards, rewards[0] has ", names_.size());
      for (size_t k = 0; k < own.size(); ++k) add(s, std::to_string(k), own[k]);
    }
  }
  for (const std::string& name : names_) weights_[name] = 1;
  const Json *config = input.find("config"), *weights = input.find("reward_weights");
  if (!weights && config) weights = config->find("reward_weights");
  if (weights && !weights->is_null()) read_weights(*weights, source);
}

void GivenRewards::read_weights(const Json& weights, std::string_view source) {
  if (weights.is_object()) {
    for (const auto& [name, weight] : weights.as_object("reward_weights")) {
      HONE_CHECK(weights_.contains(name), source, ": reward_weights has ", name, ", rewards has ", join(names_));
      weights_[name] = weight.as_double(concat(source, ": reward_weights.", name));
    }
    return;
  }
  const JsonArray& list = weights.as_array("reward_weights");
  HONE_CHECK(list.size() == names_.size(), source, ": reward_weights has ", list.size(), " numbers for ", names_.size(),
             " rewards");
  for (size_t k = 0; k < list.size(); ++k)
    weights_[names_[k]] = list[k].as_double(concat(source, ": reward_weights[", k, "]"));
}

void GivenRewards::write(size_t s, Sample& sample) const {
  sample.reward_parts = by_sequence_[s];
  sample.reward = 0;
  for (const auto& [name, reward] : sample.reward_parts) sample.reward += weights_.at(name) * reward;
  sample.scored = !sample.reward_parts.empty();
  if (!sample.scored) clear_mask(sample);
}

}  // namespace hone
