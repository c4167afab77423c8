// Ops of multi-token prediction on a GPU, compared with the specification.
#include "kernels/lm_head/multi_token.h"

#include "tests/gpu/gpu_check.h"

namespace hone::test {
namespace {

std::vector<int32_t> list(const Ids& ids) {
  std::vector<int32_t> out;
  for (int64_t i = 0; i < ids.size(); ++i) out.push_back(ids[i]);
  return out;
}

}  // namespace

TEST(MultiTokenOnGpu, AgreesWithTheSpecification) {
  HONE_GPU_OR_SKIP();
  for (const auto& [length, T, R] : {std::array<int64_t, 3>{1, 5, 3}, {7, 700, 300}, {40, 33, 0}, {300, 1000, 999}})
    for (const int64_t distance : {1, 2, 50}) {
      if (!chosen()) continue;
      SCOPED_TRACE(concat(T, " tokens in sequences of ", length, ", distance ", distance));
      Ids positions({T}), rows({R});
      for (int64_t t = 0; t < T; ++t) positions[t] = static_cast<int32_t>(t % length);
      for (int64_t r = 0; r < R; ++r) rows[r] = static_cast<int32_t>(T - 1 - r);
      const Ids tokens = random_ids(T, 50, 1);
      const Floats weights = normals({T}, 2);
      Ids next({T}), from({R}), targets({R});
      Floats next_weights = poisoned({T}), target_weights = poisoned({R}), dlogp = poisoned({R});
      multi_token_shift(cpu(), {.next = next,
                                .next_weights = next_weights,
                                .from = from,
                                .targets = targets,
                                .target_weights = target_weights,
                                .dlogp = dlogp,
                                .tokens = tokens,
                                .positions = positions,
                                .weights = weights,
                                .rows = rows,
                                .distance = distance,
                                .factor = 0.3f});
      const OnGpu tokens_gpu(tokens), positions_gpu(positions), weights_gpu(weights), rows_gpu(rows);
      OnGpu next_gpu(Ids({T}, 7)), from_gpu(Ids({R}, 7)), targets_gpu(Ids({R}, 7));
      OnGpu next_weights_gpu = OnGpu::poisoned({T}, DType::f32), target_weights_gpu = OnGpu::poisoned({R}, DType::f32),
            dlogp_gpu = OnGpu::poisoned({R}, DType::f32);
      multi_token_shift(*gpu(), {.next = next_gpu,
                                 .next_weights = next_weights_gpu,
                                 .from = from_gpu,
                                 .targets = targets_gpu,
                                 .target_weights = target_weights_gpu,
                                 .dlogp = dlogp_gpu,
                                 .tokens = tokens_gpu,
                                 .positions = positions_gpu,
                                 .weights = weights_gpu,
                                 .rows = rows_gpu,
                                 .distance = distance,
                                 .factor = 0.3f});
      EXPECT_EQ(list(next_gpu.read_ids()), list(next));
      EXPECT_EQ(list(from_gpu.read_ids()), list(from));
      EXPECT_EQ(list(targets_gpu.read_ids()), list(targets));
      EXPECT_TRUE(close(next_weights_gpu.read(), next_weights, {0, 0}));
      EXPECT_TRUE(close(target_weights_gpu.read(), target_weights, {0, 0}));
      EXPECT_TRUE(close(dlogp_gpu.read(), dlogp, {0, 0}));
    }
}

TEST(MultiTokenOnGpu, SumsAgreeWithTheSpecification) {
  HONE_GPU_OR_SKIP();
  for (const int64_t R : {1, 255, 256, 5000}) {
    const Floats logp = normals({R}, 1), hit = normals({R}, 2), weights = normals({R}, 3);
    Floats sums = normals({3}, 4);
    OnGpu sums_gpu(sums);
    multi_token_sums(cpu(), {.sums = sums, .logp = logp, .hit = hit, .weights = weights});
    multi_token_sums(*gpu(), {.sums = sums_gpu, .logp = OnGpu(logp), .hit = OnGpu(hit), .weights = OnGpu(weights)});
    EXPECT_TRUE(close(sums_gpu.read(), sums, {1e-5, 1e-4})) << R;
  }
}

}  // namespace hone::test
