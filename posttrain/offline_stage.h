#pragma once
// The frame of the stages that train on rows: where these come from (Source: rows, templates, sample.max_length) and
// how they are trained on.
#include <utility>

#include "posttrain/offline.h"

namespace hone {

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
  void run(Run& run) final {
    const auto load_rows = [&](const RowSource& rows) {
      Source source = data_;
      source.rows = rows;
      return load(source, *run.tokenizer);
    };
    training_.run(run, data_.rows, load_rows, prepare(run));
  }

 protected:
  virtual std::vector<Group> load(const Source& source, const Tokenizer& tokenizer) const = 0;
  // Null: a batch trains on its groups' samples.
  virtual OfflineTraining::Prepare prepare(Run&) { return nullptr; }

  Source data_;
  OfflineTraining training_;

 private:
  int64_t samples_of_group_;
};

}  // namespace hone
