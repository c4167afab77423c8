// Biases of experts and their activation on a GPU, compared with the specification.
#include "kernels/moe/expert_bias.h"

#include "kernels/elementwise/clamped_glu.h"
#include "tests/gpu/gpu_check.h"
#include "tests/kernels/moe/experts.h"

namespace hone::test {
namespace {

constexpr DType dtypes[] = {DType::f32, DType::bf16};

}  // namespace

TEST(ExpertBiasOnGpu, AgreesWithTheSpecification) {
  HONE_GPU_OR_SKIP();
  const int64_t E = 37, k = 3;
  for (const DType dtype : dtypes)
    for (const auto& [T, N, capacity] : {std::array<int64_t, 3>{1, 8, 0}, {300, 100, 0}, {70, 33, 4}, {900, 64, 0}}) {
      if (!chosen()) continue;
      SCOPED_TRACE(concat(T, " tokens, ", N, " columns of ", name_of(dtype)));
      const Ids experts = random_experts(T, k, E, 1);
      const Dispatched sorted(experts, E, capacity);
      const Floats bias = rounded(normals({E, N}, 2), dtype), dy = rounded(normals({T * k, N}, 3), dtype),
                   weights = normals({T, k}, 4);
      Floats y = poisoned({T * k, N}), dbias({E, N}, 1), dweights({T, k}, 2);
      const OnGpu bias_gpu(bias, dtype), dy_gpu(dy, dtype), weights_gpu(weights), offsets(sorted.offsets),
          order(sorted.order), places(sorted.places), experts_gpu(experts);
      OnGpu y_gpu = OnGpu::poisoned({T * k, N}, dtype), dbias_gpu(dbias), dweights_gpu(dweights);
      expert_bias_forward(cpu(), {.y = y, .bias = bias, .offsets = sorted.offsets});
      expert_bias_forward(*gpu(), {.y = y_gpu, .bias = bias_gpu, .offsets = offsets});
      EXPECT_TRUE(close(y_gpu.read(), y, {0, 0}));
      expert_bias_backward(
          cpu(), {.dbias = dbias, .dy = dy, .offsets = sorted.offsets, .weights = weights, .order = sorted.order});
      expert_bias_backward(
          *gpu(), {.dbias = dbias_gpu, .dy = dy_gpu, .offsets = offsets, .weights = weights_gpu, .order = order});
      EXPECT_TRUE(close(dbias_gpu.read(), dbias, {1e-4, 1e-4}));
      expert_bias_weights(cpu(),
                          {.dweights = dweights, .dy = dy, .bias = bias, .experts = experts, .places = sorted.places});
      expert_bias_weights(
          *gpu(), {.dweights = dweights_gpu, .dy = dy_gpu, .bias = bias_gpu, .experts = experts_gpu, .places = places});
      EXPECT_TRUE(close(dweights_gpu.read(), dweights, {1e-4, 1e-4}));
    }
}

TEST(ClampedGluOnGpu, AgreesWithTheSpecification) {
  HONE_GPU_OR_SKIP();
  for (const DType dtype : dtypes)
    for (const ClampedGlu& rule : {ClampedGlu{}, ClampedGlu{.limit = 1.5f, .alpha = 0.9f}})
      for (const auto& [rows, dim] : {std::pair<int64_t, int64_t>{1, 1}, {3, 7}, {30, 64}, {200, 1025}}) {
        if (!chosen()) continue;
        const Floats gate_up = rounded(normals({rows, 2 * dim}, 1, 4), dtype),
                     dy = rounded(normals({rows, dim}, 2), dtype);
        Floats y = poisoned({rows, dim}), dgate_up = poisoned({rows, 2 * dim});
        clamped_glu_forward(cpu(), y, gate_up, rule);
        clamped_glu_backward(cpu(), dgate_up, dy, gate_up, rule);
        const OnGpu gate_up_gpu(gate_up, dtype), dy_gpu(dy, dtype);
        OnGpu y_gpu = OnGpu::poisoned({rows, dim}, dtype), dgate_up_gpu = OnGpu::poisoned({rows, 2 * dim}, dtype);
        clamped_glu_forward(*gpu(), y_gpu, gate_up_gpu, rule);
        clamped_glu_backward(*gpu(), dgate_up_gpu, dy_gpu, gate_up_gpu, rule);
        const Tolerance tolerance = dtype == DType::f32 ? Tolerance{1e-5, 1e-5} : Tolerance{8e-3, 1e-4};
        EXPECT_TRUE(close(y_gpu.read(), y, tolerance)) << rows << " x " << dim;
        EXPECT_TRUE(close(dgate_up_gpu.read(), dgate_up, tolerance)) << rows << " x " << dim;
      }
}

}  // namespace hone::test
