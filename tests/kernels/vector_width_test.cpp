// Bits must not depend on the width of the processor's vectors: a run moved to a machine without AVX-512 goes on as it was.
#include <hwy/targets.h>

#include "kernels/fused_multiply_add.h"
#include "kernels/gemm.h"
#include "kernels/logprob.h"
#include "tests/kernels/op_check.h"

namespace hone::test {
namespace {

// Until the end of its scope, vector bodies run as if the processor had these instruction sets alone.
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

std::vector<Floats> results() {
  const int64_t R = 21, V = 1300, D = 70;
  const Floats hidden = normals({R, D}, 1), w = normals({V, D}, 2), dlogp = normals({R}, 3);
  const Ids targets = random_ids(R, V, 4);
  Floats logits = poisoned({R, V}), few = poisoned({3, V}), logp = poisoned({R}), lse = poisoned({R}), entropy = poisoned({R});
  gemm_forward(cpu(), logits, hidden, w, {}, {});
  gemm_forward(cpu(), few, hidden.tensor().rows(0, 3), w, {}, {});
  logprob_forward(cpu(), logp, lse, entropy, hidden, w, targets, 0.9f);
  return {logits, few, logp, lse, entropy};
}

}  // namespace

TEST(VectorWidth, LeavesNoTraceInTheBits) {
  if (!has_fused_multiply_add()) GTEST_SKIP() << "no vector bodies on this processor";
  const std::vector<Floats> widest = results();
  const OnlyTargets avx2(HWY_AVX2);
  const std::vector<Floats> narrow = results();
  for (size_t i = 0; i < widest.size(); ++i) EXPECT_TRUE(close(narrow[i], widest[i], {0, 0})) << "output " << i;
}

}  // namespace hone::test
