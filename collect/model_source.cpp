// Completions of a model: several small batches of the collector at once, so that the engine has always work, and rows
// are taken as soon as they are scored.
#include <algorithm>
#include <deque>

#include "collect/source.h"
#include "core/base/interrupt.h"

namespace hone {
namespace {

// Rates of failures are judged over the whole collection (collect/collection.h).
CollectorConfig without_limits(CollectorConfig config, int64_t max_positions) {
  config.max_failure_rate = 1;
  config.environment.max_failure_rate = 1;
  config.max_positions = max_positions;
  return config;
}

class ModelSource : public CollectSource {
 public:
  ModelSource(GenerationBackend& backend, const Tokenizer& tokenizer, const CollectConfig& config,
              int64_t max_positions)
      : has_scores_(config.has_scores()),
        config_(without_limits(config.actor, max_positions)),
        collector_(backend, tokenizer, config_) {
    const int64_t n = config_.num_generations;
    const auto num_engines = std::max<int64_t>(1, std::ssize(config.rollout.pool.workers));
    // A reward on the device scores a batch at once; others score each row as soon as it is sampled.
    const bool on_host = !config_.reward.reward || config_.reward.reward->on_host();
    rows_per_batch_ = static_cast<size_t>(on_host ? 1 : std::max<int64_t>(1, 64 / n));
    // Twice what runs at once: ended completions are replaced without a pause.
    const int64_t rows = 2 * num_engines * config.rollout.max_sequences / n + 1;
    max_batches_ = static_cast<size_t>(rows) / rows_per_batch_ + 1;
  }

  void collect(std::span<const RowToCollect> rows, const TakeRow& take) override {
    constexpr std::chrono::milliseconds wait(20);
    std::deque<Batch> batches;
    while (!interrupted() && (!rows.empty() || !batches.empty())) {
      while (!rows.empty() && batches.size() < max_batches_) {
        const size_t count = std::min(rows_per_batch_, rows.size());
        batches.push_back(start(rows.first(count)));
        rows = rows.subspan(count);
      }
      const bool sampling = collector_.step();
      if (!sampling) batches.front().groups->complete(wait);
      for (auto batch = batches.begin(); batch != batches.end();) {
        if (!batch->groups->complete()) {
          ++batch;
          continue;
        }
        take_batch(*batch, take);
        batch = batches.erase(batch);
      }
    }
  }

 private:
  struct Batch {
    std::span<const RowToCollect> rows;
    std::unique_ptr<Collector::PendingGroups> groups;
  };

  Batch start(std::span<const RowToCollect> rows) {
    std::vector<const Task*> tasks;
    std::vector<uint64_t> ids;
    for (const RowToCollect& row : rows) {
      tasks.push_back(row.task);
      ids.push_back(static_cast<uint64_t>(row.index));
    }
    return {.rows = rows, .groups = collector_.start(tasks, ids)};
  }

  void take_batch(Batch& batch, const TakeRow& take) {
    const std::vector<std::vector<Message>> prompts = batch.groups->episode_prompts();
    const std::vector<Group> groups = batch.groups->take();
    for (size_t i = 0; i < groups.size(); ++i) {
      const bool episode = i < prompts.size() && !prompts[i].empty();
      CollectedRow row = start_row(batch.rows[i].index, *batch.rows[i].task,
                                   episode ? prompts[i] : prompt_messages(*batch.rows[i].task, config_.format));
      for (const Sample& sample : groups[i].samples)
        row.completions.push_back(collected_completion(sample, has_scores_));
      take(std::move(row));
    }
  }

  const bool has_scores_;
  CollectorConfig config_;
  Collector collector_;
  size_t rows_per_batch_ = 1, max_batches_ = 1;
};

}  // namespace

std::unique_ptr<CollectSource> model_source(GenerationBackend& backend, const Tokenizer& tokenizer,
                                            const CollectConfig& config, int64_t max_positions) {
  return std::make_unique<ModelSource>(backend, tokenizer, config, max_positions);
}

}  // namespace hone
