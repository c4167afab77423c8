// CPU specification of add_embedding_noise.
#include "kernels/elementwise/noise.h"

#include <algorithm>
#include <cmath>

#include "core/base/parallel_for.h"
#include "core/base/rng.h"
#include "kernels/check_shape.h"

namespace hone {
namespace {

void run(Context&, Tensor x, Tensor offsets, EmbeddingNoise noise) {
  const int64_t rows = x.dim(0), dim = x.dim(1), quads = (dim + 3) / 4, sequences = offsets.size() - 1;
  check_shape(add_embedding_noise, "x", x, {rows, dim});
  check_offsets(add_embedding_noise, offsets, rows);
  const int32_t* bounds = offsets.ptr<int32_t>();
  parallel_for(sequences, 1, [&](int64_t first, int64_t last) {
    for (int64_t s = first; s < last; ++s) {
      const int64_t length = bounds[s + 1] - bounds[s];
      const float scale = noise.alpha / std::sqrt(static_cast<float>(length) * static_cast<float>(dim));
      for (int64_t t = 0; t < length; ++t) {
        float* row = x.row<float>(bounds[s] + t);
        for (int64_t q = 0; q < quads; ++q) {
          const Philox4 words =
              philox(noise.seed, noise.first + static_cast<uint64_t>(s), static_cast<uint64_t>(t * quads + q));
          for (int64_t i = 4 * q; i < std::min(dim, 4 * q + 4); ++i)
            row[i] += (2 * unit_float(words.word[i % 4]) - 1) * scale;
        }
      }
    }
  });
}

[[maybe_unused]] const bool added = add_embedding_noise.add({"specification", DeviceKind::cpu, run});

}  // namespace
}  // namespace hone
