#pragma once
// Noise on the embeddings of a batch in training (NEFTune, Jain et al. 2024).
#include <cstdint>

#include "kernels/op.h"

namespace hone {

struct EmbeddingNoise {
  float alpha = 0;  // 0: no noise
  uint64_t seed = 0;
  uint64_t first = 0;  // index of the batch's first sequence among all sequences of the training
};

// x [T, D] += u * alpha / sqrt(L * D) for the tokens of a sequence of length L; offsets [S + 1] i32. u is uniform in
// [-1, 1), a function of (seed, index of the sequence, position * ceil(D / 4) + column / 4): it depends neither on the
// batch nor on the device.
inline constinit Op<void(Tensor x, Tensor offsets, EmbeddingNoise noise)> add_embedding_noise{"add_embedding_noise"};

}  // namespace hone
