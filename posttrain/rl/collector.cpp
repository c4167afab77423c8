#include "posttrain/rl/collector.h"

#include <algorithm>
#include <numeric>

#include "core/base/log.h"

namespace hone {

void CollectorConfig::fields(Fields& f) {
  f("num_generations", num_generations, "replies of a prompt, judged against each other");
  f("sampling", sampling, "how replies are drawn");
  f("reward", reward, "judges the replies");
  f.alias("max_failure_rate", "max_reward_failure_rate");
  f("max_reward_failure_rate", max_failure_rate,
    "share of a step's replies that a reward may fail to judge (its plug-in broke) before the run stops");
  format.fields(f);
  f.require("num_generations", num_generations > 0 && num_generations <= 65536,
            "num_generations must be in [1, 65536]");
  f.require("max_reward_failure_rate", max_failure_rate >= 0 && max_failure_rate <= 1,
            "max_reward_failure_rate must be in [0, 1]");
}

Collector::Collector(GenerationBackend& sampler, const Tokenizer& tokenizer, const CollectorConfig& config)
    : sampler_(sampler),
      config_(config),
      tokenizer_(tokenizer),
      encoder_(config.format, tokenizer),
      judge_(config.reward, config.max_failure_rate) {
  config.reward.check();
}

Sample to_training_sample(const GenerationRequest& request, CompletionOutput reply) {
  const std::vector<int32_t>& prompt = request.prompt;
  const std::vector<float>& logp = request.sampling.distribution_changes().empty() ? reply.logp : reply.truncated_logp;
  HONE_CHECK(reply.failed || logp.size() == reply.ids.size(), "actor: a reply of ", reply.ids.size(), " tokens has ",
             logp.size(), " log-probs");
  Sample out;
  out.tokens = prompt;
  out.tokens.insert(out.tokens.end(), reply.ids.begin(), reply.ids.end());
  std::vector<float> mask(out.tokens.size(), 0), behavior_logp(out.tokens.size(), 0);
  out.scored = !reply.failed;
  for (size_t t = 0; t < reply.ids.size() && !reply.failed; ++t) {
    if (!reply.forced.empty() && reply.forced[t]) continue;  // not the policy's choice
    mask[prompt.size() + t] = 1;
    behavior_logp[prompt.size() + t] = logp[t];
  }
  out.columns.set(columns::mask, std::move(mask));
  out.columns.set(columns::behavior_logp, std::move(behavior_logp));
  out.completion = {std::move(reply.ids), std::move(reply.text), std::move(reply.finish_reason)};
  if (!reply.versions.empty()) {
    out.weight_version = *std::ranges::min_element(reply.versions);
    out.versions.assign(prompt.size(), reply.versions.front());
    out.versions.insert(out.versions.end(), reply.versions.begin(), reply.versions.end());
  }
  return out;
}

Collector::PendingGroups::~PendingGroups() {
  for (const std::optional<uint64_t>& ticket : tickets_)
    if (ticket) actor_.sampler_.cancel(*ticket);
}

void Collector::PendingGroups::ask(size_t i) {
  tickets_[i] = actor_.sampler_.submit(
      requests_[i], [this, i](uint64_t, std::vector<CompletionOutput> replies) { answer(i, std::move(replies)); });
}

void Collector::PendingGroups::answer(size_t i, std::vector<CompletionOutput> replies) {
  tickets_[i].reset();
  const auto too_old = [this](const CompletionOutput& reply) {
    return std::ranges::any_of(reply.versions, [this](int64_t version) { return version < oldest_version_; });
  };
  if (std::ranges::any_of(replies, too_old)) {
    asked_again_ += std::ssize(replies);
    stale_.push_back(i);
    return;
  }
  missing_ -= std::ssize(replies);
  Group& group = groups_[i];
  for (CompletionOutput& reply : replies) {
    if (reply.failed && actor_.failed_++ == 0) log::warning("rollout: ", group.task.id, ": ", reply.finish_reason);
    group.samples.push_back(to_training_sample(requests_[i], std::move(reply)));
  }
  round_.submit(i);
}

bool Collector::PendingGroups::whole(std::chrono::milliseconds patience) {
  constexpr int64_t most = 8;  // times that all of a batch is asked again
  HONE_CHECK(asked_again_ <= most * std::ssize(groups_) * actor_.config_.num_generations, "actor: ", asked_again_,
             " replies came from weights older than version ", oldest_version_);
  for (const size_t i : std::exchange(stale_, {})) ask(i);
  return missing_ == 0 && round_.scored(patience);
}

std::vector<Group> Collector::PendingGroups::take() {
  HONE_CHECK(missing_ == 0, "actor: ", missing_, " replies of a batch are not there yet");
  round_.finish();
  return std::move(groups_);
}

std::unique_ptr<Collector::PendingGroups> Collector::start(std::span<const Task* const> tasks,
                                                           std::span<const uint64_t> ids, int64_t oldest_version) {
  std::unique_ptr<PendingGroups> batch(new PendingGroups(*this, tasks.size()));
  batch->oldest_version_ = oldest_version;
  batch->missing_ = std::ssize(tasks) * config_.num_generations;
  for (size_t i = 0; i < tasks.size(); ++i) {
    std::vector<int32_t> prompt = encoder_.prompt(*tasks[i]);
    batch->groups_[i].task = *tasks[i];
    batch->groups_[i].task.rendered = tokenizer_.decode(prompt, false);
    SamplingParams sampling = config_.sampling;
    for (const int32_t id : encoder_.stop_ids(*tasks[i])) sampling.stop_ids.push_back(id);
    batch->requests_[i] = {std::move(prompt), config_.num_generations, ids[i], std::move(sampling)};
    batch->ask(i);
  }
  return batch;
}

std::vector<Group> Collector::gather(std::span<const Task* const> tasks, uint64_t first_id) {
  std::vector<uint64_t> ids(tasks.size());
  std::iota(ids.begin(), ids.end(), first_id);
  return gather(tasks, ids);
}

std::vector<Group> Collector::gather(std::span<const Task* const> tasks, std::span<const uint64_t> ids) {
  const std::unique_ptr<PendingGroups> batch = start(tasks, ids);
  while (step()) {}
  return batch->take();
}

void collect_all(Collector& actor, std::span<const Task> tasks, std::span<const uint64_t> ids, const std::string& what,
                 const std::function<void(size_t i, const Group& group)>& take) {
  constexpr size_t at_once = 256;
  HONE_CHECK(ids.empty() || ids.size() == tasks.size(), "collect_all: ", tasks.size(), " tasks have ", ids.size(),
             " ids");
  log::Progress progress(what, static_cast<int64_t>(tasks.size()), "prompt");
  for (size_t begin = 0; begin < tasks.size(); begin += at_once) {
    const size_t end = std::min(begin + at_once, tasks.size());
    std::vector<const Task*> some;
    std::vector<uint64_t> numbers;
    for (size_t i = begin; i < end; ++i) some.push_back(&tasks[i]), numbers.push_back(ids.empty() ? i : ids[i]);
    const std::vector<Group> groups = actor.gather(some, numbers);
    for (size_t i = begin; i < end; ++i) take(i, groups[i - begin]);
    progress.update(static_cast<int64_t>(end));
  }
}

}  // namespace hone
