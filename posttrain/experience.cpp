#include "posttrain/experience.h"

#include <algorithm>
#include <cmath>

#include "pretrain/loader.h"

namespace hone {

Experience::Experience(std::vector<Group> judged) : groups(std::move(judged)) {}

std::vector<const Sample*> Experience::samples() const {
  std::vector<const Sample*> out;
  for (const Group& group : groups)
    for (const Sample& sample : group.samples) out.push_back(&sample);
  return out;
}

void Experience::set_values(std::vector<std::vector<float>> values) {
  size_t next = 0;
  for (Group& group : groups)
    for (Sample& sample : group.samples) sample.value = std::move(values[next++]);
}

std::vector<std::vector<const Sample*>> Experience::mini_batches(int64_t count, Per per, uint64_t seed, uint64_t pass) const {
  if (count == 1) return {samples()};
  std::vector<std::vector<const Sample*>> units;
  for (const Group& group : groups) {
    if (per == Per::pair) units.emplace_back();
    for (const Sample& sample : group.samples) {
      if (per != Per::pair) units.emplace_back();
      units.back().push_back(&sample);
    }
  }
  const Permutation order(units.size(), seed, pass);
  std::vector<std::vector<const Sample*>> out(static_cast<size_t>(count));
  for (size_t i = 0; i < units.size(); ++i) {
    auto& mini = out[i * static_cast<size_t>(count) / units.size()];
    const auto& unit = units[order(i)];
    mini.insert(mini.end(), unit.begin(), unit.end());
  }
  std::erase_if(out, [](const auto& mini) { return mini.empty(); });
  return out;
}

Metrics Experience::metrics() const {
  double reward = 0, deviation = 0, flat = 0, length = 0, clipped = 0, shortest = INFINITY, longest = 0;
  double count = 0, num_judged = 0, num_groups = 0;  // groups of which anything is known
  std::map<std::string, std::pair<double, double>> parts;
  Metrics out;
  for (const Group& group : groups) {
    double sum = 0, squares = 0, judged = 0;
    for (const Sample& sample : group.samples) {
      for (const auto& [name, value] : sample.counts) out[name] += value;
      for (const auto& [name, score] : sample.reward_parts) parts[name].first += score, parts[name].second += 1;
      const double tokens = static_cast<double>(sample.completion.ids.size());
      length += tokens;
      shortest = std::min(shortest, tokens);
      longest = std::max(longest, tokens);
      clipped += sample.completion.finish_reason == "length";
      ++count;
      sum += sample.reward;
      judged += sample.judged;
    }
    if (judged == 0) continue;
    const double mean = sum / judged;
    for (const Sample& sample : group.samples)
      if (sample.judged) squares += (sample.reward - mean) * (sample.reward - mean);
    const double spread = judged > 1 ? std::sqrt(squares / (judged - 1)) : 0;
    reward += sum;
    deviation += spread;
    flat += spread == 0;
    num_judged += judged;
    ++num_groups;
  }
  if (count == 0) return {};
  out["completions/mean_length"] = length / count;
  out["completions/min_length"] = shortest;
  out["completions/max_length"] = longest;
  out["completions/clipped_ratio"] = clipped / count;
  for (const auto& [name, sum] : parts) out["rewards/" + name + "/mean"] = sum.first / sum.second;
  if (num_groups == 0) return out;
  out["reward"] = reward / num_judged;
  out["reward_std"] = deviation / num_groups;
  out["frac_reward_zero_std"] = flat / num_groups;
  return out;
}

void Experience::log_samples(RunLog& log, int64_t step, int64_t count) const {
  for (const Group& group : groups) {
    for (const Sample& sample : group.samples) {
      if (count-- <= 0) return;
      Json parts = JsonObject{};
      for (const auto& [name, score] : sample.reward_parts) parts.set(name, score);
      log.sample(JsonObject{{"step", step},
                            {"task", group.task.id},
                            {"prompt", group.task.prompt},
                            {"completion", sample.completion.text},
                            {"answer", group.task.answer},
                            {"finish_reason", sample.completion.finish_reason},
                            {"reward", sample.judged ? Json(sample.reward) : Json()},
                            {"rewards", parts}});
      break;
    }
  }
}

}  // namespace hone
