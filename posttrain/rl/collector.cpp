#include "posttrain/rl/collector.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/base/log.h"
#include "core/base/rank_thread.h"
#include "core/base/rng.h"
#include "core/base/stopwatch.h"
#include "core/io/metrics.h"

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
  f("environment", environment, "what the policy acts in for several turns; without it a completion is one turn");
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
      encoder_(config.format, tokenizer, config.environment.tool_parser),
      reward_runner_(config.reward, config.max_failure_rate),
      ranks_(ranks && ranks->size() > 1 ? ranks : nullptr) {
  config.reward.check();
  for (const auto& [source, format] : config.source_formats)
    source_encoders_.emplace(source, TrajectoryEncoder(format, tokenizer, config.environment.tool_parser));
  if (!config.environment) return;
  encoder_.check();
  for (auto& [source, encoder] : source_encoders_) encoder.check();
  environments_.emplace(config.environment);
}

TrajectoryEncoder& Collector::encoder_of(const Task& task) {
  const auto found = source_encoders_.find(task.source);
  return found == source_encoders_.end() ? encoder_ : found->second;
}

uint64_t episode_seed(const SamplingParams& sampling, uint64_t request_id) {
  return philox(static_cast<uint64_t>(sampling.seed), stream_of("environment"), request_id).word[0] >> 1;
}

// A sampler's stream is id * 65536, so that only the lower 48 bits of an id count.
uint64_t turn_request_id(uint64_t request_id, size_t member, int64_t turn) {
  const Philox4 out = philox(request_id, stream_of("turn") + member, static_cast<uint64_t>(turn));
  return (uint64_t{out.word[1] >> 16} << 32) | out.word[0];
}

void Collector::show_fault(const Task& task, const std::string& error) {
  constexpr size_t most = 16;
  if (shown_.size() < most && shown_.insert(error).second)
    log::warning("environment: ", task.id, ": ", error,
                 " (its trajectory has failed, counted in env/failed; the same message is not repeated)");
}

bool Collector::step() {
  constexpr std::chrono::milliseconds wait(5);
  if (!environments_) return sampler_.step();
  environments_->poll(std::chrono::milliseconds(0));
  const bool sampling = sampler_.step();
  if (!sampling && environments_->busy()) {
    note_progress();
    const Stopwatch watch;
    environments_->poll(wait);
    waited_seconds_ += watch.seconds();
    return true;
  }
  return sampling;
}

Metrics Collector::metrics() {
  Metrics own = sampler_.metrics();
  if (environments_) {
    own["time/environment"] = environments_->take_seconds();
    own["time/wait_environment"] = std::exchange(waited_seconds_, 0);
  }
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
  const auto num_members = static_cast<size_t>(config_.num_generations);
  for (size_t i = rank(); i < tasks.size(); i += num_ranks()) {
    batch->missing_ += config_.num_generations;
    batch->unfinished_[i] = num_members;
    batch->groups_[i].task = *tasks[i];
    batch->groups_[i].samples.resize(num_members);
    batch->requests_[i].id = ids[i];
  }
  if (environments_) batch->episode_prompts_.resize(tasks.size());
  for (size_t i = rank(); i < tasks.size(); i += num_ranks()) {
    if (!environments_) {
      batch->ask(i);
      continue;
    }
    batch->members_[i].resize(num_members);
    for (size_t m = 0; m < num_members; ++m) batch->play(i, m);
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
