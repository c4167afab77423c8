#pragma once
// Sparse upcycling (Komatsuzaki et al. 2022): makes a mixture of experts of a dense checkpoint.
#include <filesystem>
#include <optional>

#include "core/device/dtype.h"

namespace hone {

struct UpcycleOptions {
  int64_t num_experts = 0, num_choices = 2;
  std::optional<DType> dtype{};  // of the written weights; none: that of the model's files
  uint64_t seed = 0;           // of the routers' random weights
};

// Writes the model `from` (llama, mistral or qwen3; adapters are merged) to the folder `to` as a mixture of experts:
// mixtral, or qwen3_moe. Every expert is a copy of the MLP and the weights of a token's experts sum to 1, so the first
// forward pass gives the dense model's numbers up to rounding.
void upcycle_model(const std::filesystem::path& from, const std::filesystem::path& to, const UpcycleOptions& options);

}  // namespace hone
