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

 private:
  Context& context_;
  std::unique_ptr<Model> model_;
  double temperature_;
};

}  // namespace hone
