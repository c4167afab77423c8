#pragma once
// Training on groups that exist before the stage begins: the common part of SFT (groups of one), preferences (pairs)
// and unpaired preferences. A part of the groups may be held out. Its loss is measured during the stage and may stop
// it.
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/config/choice.h"
#include "data/sources.h"
#include "posttrain/reference.h"
#include "posttrain/source_groups.h"
#include "train/loop.h"
#include "train/objective.h"
#include "train/shown_sample.h"
#include "train/stage.h"

namespace hone {

class OfflineTraining {
 public:
  OfflineTraining(const char* objective, int64_t batch_size, const char* unit, double learning_rate)
      : unit_(unit), own_objective_(objective), batch_size_(batch_size), objective_(objective) {
    loop_.schedule = linear_decay(learning_rate);
  }
  void fields(Fields& f);

  // The samples that a batch of groups trains on; null: all samples of the groups. Called for every batch, held out or
  // not. Its results live until the next call.
  using Prepare = std::function<std::vector<const Sample*>(std::span<Group* const> batch, Objective& objective,
                                                           MetricSums& metrics)>;
  // load_held loads the rows of eval_files. packed_tokens: a step trains on as many complete groups as fit into this
  // many tokens; 0: on batch_size groups.
  void run(StageContext& stage, std::span<const GroupSource> sources, const LoadGroups& load_held,
           const Prepare& prepare = nullptr, int64_t packed_tokens = 0) const;
  // Loads the first row of each file of a source, and reads the others.
  static void check_rows(const Problems& problems, const GroupSource& source);
  // The same of eval_files.
  void check_held(const Problems& problems, const LoadGroups& load_held) const;
  void check_reference(const StageCheck& check) const { sync_.check(check); }

  // Access for stages that add keys of the trainer (noise on the embeddings).
  TrainerConfig& trainer() { return loop_.trainer; }
  const TrainerConfig& trainer() const { return loop_.trainer; }

  const std::string& objective_name() const { return objective_.kind(); }
  int64_t batch_size() const { return batch_size_; }
  // An upper bound from the number of rows, since rows that are too long are skipped later.
  int64_t steps(std::span<const RowSource> rows) const;
  std::vector<std::string> warnings() const;
  PlannedStep planned_step(int64_t max_length, int64_t samples_of_group) const;

 private:
  int64_t steps_of_epochs(std::vector<Group>& groups, Mixture order, int64_t packed_tokens) const;

  const char* unit_;
  const char* own_objective_;  // default objective; another one must learn from the same data
  int64_t batch_size_;
  Choice<ObjectiveSettings> objective_;
  bool precompute_ref_log_probs_ = false;
  ReferenceSync sync_;
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

// A stage that trains on rows. Source is the type of its data settings (rows, templates, sample.max_length), of the
// stage's own keys and of each [[stage.source]].
template <class Source>
class OfflineStage : public Stage {
 public:
  // samples_of_group: how many of a group's samples a step trains on.
  OfflineStage(OfflineTraining training, int64_t samples_of_group)
      : training_(std::move(training)), samples_of_group_(samples_of_group) {}
  void fields(Fields& f) override {
    data_fields(f);
    training_.fields(f);
  }
  std::string default_name() const override { return training_.objective_name(); }
  int64_t steps() const override {
    std::vector<RowSource> rows;
    for (const DataSource<Source>& source : sources_.all(data_)) rows.push_back(source.settings.rows);
    return training_.steps(rows);
  }
  std::vector<std::string> warnings() const override { return training_.warnings(); }
  PlannedStep planned_step(const ModelShape&, const Tokenizer*) const override {
    return training_.planned_step(data_.sample.max_length, samples_of_group_);
  }
  const PromptFormat* prompt_format() const override {
    return &(sources_.empty() ? data_ : sources_.first()).sample.format;
  }
  std::vector<ShownSample> show(const ShowRequest& request) const final {
    std::vector<ShownSample> out;
    std::vector<DataSource<Source>> sources = sources_.all(data_);
    for (DataSource<Source>& source : sources) {
      RowSource& rows = source.settings.rows;
      if (rows.limit == 0 || rows.limit > request.rows) rows.limit = request.rows;
      std::vector<SampleTrace> traces;
      source.settings.sample.traces = &traces;
      std::vector<Group> groups = load(source.settings, request.tokenizer);
      for (ShownSample& shown : shown_samples(std::move(groups), std::move(traces), data_.sample, samples_of_group_,
                                              [this](const Sample&one, size_t i) { return part_name(one, i); })) {
        if (!source.name.empty()) shown.where = concat(source.name, ":", shown.where);
        out.push_back(std::move(shown));
      }
    }
    return out;
  }
  void check(const StageCheck& check) const final {
    training_.check_reference(check);
    bool chat_is_right = true;
    for (const DataSource<Source>& source : sources_.all(data_)) {
      const Problems problems =
          check.problems.below(source.key, source.name.empty() ? "" : concat("source ", source.name, ": "));
      const size_t before = problems.size();
      if (check.tokenizer)
        problems.attempt(source.settings.sample.format.key(),
                         [&] { PromptEncoder(source.settings.sample.format, *check.tokenizer); });
      const bool right = problems.size() == before;  // otherwise rows would repeat it
      if (right) training_.check_rows(problems, group_source(source, check.tokenizer, max_sample_length));
      chat_is_right = chat_is_right && right;
    }
    if (chat_is_right)
      training_.check_held(check.problems, group_source({.settings = data_}, check.tokenizer, max_sample_length).load);
  }
  void run(StageContext& stage) const final {
    std::vector<GroupSource> sources;
    const auto with_rows = [&](const DataSource<Source>& source) {
      return group_source(source, &*stage.tokenizer, data_.sample.max_length);
    };
    for (const DataSource<Source>& source : sources_.all(data_)) sources.push_back(with_rows(source));
    training_.run(stage, sources, with_rows({.settings = data_}).load, prepare(stage), packed_tokens());
  }

 protected:
  virtual std::vector<Group> load(const Source& source, const Tokenizer& tokenizer) const = 0;
  // Null: a batch trains on all samples of its groups.
  virtual OfflineTraining::Prepare prepare(StageContext&) const { return nullptr; }
  virtual int64_t packed_tokens() const { return 0; }
  // The keys of a source.
  virtual void source_fields(Fields& f, Source& source) { source.source_fields(f); }
  // The stage's keys of data.
  void data_fields(Fields& f) {
    source_fields(f, data_);
    data_.sample.length_fields(f);
    sources_.fields(f, data_, [this](Fields& g, Source& source) { source_fields(g, source); });
  }
  // What the i-th sample of a group is, if the group has several or they are of several kinds.
  virtual std::string part_name(const Sample&, size_t /*i*/) const { return ""; }

  Source data_;
  Sources<Source> sources_;
  OfflineTraining training_;

 private:
  // Without a tokenizer, load() only reads the rows. Lengths are the stage's own; a check loads rows of any length,
  // since later rows may be short enough.
  GroupSource group_source(const DataSource<Source>& source, const Tokenizer* tokenizer, int64_t max_length) const {
    Source settings = source.settings;
    settings.sample.max_length = max_length;
    settings.sample.too_long = data_.sample.too_long;
    const auto load_rows = [this, settings, tokenizer](const RowSource& rows) {
      if (!tokenizer) {
        read_rows(rows, [](const Json&, const std::string&) {});
        return std::vector<Group>();
      }
      Source some = settings;
      some.rows = rows;
      return load(some, *tokenizer);
    };
    return {.name = source.name, .weight = source.weight, .rows = settings.rows, .load = load_rows};
  }

  int64_t samples_of_group_;
};

}  // namespace hone
