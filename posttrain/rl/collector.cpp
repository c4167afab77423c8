#include "posttrain/rl/collector.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "core/base/log.h"
#include "core/io/metrics.h"
#include "posttrain/rl/group_bytes.h"

namespace hone {

void CollectorConfig::fields(Fields& f) {
  f("num_generations", num_generations, "completions sampled for each prompt (the group)");
  f("sampling", sampling, "sampling parameters");
  // Its absence is no error here: sources may have rewards of their own.
  f.table(
      "reward", [&](Fields& g) { reward.fields(g, true); }, "scores the completions");
  f.alias("max_failure_rate", "max_reward_failure_rate");
  f("max_reward_failure_rate", max_failure_rate,
    "share of a step's completions whose reward may fail (plug-in error) before the run stops");
  format.fields(f);
  f.require("num_generations", num_generations > 0 && num_generations <= 65536,
            "num_generations must be in [1, 65536]");
  f.require("max_reward_failure_rate", max_failure_rate >= 0 && max_failure_rate <= 1,
            "max_reward_failure_rate must be in [0, 1]");
}

Collector::Collector(GenerationBackend& sampler, const Tokenizer& tokenizer, const CollectorConfig& config,
                     ControlChannel* ranks)
    : sampler_(sampler),
      config_(config),
      tokenizer_(tokenizer),
      encoder_(config.format, tokenizer),
      reward_runner_(config.reward, config.max_failure_rate),
      ranks_(ranks && ranks->size() > 1 ? ranks : nullptr) {
  config.reward.check();
  for (const auto& [source, format] : config.source_formats)
    source_encoders_.emplace(source, PromptEncoder(format, tokenizer));
}

PromptEncoder& Collector::encoder_of(const Task& task) {
  const auto found = source_encoders_.find(task.source);
  return found == source_encoders_.end() ? encoder_ : found->second;
}

Sample to_training_sample(const GenerationRequest& request, CompletionOutput completion) {
  const std::vector<int32_t>& prompt = request.prompt;
  const std::vector<float>& logp =
      request.sampling.distribution_changes().empty() ? completion.logp : completion.truncated_logp;
  HONE_CHECK(completion.failed || logp.size() == completion.ids.size(), "collector: a completion of ",
             completion.ids.size(), " tokens has ", logp.size(), " log-probs");
  Sample out;
  out.tokens = prompt;
  out.tokens.insert(out.tokens.end(), completion.ids.begin(), completion.ids.end());
  std::vector<float> mask(out.tokens.size(), 0), behavior_logp(out.tokens.size(), 0);
  out.scored = !completion.failed;
  for (size_t t = 0; t < completion.ids.size() && !completion.failed; ++t) {
    if (!completion.forced.empty() && completion.forced[t]) continue;  // not the policy's choice
    mask[prompt.size() + t] = 1;
    behavior_logp[prompt.size() + t] = logp[t];
  }
  out.columns.set(columns::mask, std::move(mask));
  out.columns.set(columns::behavior_logp, std::move(behavior_logp));
  out.completion = {std::move(completion.ids), std::move(completion.text), std::move(completion.finish_reason)};
  if (!completion.versions.empty()) {
    out.weight_version = *std::ranges::min_element(completion.versions);
    out.versions.assign(prompt.size(), completion.versions.front());
    out.versions.insert(out.versions.end(), completion.versions.begin(), completion.versions.end());
  }
  return out;
}

Collector::PendingGroups::~PendingGroups() {
  for (const std::optional<uint64_t>& ticket : tickets_)
    if (ticket) collector_.sampler_.cancel(*ticket);
}

void Collector::PendingGroups::ask(size_t i) {
  tickets_[i] = collector_.sampler_.submit(
      requests_[i],
      [this, i](uint64_t, std::vector<CompletionOutput> completions) { answer(i, std::move(completions)); });
}

void Collector::PendingGroups::answer(size_t i, std::vector<CompletionOutput> completions) {
  tickets_[i].reset();
  const auto too_old = [this](const CompletionOutput& completion) {
    return std::ranges::any_of(completion.versions, [this](int64_t version) { return version < oldest_version_; });
  };
  if (std::ranges::any_of(completions, too_old)) {
    asked_again_ += std::ssize(completions);
    stale_.push_back(i);
    return;
  }
  missing_ -= std::ssize(completions);
  Group& group = groups_[i];
  for (CompletionOutput& completion : completions) {
    if (completion.failed && !std::exchange(collector_.warned_, true))
      log::warning("rollout: ", group.task.id, ": ", completion.finish_reason);
    failed_ += completion.failed;
    group.samples.push_back(to_training_sample(requests_[i], std::move(completion)));
  }
  round_.submit(i);
}

bool Collector::PendingGroups::complete(std::chrono::milliseconds timeout) {
  constexpr int64_t max_retries = 8;  // times that a complete batch is submitted again
  HONE_CHECK(asked_again_ <= max_retries * std::ssize(groups_) * collector_.config_.num_generations,
             "collector: ", asked_again_, " completions came from weights older than version ", oldest_version_);
  for (const size_t i : std::exchange(stale_, {})) ask(i);
  return missing_ == 0 && round_.scored(timeout);
}

std::vector<Group> Collector::PendingGroups::take() {
  HONE_CHECK(missing_ == 0, "collector: ", missing_, " completions of a batch are not finished");
  ScoringOutcome outcome = round_.collect();
  if (collector_.ranks_) exchange(outcome);
  collector_.reward_runner_.check(outcome);
  collector_.failed_ += failed_;
  return std::move(groups_);
}

// What a rank sends: the length of a JSON text as u64, the text {"rewards": its outcome, "failed": completions that
// could not be sampled}, its groups. Every rank, the sender too, takes the groups from these bytes.
void Collector::PendingGroups::exchange(ScoringOutcome& outcome) {
  const size_t rank = collector_.rank(), num_ranks = collector_.num_ranks();
  std::vector<Group> own;
  for (size_t i = rank; i < groups_.size() && !outcome.error_group; i += num_ranks)
    own.push_back(std::move(groups_[i]));
  const std::string header = Json(JsonObject{{"rewards", outcome.to_json()}, {"failed", failed_}}).dump();
  const uint64_t length = header.size();
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof length);
  bytes += header + pack_groups(own);
  const std::vector<std::string> all = collector_.ranks_->all_gather(std::move(bytes), "completions");
  failed_ = 0;
  for (size_t r = 0; r < num_ranks; ++r) {
    uint64_t header_length = 0;
    std::memcpy(&header_length, all[r].data(), sizeof header_length);
    const std::string_view text = std::string_view(all[r]).substr(sizeof header_length);
    const Json from = parse_json(text.substr(0, header_length), "completions of another rank");
    failed_ += from.at("failed", "completions").as_int("failed");
    if (r != rank) outcome.join(ScoringOutcome::from_json(from.at("rewards", "completions")));
    size_t next = r;
    const auto task_of = [&](const std::string& id) -> const Task& {
      HONE_CHECK(next < tasks_.size() && tasks_[next].id == id, "collector: rank ", r, " sent a completion of ", id,
                 ", another task is due: the ranks have different tasks");
      return tasks_[std::exchange(next, next + num_ranks)];
    };
    size_t place = r;
    for (Group& group : unpack_groups(text.substr(header_length), task_of)) {
      groups_[place] = std::move(group);
      place += num_ranks;
    }
  }
}

Metrics Collector::metrics() {
  Metrics own = sampler_.metrics();
  if (!ranks_) return own;
  Metrics out;
  for (const std::string& of : ranks_->all_gather(metrics_json(own).dump(), "metrics of completions"))
    for (const auto& [name, value] : metrics_of(parse_json(of, "metrics of a rank"))) out[name] += value;
  return out;
}

std::unique_ptr<Collector::PendingGroups> Collector::start(std::span<const Task* const> tasks,
                                                           std::span<const uint64_t> ids, int64_t oldest_version) {
  std::unique_ptr<PendingGroups> batch(new PendingGroups(*this, tasks.size()));
  batch->oldest_version_ = oldest_version;
  if (ranks_)
    for (const Task* task : tasks) batch->tasks_.push_back(*task);
  for (size_t i = rank(); i < tasks.size(); i += num_ranks()) batch->missing_ += config_.num_generations;
  for (size_t i = rank(); i < tasks.size(); i += num_ranks()) {
    PromptEncoder& encoder = encoder_of(*tasks[i]);
    std::vector<int32_t> prompt = encoder.prompt(*tasks[i]);
    batch->groups_[i].task = *tasks[i];
    batch->groups_[i].task.rendered = tokenizer_.decode(prompt, false);
    SamplingParams sampling = config_.sampling;
    for (const int32_t id : encoder.stop_ids(*tasks[i])) sampling.stop_ids.push_back(id);
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

void collect_all(Collector& collector, std::span<const Task> tasks, std::span<const uint64_t> ids,
                 const std::string& what, const std::function<void(size_t i, const Group& group)>& take) {
  constexpr size_t at_once = 256;
  HONE_CHECK(ids.empty() || ids.size() == tasks.size(), "collect_all: ", tasks.size(), " tasks have ", ids.size(),
             " ids");
  log::Progress progress(what, static_cast<int64_t>(tasks.size()), "prompt");
  for (size_t begin = 0; begin < tasks.size(); begin += at_once) {
    const size_t end = std::min(begin + at_once, tasks.size());
    std::vector<const Task*> some;
    std::vector<uint64_t> numbers;
    for (size_t i = begin; i < end; ++i) some.push_back(&tasks[i]), numbers.push_back(ids.empty() ? i : ids[i]);
    const std::vector<Group> groups = collector.gather(some, numbers);
    for (size_t i = begin; i < end; ++i) take(i, groups[i - begin]);
    progress.update(static_cast<int64_t>(end));
  }
}

}  // namespace hone
