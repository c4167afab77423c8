#pragma once
#include <cstdint>

#include "kernels/op.h"

namespace hone {

// Noise on the embeddings of a batch in training (NEFTune, Jain et al. 2024). alpha 0: none.
struct EmbeddingNoise {
  float alpha = 0;
  uint64_t seed = 0;
  uint64_t first =
      0;  // number of the batch's first sequence among all that are trained on: with the seed it decides every draw
};

// x [T, D] += u alpha / sqrt(L D) for the tokens of a sequence of length L; offsets [S+1] i32. u is uniform in [-1, 1),
// a function of (seed, the sequence's number, position * ceil(D / 4) + column / 4), so that it depends neither on the
// batch nor on the device.
inline constinit Op<void(Tensor x, Tensor offsets, EmbeddingNoise noise)> add_embedding_noise{"add_embedding_noise"};

}  // namespace hone
