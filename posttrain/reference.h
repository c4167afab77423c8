#pragma once
#include <memory>
#include <span>

#include "core/model/score.h"
#include "core/sample.h"

namespace hone {

// A frozen model that fills reference_logp.
class Reference {
 public:
  Reference(Context& context, std::unique_ptr<Model> model, double temperature)
      : context_(context), model_(std::move(model)), temperature_(temperature) {}
  void score_into(std::span<Group> groups);
  // Of the samples that do not have it yet.
  void score_missing(std::span<Sample* const> samples);

 private:
  void score(std::span<Sample* const> samples);

  Context& context_;
  std::unique_ptr<Model> model_;
  double temperature_;
};

}  // namespace hone
