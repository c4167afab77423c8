#pragma once
// Settings of the optimizer "adamw", which Muon uses for the parameters that are no matrices.
#include "train/optim/optimizer.h"

namespace hone {

struct AdamwSettings : OptimizerSettings {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
  std::string moments = "f32";
  void fields(Fields& f) override;
  std::unique_ptr<Optimizer> make() const override;
};

// The keys adam_beta1, adam_beta2 and adam_epsilon, and `moments`, with their checks.
void adam_fields(Fields& f, AdamwSettings& settings);
void moments_field(Fields& f, std::string& moments, const char* of);

}  // namespace hone
