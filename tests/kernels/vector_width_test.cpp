// Bits must not depend on the vector width of the processor: a run that moves to a machine without AVX-512 continues
// with the same bits.
#include <hwy/targets.h>

#include "kernels/attention/attention.h"
#include "kernels/cpu/features.h"
#include "kernels/elementwise/activation.h"
#include "kernels/gemm/gemm.h"
#include "kernels/lm_head/logprob.h"
#include "kernels/norm/rmsnorm.h"
#include "kernels/optimizer/optimizer.h"
#include "tests/kernels/op_check.h"

namespace hone::test {
namespace {

// Limits vector bodies to these instruction sets until the end of its scope.
class OnlyTargets {
 public:
  explicit OnlyTargets(int64_t targets) { set(targets); }
  ~OnlyTargets() { set(0); }
  OnlyTargets(const OnlyTargets&) = delete;
  OnlyTargets& operator=(const OnlyTargets&) = delete;

 private:
  static void set(int64_t targets) {
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().DeInit();
  }
};

std::vector<Floats> head_results() {
  const int64_t R = 21, V = 1300, D = 70;
  const Floats hidden = normals({R, D}, 1), w = normals({V, D}, 2), dlogp = normals({R}, 3);
  const Ids targets = random_ids(R, V, 4);
  Floats logits = poisoned({R, V}), few = poisoned({3, V}), logp = poisoned({R}), lse = poisoned({R}),
         entropy = poisoned({R});
  gemm_forward(cpu(), {.y = logits, .x = hidden, .w = w});
  gemm_forward(cpu(), {.y = few, .x = hidden.tensor().rows(0, 3), .w = w});
  logprob_forward(cpu(), {.logp = logp,
                          .lse = lse,
                          .entropy = entropy,
                          .hidden = hidden,
                          .w = w,
                          .targets = targets,
                          .inv_temperature = 0.9f});
  return {logits, few, logp, lse, entropy};
}

std::vector<Floats> row_results() {
  const int64_t R = 70, D = 76;
  const Floats x = normals({R, D}, 1), w = normals({D}, 2), dy = normals({R, D}, 3);
  Floats y = poisoned({R, D}), rstd = poisoned({R}), dx = y, dw({D}), activated = poisoned({R, D / 2}), gelu = y,
         dgate_up = y;
  rmsnorm_forward(cpu(), y, rstd, x, w, 1e-5f, 0.0f);
  rmsnorm_backward(cpu(), {.dx = dx, .dw = dw, .dy = dy, .x = x, .rstd = rstd, .w = w, .accumulate = false});
  glu_forward(cpu(), activated, x, Activation::silu);
  glu_backward(cpu(), dgate_up, Tensor(), activated, x, Activation::silu);
  activation_forward(cpu(), gelu, x, Activation::gelu_tanh);
  double squares = 0;
  sum_squares(cpu(), Tensor(&squares, DType::f64, DeviceKind::cpu, {1}), x.tensor().view({R * D}), 8192);
  return {y, rstd, dx, dw, activated, dgate_up, gelu, Floats({1}, static_cast<float>(squares))};
}

std::vector<Floats> attention_results() {
  const int64_t T = 150, H = 4, Hk = 2, d = 40;
  const Floats q = normals({T, H, d}, 1), k = normals({T, Hk, d}, 2), v = normals({T, Hk, d}, 3),
               dout = normals({T, H, d}, 4);
  Floats out = poisoned({T, H, d}), lse = poisoned({T, H}), dq = out, dk = poisoned({T, Hk, d}), dv = dk;
  Ids offsets({3});
  offsets[1] = 20, offsets[2] = static_cast<int32_t>(T);
  const AttentionShape shape{.scale = 0.2f, .window = 100, .max_length = 130};
  attention_forward(cpu(), {.out = out, .lse = lse, .q = q, .k = k, .v = v, .offsets = offsets, .shape = shape});
  attention_backward(cpu(), {.dq = dq,
                             .dk = dk,
                             .dv = dv,
                             .dout = dout,
                             .out = out,
                             .lse = lse,
                             .q = q,
                             .k = k,
                             .v = v,
                             .offsets = offsets,
                             .shape = shape});
  return {out, lse, dq, dk, dv};
}

struct Kernels {
  const char* name;
  std::vector<Floats> (*results)();
};
class VectorWidth : public ::testing::TestWithParam<Kernels> {};

}  // namespace

TEST_P(VectorWidth, LeavesNoTraceInTheBits) {
  if (!has_fused_multiply_add()) GTEST_SKIP() << "no vector bodies on this processor";
  const std::vector<Floats> widest = GetParam().results();
  const OnlyTargets avx2(HWY_AVX2);
  const std::vector<Floats> narrow = GetParam().results();
  for (size_t i = 0; i < widest.size(); ++i) EXPECT_TRUE(close(narrow[i], widest[i], {0, 0})) << "output " << i;
}

INSTANTIATE_TEST_SUITE_P(Kernels, VectorWidth,
                         ::testing::Values(Kernels{"head", head_results}, Kernels{"rows", row_results},
                                           Kernels{"attention", attention_results}),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace hone::test
