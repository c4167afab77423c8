#pragma once
// Logits of a model, for tests that check log-probs and samples.
#include "model/model.h"

namespace hone::test {

// logits [R, V] f32 = hidden [R, D] . lm_head^T; written.
void lm_head_logits(Context& context, Model& model, Tensor logits, Tensor hidden);

}  // namespace hone::test
