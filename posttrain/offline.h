#pragma once
// Training on groups that lie ready before the stage begins: what SFT (groups of one), preferences (pairs) and labelled
// replies have in common. A part of the groups may be held out: its loss is measured as the stage goes on, and may end
// it.
#include <functional>
#include <string>
#include <vector>

#include "core/config/choice.h"
#include "data/dataset.h"
#include "train/loop.h"
#include "train/objective.h"
#include "train/stage.h"

namespace hone {

class IndexLoader;

class OfflineTraining {
 public:
  OfflineTraining(const char* objective, int64_t batch_size, const char* unit, double learning_rate)
      : unit_(unit), own_objective_(objective), batch_size_(batch_size) {
    objective_ = Choice<ObjectiveSettings>(objective);
    loop_.schedule = linear_decay(learning_rate);
  }
  void fields(Fields& f);

  // The groups of one data set, in order; called for the training rows and, where eval_files are given, for those.
  using Load = std::function<std::vector<Group>(const RowSource& rows)>;
  // What a batch of groups trains on (their samples, if null). Called for every batch, held out or not; its results
  // live until the next call.
  using Prepare = std::function<std::vector<const Sample*>(std::span<Group* const> batch, Objective& objective,
                                                           MetricSums& metrics)>;
  void run(Run& run, const RowSource& rows, const Load& load, const Prepare& prepare = nullptr) const;

  // A step works on whole samples of at most this many tokens, however many they are (0: on batch_size groups).
  int64_t packed_tokens = 0;
  // Noise on the embeddings and whatever else a stage sets by itself.
  TrainerConfig& trainer() { return loop_.trainer; }

  const std::string& objective_name() const { return objective_.kind(); }
  int64_t batch_size() const { return batch_size_; }
  // As far as the number of rows tells it: those that are too long may make it fewer.
  int64_t steps(const RowSource& rows) const;
  std::vector<std::string> warnings() const;
  PlannedStep planned_step(int64_t max_length, int64_t samples_of_group) const;

 private:
  int64_t steps_of_epochs(std::vector<Group>& groups, IndexLoader order) const;

  const char* unit_;
  const char* own_objective_;  // the default: what another one has to learn from is what this one does
  int64_t batch_size_;
  Choice<ObjectiveSettings> objective_;
  bool precompute_ref_log_probs_ = false;
  std::vector<std::string> eval_files_;
  double eval_share_ = 0;
  EarlyStopConfig early_stop_;
  LoopConfig loop_;
};

// Takes share of the groups out, drawn from seed, in their order; at least one is taken and one left.
std::vector<Group> hold_out(std::vector<Group>& groups, double share, uint64_t seed);

}  // namespace hone
