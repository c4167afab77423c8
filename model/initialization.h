#pragma once
// How the weights of a new model are drawn. Each number is a function of (seed, tensor's name, index), on every device.
#include <string>

#include "core/config/fields.h"
#include "model/model.h"

namespace hone {

// Embeddings keep the standard deviation of the model's config.
struct InitConfig {
  std::string distribution = "normal";  // normal | truncated_normal
  double bound = 3;                     // truncated_normal: largest absolute value in standard deviations
  std::string std = "fixed";            // of matrices: fixed | fan_in | fan_avg
  bool depth_scaled = false;            // matrices that write to the residual stream: std / sqrt(2 layers)
  void fields(Fields& f);
  bool operator==(const InitConfig&) const = default;
};

void initialize(Context& context, Model& model, const InitConfig& config, uint64_t seed);

}  // namespace hone
