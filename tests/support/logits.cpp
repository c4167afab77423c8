#include "tests/support/logits.h"

#include "kernels/elementwise/softcap.h"
#include "kernels/gemm/gemm.h"

namespace hone::test {

void lm_head_logits(Context& context, Model& model, Tensor logits, Tensor hidden) {
  gemm_forward(context, {.y = logits, .x = hidden, .w = model.lm_head().value});
  if (const float softcap = model.shape().logit_softcap; softcap > 0) softcap_forward(context, logits, softcap);
}

}  // namespace hone::test
