#include "posttrain/rl/rollout_batch.h"

#include <algorithm>

#include "core/io/metrics.h"
#include "data/index_loader.h"
#include "data/trajectory.h"
#include "model/token_logprobs.h"
#include "posttrain/losses/advantage.h"
#include "posttrain/losses/top_entropy.h"
#include "train/shared_scores.h"

namespace hone {

RolloutBatch::RolloutBatch(std::vector<Group> scored_groups) : groups(std::move(scored_groups)) {
  for (Group& group : groups)
    std::erase_if(group.samples, [this](const Sample& sample) {
      if (!sample.completion.ids.empty()) return false;
      for (const auto& [name, count] : sample.counts) dropped_counts_[name] += count;
      return true;
    });
  std::erase_if(groups, [](const Group& group) { return group.samples.empty(); });
  HONE_CHECK(!groups.empty(), "rl: no completion of the step could be sampled (the log says why)");
}

std::vector<const Sample*> RolloutBatch::samples() const {
  std::vector<const Sample*> out;
  for (const Group& group : groups)
    for (const Sample& sample : group.samples) out.push_back(&sample);
  return out;
}

void RolloutBatch::set_values(std::vector<std::vector<float>> values) {
  size_t next = 0;
  for (Group& group : groups)
    for (Sample& sample : group.samples) sample.columns.set(columns::old_value, std::move(values[next++]));
}

void RolloutBatch::set_old_logp(Context& context, Model& model, double temperature, int64_t weight_version,
                                bool exact_sampler, const Ranks& ranks) {
  const bool exact = exact_sampler && context.numerics() == Numerics::exact;
  std::vector<Sample*> foreign;
  std::vector<std::vector<int32_t>> sequences;
  for (Group& group : groups)
    for (Sample& sample : group.samples) {
      if (exact && sample.weight_version == weight_version) {
        const std::span<const float> logp = sample.columns.find(columns::behavior_logp);
        sample.columns.set(columns::old_logp, std::vector<float>(logp.begin(), logp.end()));
      } else {
        foreign.push_back(&sample);
        sequences.push_back(sample.tokens);
      }
    }
  if (foreign.empty()) return;
  std::vector<TokenLogprobs> scores = shared_logprobs(ranks, context, model, sequences, {.temperature = temperature});
  for (size_t i = 0; i < foreign.size(); ++i) foreign[i]->columns.set(columns::old_logp, std::move(scores[i].logp));
}

void RolloutBatch::set_old_entropy(Context& context, Model& model, double temperature, const Ranks& ranks) {
  std::vector<Sample*> samples;
  std::vector<std::vector<int32_t>> sequences;
  for (Group& group : groups)
    for (Sample& sample : group.samples) {
      samples.push_back(&sample);
      sequences.push_back(sample.tokens);
    }
  std::vector<TokenLogprobs> scores =
      shared_logprobs(ranks, context, model, sequences, {.temperature = temperature, .entropy = true});
  for (size_t i = 0; i < samples.size(); ++i) {
    samples[i]->columns.set(columns::old_logp, std::move(scores[i].logp));
    samples[i]->columns.set(columns::old_entropy, std::move(scores[i].entropy));
  }
}

std::vector<std::vector<const Sample*>> RolloutBatch::mini_batches(int64_t count, LossUnit unit, uint64_t seed,
                                                                   uint64_t pass) const {
  if (groups.empty()) return {};
  if (count == 1) return {samples()};
  std::vector<std::vector<const Sample*>> units;
  for (const Group& group : groups) {
    if (unit == LossUnit::pair) units.emplace_back();
    for (const Sample& sample : group.samples) {
      if (unit != LossUnit::pair) units.emplace_back();
      units.back().push_back(&sample);
    }
  }
  const Permutation order(units.size(), seed, pass);
  std::vector<std::vector<const Sample*>> out(static_cast<size_t>(count));
  for (size_t i = 0; i < units.size(); ++i) {
    auto& mini = out[i * static_cast<size_t>(count) / units.size()];
    const auto& members = units[order(i)];
    mini.insert(mini.end(), members.begin(), members.end());
  }
  std::erase_if(out, [](const auto& mini) { return mini.empty(); });
  return out;
}

namespace {

// Rewards of a group with a deviation up to this are equal.
constexpr double flat_deviation = 1e-8;

// Adds completions/{mean, min, max}_<suffix>, TRL's metrics of lengths; zeros if there are no lengths.
void add_lengths(Metrics& out, const std::string& suffix, std::span<const double> lengths) {
  const auto [shortest, longest] = std::minmax_element(lengths.begin(), lengths.end());
  out["completions/mean_" + suffix] = moments_of(lengths).mean;
  out["completions/min_" + suffix] = lengths.empty() ? 0 : *shortest;
  out["completions/max_" + suffix] = lengths.empty() ? 0 : *longest;
}

// Adds metrics of the groups of each named source.
void add_by_source(std::span<const Group> groups, Metrics& out) {
  struct OfSource {
    double prompts = 0, flat = 0, rated = 0;
    std::vector<double> rewards, lengths;
  };
  std::map<std::string, OfSource> sources;
  for (const Group& group : groups) {
    if (group.task.source.empty()) continue;
    OfSource& of = sources[group.task.source];
    std::vector<double> rewards;
    for (const Sample& sample : group.samples) {
      if (sample.scored) rewards.push_back(sample.reward);
      of.lengths.push_back(static_cast<double>(sample.completion.ids.size()));
    }
    ++of.prompts;
    if (rewards.empty()) continue;  // no reward is known
    ++of.rated;
    of.flat += moments_of(rewards).deviation <= flat_deviation;
    of.rewards.insert(of.rewards.end(), rewards.begin(), rewards.end());
  }
  for (const auto& [name, of] : sources) {
    out["prompts/" + name] = of.prompts;
    out["completions/mean_length/" + name] = moments_of(of.lengths).mean;
    if (of.rated == 0) continue;
    out["reward/" + name] = moments_of(of.rewards).mean;
    out["reward_std/" + name] = moments_of(of.rewards).deviation;
    out["frac_reward_zero_std/" + name] = of.flat / of.rated;
  }
}

// Adds env/turns and env/observation_tokens, means over trajectories, and counts that would otherwise be absent.
void add_environment(std::span<const Group> groups, Metrics& out) {
  double trajectories = 0, turns = 0, observed = 0;
  for (const Group& group : groups)
    for (const Sample& sample : group.samples) {
      if (!sample.columns.has(columns::turn_reward)) continue;
      ++trajectories;
      turns += static_cast<double>(policy_turns(sample).size());
      observed += static_cast<double>(observation_tokens(sample));
    }
  if (trajectories == 0) return;
  out["env/turns"] = turns / trajectories;
  out["env/observation_tokens"] = observed / trajectories;
  for (const char* name : {"env/failed", "env/truncated_observations"}) out.try_emplace(name, 0);
}

}  // namespace

Metrics RolloutBatch::metrics() const {
  Metrics out = dropped_counts_;
  add_by_source(groups, out);
  add_environment(groups, out);
  std::vector<double> lengths, terminated, all_rewards, deviations;
  std::map<std::string, std::vector<double>> parts;
  double clipped = 0, flat = 0;
  for (const Group& group : groups) {
    std::vector<double> rewards;
    for (const Sample& sample : group.samples) {
      for (const auto& [name, count] : sample.counts) out[name] += count;
      for (const auto& [name, score] : sample.reward_parts) parts[name].push_back(score);
      if (sample.scored) rewards.push_back(sample.reward);
      lengths.push_back(static_cast<double>(sample.completion.ids.size()));
      const bool cut = is_limit_reason(sample.completion.finish_reason);
      clipped += cut;
      if (!cut) terminated.push_back(lengths.back());
    }
    if (rewards.empty()) continue;  // no reward is known
    deviations.push_back(moments_of(rewards).deviation);
    flat += deviations.back() <= flat_deviation;
    all_rewards.insert(all_rewards.end(), rewards.begin(), rewards.end());
  }
  add_lengths(out, "length", lengths);
  add_lengths(out, "terminated_length", terminated);
  out["completions/clipped_ratio"] = clipped / static_cast<double>(lengths.size());
  for (const auto& [name, scores] : parts) {
    const Moments moments = moments_of(scores);
    out["rewards/" + name + "/mean"] = moments.mean;
    out["rewards/" + name + "/std"] = moments.deviation;
  }
  if (deviations.empty()) return out;
  out["reward"] = moments_of(all_rewards).mean;
  out["reward_std"] = moments_of(all_rewards).deviation;
  out["reward_group_std"] = moments_of(deviations).mean;
  out["frac_reward_zero_std"] = flat / static_cast<double>(deviations.size());
  return out;
}

std::vector<Json> RolloutBatch::sample_rows(int64_t step, int64_t count) const {
  std::vector<Json> out;
  for (const Group& group : groups) {
    const Task& task = group.task;
    for (const Sample& sample : group.samples) {
      if (count-- == 0) return out;
      Json row = JsonObject{
          {"step", step}, {"task", task.id}, {"prompt", task.rendered.empty() ? task.prompt : task.rendered}};
      if (!task.source.empty()) row.set("source", task.source);
      if (!task.messages.empty()) row.set("messages", messages_json(task.messages));
      row.set("completion", sample.completion.text);
      if (has_environment_turns(sample)) row.set("turns", turns_json(sample.turns));
      row.set("answer", task.answer);
      row.set("finish_reason", sample.completion.finish_reason);
      row.set("reward", sample.scored ? Json(sample.reward) : Json());
      row.set("rewards", metrics_json(sample.reward_parts));
      out.push_back(std::move(row));
    }
  }
  return out;
}

}  // namespace hone
