#pragma once
#include <memory>
#include <optional>
#include <span>

#include "data/sample.h"
#include "model/io/adapter.h"
#include "model/token_logprobs.h"
#include "train/stage.h"

namespace hone {

// The model as it was when the stage began; fills reference_logp. It is a copy of the weights. If the stage trains
// adapters it is the stage's own model, without adapters or with those that the stage began with.
class Reference {
 public:
  Reference(const StageContext& stage, double temperature);
  // Any model.
  Reference(Context& context, std::unique_ptr<Model> model, double temperature)
      : context_(context), copy_(std::move(model)), model_(*copy_), temperature_(temperature) {}
  void score_into(std::span<Group> groups);
  // Scores the samples that have no reference_logp yet.
  void score_missing(std::span<Sample* const> samples);

 private:
  void score(std::span<Sample* const> samples);

  Context& context_;
  std::unique_ptr<Model> copy_;
  std::optional<AdapterValues> adapter_;
  Model& model_;
  double temperature_;
};

}  // namespace hone
