#pragma once
// Training on groups that exist before the stage begins: the common part of SFT (groups of one), preferences (pairs)
// and unpaired preferences. A part of the groups may be held out. Its loss is measured during the stage and may stop
// it.
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/config/choice.h"
#include "data/dataset.h"
#include "train/loop.h"
#include "train/objective.h"
#include "train/shown_sample.h"
#include "train/stage.h"

namespace hone {

class IndexLoader;

class OfflineTraining {
 public:
  OfflineTraining(const char* objective, int64_t batch_size, const char* unit, double learning_rate)
      : unit_(unit), own_objective_(objective), batch_size_(batch_size), objective_(objective) {
    loop_.schedule = linear_decay(learning_rate);
  }
  void fields(Fields& f);

  // Loads the groups of one data set, in order. Called for the training rows, and for eval_files if they are given.
  using Load = std::function<std::vector<Group>(const RowSource& rows)>;
  // The samples that a batch of groups trains on; null: all samples of the groups. Called for every batch, held out or
  // not. Its results live until the next call.
  using Prepare = std::function<std::vector<const Sample*>(std::span<Group* const> batch, Objective& objective,
                                                           MetricSums& metrics)>;
  // packed_tokens: a step trains on as many complete groups as fit into this many tokens; 0: on batch_size groups.
  void run(StageContext& stage, const RowSource& rows, const Load& load, const Prepare& prepare = nullptr,
           int64_t packed_tokens = 0) const;
  // Loads the first row of each file.
  void check(const StageCheck& check, const RowSource& rows, const Load& load) const;

  // Access for stages that add keys of the trainer (noise on the embeddings).
  TrainerConfig& trainer() { return loop_.trainer; }
  const TrainerConfig& trainer() const { return loop_.trainer; }

  const std::string& objective_name() const { return objective_.kind(); }
  int64_t batch_size() const { return batch_size_; }
  // An upper bound from the number of rows, since rows that are too long are skipped later.
  int64_t steps(const RowSource& rows) const;
  std::vector<std::string> warnings() const;
  PlannedStep planned_step(int64_t max_length, int64_t samples_of_group) const;

 private:
  int64_t steps_of_epochs(std::vector<Group>& groups, IndexLoader order, int64_t packed_tokens) const;

  const char* unit_;
  const char* own_objective_;  // default objective; another one must learn from the same data
  int64_t batch_size_;
  Choice<ObjectiveSettings> objective_;
  bool precompute_ref_log_probs_ = false;
  std::vector<std::string> eval_files_;
  double eval_share_ = 0;
  EarlyStopConfig early_stop_;
  LoopConfig loop_;
};

// The samples of groups that were loaded with traces (SampleFormat::traces), each group's first `samples_of_group`.
// part: the name of a group's i-th sample.
std::vector<ShownSample> shown_samples(std::vector<Group> groups, std::vector<SampleTrace> traces,
                                       const SampleFormat& format, int64_t samples_of_group,
                                       const std::function<std::string(const Sample&, size_t i)>& part);

// Takes a random share of the groups out, at least one, and leaves at least one. Both parts keep their order.
std::vector<Group> hold_out(std::vector<Group>& groups, double share, uint64_t seed);

// A stage that trains on rows. Source is the type of its data settings (rows, templates, sample.max_length).
template <class Source>
class OfflineStage : public Stage {
 public:
  // samples_of_group: how many of a group's samples a step trains on.
  OfflineStage(OfflineTraining training, int64_t samples_of_group)
      : training_(std::move(training)), samples_of_group_(samples_of_group) {}
  void fields(Fields& f) override {
    data_.fields(f);
    training_.fields(f);
  }
  std::string default_name() const override { return training_.objective_name(); }
  int64_t steps() const override { return training_.steps(data_.rows); }
  std::vector<std::string> warnings() const override { return training_.warnings(); }
  PlannedStep planned_step(const ModelShape&, const Tokenizer*) const override {
    return training_.planned_step(data_.sample.max_length, samples_of_group_);
  }
  const PromptFormat* prompt_format() const override { return &data_.sample.format; }
  std::vector<ShownSample> show(const ShowRequest& request) const final {
    Source source = data_;
    if (source.rows.limit == 0 || source.rows.limit > request.rows) source.rows.limit = request.rows;
    std::vector<SampleTrace> traces;
    source.sample.traces = &traces;
    std::vector<Group> groups = load(source, request.tokenizer);
    return shown_samples(std::move(groups), std::move(traces), data_.sample, samples_of_group_,
                         [this](const Sample& sample, size_t i) { return part_name(sample, i); });
  }
  void check(const StageCheck& check) const final {
    if (!check.tokenizer)
      return training_.check(check, data_.rows, [](const RowSource& rows) {
        read_rows(rows, [](const Json&, const std::string&) {});
        return std::vector<Group>();
      });
    const size_t before = check.problems.size();
    check.problems.attempt(data_.sample.format.key(), [&] { PromptEncoder(data_.sample.format, *check.tokenizer); });
    if (check.problems.size() > before) return;  // rows would repeat it
    training_.check(check, data_.rows, [&](const RowSource& rows) {
      Source source = data_;
      source.rows = rows;
      source.sample.max_length = max_sample_length;  // later rows may be short enough
      return load(source, *check.tokenizer);
    });
  }
  void run(StageContext& stage) const final {
    const auto load_rows = [&](const RowSource& rows) {
      Source source = data_;
      source.rows = rows;
      return load(source, *stage.tokenizer);
    };
    training_.run(stage, data_.rows, load_rows, prepare(stage), packed_tokens());
  }

 protected:
  virtual std::vector<Group> load(const Source& source, const Tokenizer& tokenizer) const = 0;
  // Null: a batch trains on all samples of its groups.
  virtual OfflineTraining::Prepare prepare(StageContext&) const { return nullptr; }
  virtual int64_t packed_tokens() const { return 0; }
  // What the i-th sample of a group is, if the group has several or they are of several kinds.
  virtual std::string part_name(const Sample&, size_t /*i*/) const { return ""; }

  Source data_;
  OfflineTraining training_;

 private:
  int64_t samples_of_group_;
};

}  // namespace hone
