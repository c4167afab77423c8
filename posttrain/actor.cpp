#include "posttrain/actor.h"

#include <cmath>

#include "core/log.h"
#include "core/parallel_for.h"

namespace hone {

void ActorConfig::fields(Fields& f) {
  f("num_generations", num_generations, "replies of a prompt, judged against each other");
  f("sampling", sampling, "how replies are drawn");
  f("reward", reward, "judges the replies");
  format.fields(f);
  f.require("num_generations", num_generations > 0 && num_generations <= 65536, "num_generations must be in [1, 65536]");
}

Actor::Actor(Context& context, Model& model, const Tokenizer& tokenizer, const EngineConfig& engine, const ActorConfig& config)
    : config_(config), encoder_(config.format, tokenizer), sampling_(config.sampling), engine_(context, model, &tokenizer, engine) {
  for (const int32_t id : encoder_.stop_ids()) sampling_.stop_ids.push_back(id);
}

static Sample to_sample(const std::vector<int32_t>& prompt, Reply reply, int64_t weight_version) {
  Sample out;
  out.tokens = prompt;
  out.tokens.insert(out.tokens.end(), reply.ids.begin(), reply.ids.end());
  out.mask.assign(out.tokens.size(), 0.0f);
  out.behavior_logp.assign(out.tokens.size(), 0.0f);
  for (size_t t = 0; t < reply.ids.size() && !reply.failed; ++t) {
    out.mask[prompt.size() + t] = 1;
    out.behavior_logp[prompt.size() + t] = reply.logp[t];
  }
  out.completion = {std::move(reply.ids), std::move(reply.text), std::move(reply.finish_reason)};
  out.weight_version = weight_version;
  return out;
}

void score_group(const RewardSpec& reward, Group& group) {
  std::vector<Completion> completions;
  for (const Sample& sample : group.samples) completions.push_back(sample.completion);
  std::vector<Score> scores(completions.size());
  reward.reward->score_group(group.task, completions, scores);
  for (size_t i = 0; i < scores.size(); ++i) {
    group.samples[i].reward = scores[i].score;
    if (scores[i].parts.empty()) scores[i].parts[reward.kind] = scores[i].score;
    group.samples[i].reward_parts = std::move(scores[i].parts);
  }
}

std::vector<Group> Actor::gather(std::span<const Task* const> tasks, uint64_t first_id, int64_t weight_version) {
  std::vector<std::vector<int32_t>> prompts;
  std::vector<Request> requests;
  for (size_t i = 0; i < tasks.size(); ++i) {
    prompts.push_back(encoder_.prompt(*tasks[i]));
    requests.push_back({prompts.back(), config_.num_generations, first_id + i, sampling_});
  }
  std::vector<std::vector<Reply>> replies = engine_.generate(std::move(requests));
  std::vector<Group> groups(tasks.size());
  for (size_t i = 0; i < tasks.size(); ++i) {
    groups[i].task = *tasks[i];
    for (Reply& reply : replies[i]) {
      if (reply.failed && failed_++ == 0) log::warning("rollout: ", tasks[i]->id, ": ", reply.finish_reason);
      groups[i].samples.push_back(to_sample(prompts[i], std::move(reply), weight_version));
    }
  }
  parallel_for(static_cast<int64_t>(groups.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) score_group(config_.reward, groups[static_cast<size_t>(i)]);
  });
  for (const Group& group : groups)  // in order, so that the same task is named whatever the threads do
    for (const Sample& sample : group.samples)
      HONE_CHECK(std::isfinite(sample.reward), "reward: the score of ", group.task.id, " is ", sample.reward);
  return groups;
}

}  // namespace hone
