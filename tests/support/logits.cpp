#include "tests/support/logits.h"

#include "kernels/gemm/gemm.h"

namespace hone::test {

void lm_head_logits(Context& context, Model& model, Tensor logits, Tensor hidden) {
  gemm_forward(context, {.y = logits, .x = hidden, .w = model.lm_head().value});
}

}  // namespace hone::test
