// Ops that are declared to add to a gradient once per element do so on this GPU: a step of several micro-batches adds
// straight into its sum then (kernels/adds_once.h).
#include "kernels/attention/attention.h"
#include "kernels/attention/latent/head_gemm.h"
#include "kernels/elementwise/embedding.h"
#include "kernels/gemm/gemm.h"
#include "kernels/moe/expert_bias.h"
#include "kernels/moe/grouped_gemm.h"
#include "kernels/norm/layernorm.h"
#include "kernels/norm/rmsnorm.h"
#include "kernels/rope/qkv.h"
#include "tests/gpu/gpu_check.h"
#include "tests/kernels/adds_once_check.h"
#include "tests/kernels/moe/experts.h"

namespace hone::test {
namespace {

// Runs `body` on copies of the gradients on the GPU.
void check(std::vector<Floats> shapes, const std::function<void(std::vector<OnGpu>&)>& body) {
  expect_adds_once(std::move(shapes), [&](std::vector<Floats>& grads) {
    std::vector<OnGpu> there;
    there.reserve(grads.size());
    for (const Floats& grad : grads) there.emplace_back(grad);
    body(there);
    for (size_t i = 0; i < grads.size(); ++i) grads[i] = there[i].read();
  });
}

// A product that writes a gradient has the bits of one that adds: what it writes, added to A, is what it makes of A.
void check_written(std::initializer_list<int64_t> shape, const std::function<void(GradTarget)>& body) {
  const Floats before = normals(shape, 9);
  OnGpu written = OnGpu::poisoned(shape), sum(before);
  body({written, false});
  body(sum);
  const Floats alone = written.read(), added = sum.read();
  int64_t differing = 0;
  for (int64_t i = 0; i < added.size(); ++i) differing += !same_bits(added[i], before[i] + alone[i]);
  EXPECT_EQ(differing, 0) << "of " << added.size() << " elements";
}

void check_product(DType dtype, int64_t M, int64_t N, int64_t K) {
  if (!chosen()) return;
  SCOPED_TRACE(concat(M, " x ", N, " x ", K, " of ", name_of(dtype)));
  const OnGpu x(rounded(normals({M, K}, 1), dtype), dtype), dy(rounded(normals({M, N}, 2), dtype), dtype);
  check({Floats({N, K}), Floats({N})}, [&](auto& grads) { gemm_backward_weight(*gpu(), grads[0], grads[1], dy, x); });
  check_written({N, K}, [&](GradTarget dw) { gemm_backward_weight(*gpu(), dw, {}, dy, x); });
}

// Shapes of training: few and many rows, narrow and wide; split-K is chosen for few outputs and many rows.
void check_products() {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const auto& [M, N, K] : {std::array<int64_t, 3>{8192, 896, 896},
                                  {8192, 128, 896},
                                  {4099, 1152, 896},
                                  {2048, 4864, 896},
                                  {333, 64, 8},
                                  {8192, 16, 896}})
      check_product(dtype, M, N, K);
  // The layers of qwen2.5-0.5b and 1.5b and of llama3-8b at 8,192 and 16,384 tokens.
  for (const auto& [M, N, K] : {std::array<int64_t, 3>{16384, 1152, 896},
                                {16384, 896, 4864},
                                {8192, 9728, 896},
                                {16384, 2048, 1536},
                                {8192, 1536, 8960},
                                {8192, 6144, 4096}})
    check_product(DType::bf16, M, N, K);
}

void check_grouped_product() {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const auto& [tokens, N, K] : {std::array<int64_t, 3>{3, 24, 40}, {2000, 200, 136}, {500, 33, 7}}) {
      const int64_t E = 5, k = 2, rows = tokens * k;
      const Dispatched sorted(random_experts(tokens, k, E, 1), E);
      const OnGpu x(rounded(normals({rows, K}, 1), dtype), dtype), dy(rounded(normals({rows, N}, 2), dtype), dtype),
          offsets(sorted.offsets);
      check({Floats({E, N, K})}, [&](auto& grads) {
        grouped_gemm_backward_weight(*gpu(), {.dw = grads[0], .dy = dy, .x = x, .offsets = offsets});
      });
      check_written({E, N, K}, [&](GradTarget dw) {
        grouped_gemm_backward_weight(*gpu(), {.dw = dw, .dy = dy, .x = x, .offsets = offsets});
      });
    }
}

void check_expert_bias() {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int64_t tokens : {3, 2000}) {
      const int64_t E = 5, k = 2, rows = tokens * k, N = 72;
      const Dispatched sorted(random_experts(tokens, k, E, 1), E);
      const OnGpu dy(rounded(normals({rows, N}, 1), dtype), dtype), weights(normals({tokens, k}, 2)),
          offsets(sorted.offsets), order(sorted.order);
      check({Floats({E, N})}, [&](auto& grads) {
        expert_bias_backward(*gpu(),
                             {.dbias = grads[0], .dy = dy, .offsets = offsets, .weights = weights, .order = order});
      });
    }
}

// The gradient of attention sinks. Any numbers will do for out and lse.
void check_attention() {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int64_t dim : {64, 72}) {
      const int64_t T = 1500, H = 8, Hk = 2;
      Ids offsets({3});
      offsets[1] = 900;
      offsets[2] = static_cast<int32_t>(T);
      const auto numbers = [&](int64_t heads, uint64_t seed) {
        return OnGpu(rounded(normals({T, heads, dim}, seed), dtype), dtype);
      };
      const OnGpu q = numbers(H, 1), k = numbers(Hk, 2), v = numbers(Hk, 3), out = numbers(H, 4), dout = numbers(H, 5),
                  lse(normals({T, H}, 6)), sinks(normals({H}, 7)), at(offsets);
      check({Floats({H})}, [&](auto& grads) {
        const OnGpu dq = OnGpu::poisoned({T, H, dim}, dtype), dk = OnGpu::poisoned({T, Hk, dim}, dtype),
                    dv = OnGpu::poisoned({T, Hk, dim}, dtype);
        attention_backward(*gpu(), {.dq = dq,
                                    .dk = dk,
                                    .dv = dv,
                                    .dout = dout,
                                    .out = out,
                                    .lse = lse,
                                    .q = q,
                                    .k = k,
                                    .v = v,
                                    .offsets = at,
                                    .shape = {.scale = 0.1f, .window = 100, .max_length = 900},
                                    .sinks = sinks,
                                    .dsinks = grads[0]});
      });
    }
}

void check_head_product() {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int64_t tokens : {3, 700}) {
      const int64_t H = 3, N = 40, K = 136;
      const OnGpu a(normals({tokens, H, N + 8}, 1), dtype), b(normals({tokens, H, K}, 2), dtype);
      check({Floats({H, N, K})}, [&](auto& grads) { head_gemm_weight(*gpu(), {.dw = grads[0], .a = a, .b = b}); });
    }
}

void check_rmsnorm() {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int64_t rows : {3, 4096}) {
      const int64_t dim = 896;
      const OnGpu dy(normals({rows, dim}, 1), dtype), x(normals({rows, dim}, 2), dtype), w(normals({dim}, 3), dtype),
          rstd(Floats({rows}, 0.7f));
      check({Floats({dim})}, [&](auto& grads) {
        const OnGpu dx = OnGpu::poisoned({rows, dim}, dtype);
        rmsnorm_backward(*gpu(), {.dx = dx, .dw = grads[0], .dy = dy, .x = x, .rstd = rstd, .w = w});
      });
    }
}

void check_layernorm() {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int64_t rows : {3, 4096}) {
      const int64_t dim = 768;
      const OnGpu dy(normals({rows, dim}, 1), dtype), x(normals({rows, dim}, 2), dtype), w(normals({dim}, 3), dtype),
          mean(Floats({rows}, 0.1f)), rstd(Floats({rows}, 0.7f));
      check({Floats({dim}), Floats({dim})}, [&](auto& grads) {
        const OnGpu dx = OnGpu::poisoned({rows, dim}, dtype);
        layernorm_backward(
            *gpu(), {.dx = dx, .dw = grads[0], .db = grads[1], .dy = dy, .x = x, .mean = mean, .rstd = rstd, .w = w});
      });
    }
}

void check_qkv() {
  const QkvShape shape{4, 2, 64, 64, 1e-6f};
  const int64_t tokens = 3000, width = (4 + 2 * 2) * 64;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const OnGpu qkv(normals({tokens, width}, 1), dtype), dq(normals({tokens, 4, 64}, 2), dtype),
        dk(normals({tokens, 2, 64}, 3), dtype), q_norm(normals({64}, 4), dtype), k_norm(normals({64}, 5), dtype),
        cos_sin(normals({300, 64}, 6)), rstd(Floats({tokens, 6}, 0.6f)), positions(random_ids(tokens, 300, 7));
    check({Floats({64}), Floats({64})}, [&](auto& grads) {
      const OnGpu dqkv = OnGpu::poisoned({tokens, width}, dtype);
      qkv_backward(*gpu(), {.dqkv = dqkv,
                            .dq_norm = grads[0],
                            .dk_norm = grads[1],
                            .dq = dq,
                            .dk = dk,
                            .rstd = rstd,
                            .qkv = qkv,
                            .positions = positions,
                            .cos_sin = cos_sin,
                            .q_norm = q_norm,
                            .k_norm = k_norm,
                            .shape = shape});
    });
  }
}

void check_embedding() {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int32_t distinct : {2, 500}) {
      const OnGpu dy(rounded(normals({3000, 130}, 1), dtype), dtype), ids(random_ids(3000, distinct, 2));
      check({Floats({500, 130})}, [&](auto& grads) { embedding_backward(*gpu(), grads[0], dy, ids); });
    }
}

}  // namespace

TEST(AddsOnceOnGpu, DeclaredOpsDo) {
  HONE_GPU_OR_SKIP();
  expect_declared_ops_add_once(DeviceKind::cuda, {{"gemm_backward_weight", check_products},
                                                  {"grouped_gemm_backward_weight", check_grouped_product},
                                                  {"head_gemm_weight", check_head_product},
                                                  {"expert_bias_backward", check_expert_bias},
                                                  {"attention_backward", check_attention},
                                                  {"rmsnorm_backward", check_rmsnorm},
                                                  {"layernorm_backward", check_layernorm},
                                                  {"qkv_backward", check_qkv},
                                                  {"embedding_backward", check_embedding}});
}

}  // namespace hone::test
