#pragma once
// The lm_head of distillation: divergence between the next-token distributions of a teacher and a student over the full
// vocabulary, and its gradient, by ranges of rows. The logits of both exist for one range at a time: [R, V] never does.
#include "kernels/lm_head/distill_row.h"
#include "kernels/op.h"

namespace hone {

// divergence[r] is distill_row() of the logits hidden[r] . w^T and teacher_hidden[r] . teacher_w^T, each soft-capped if
// the model has a cap (kernels/elementwise/softcap.h); the gradient goes through the student's. With top_ids and
// top_logp instead of the teacher's model it is distill_top_row(), and kind.beta is not read. The loss is sum_r
// weight[r] * divergence[r]; its weights are known beforehand, so value and gradient are one pass. An id of top_ids
// outside of the vocabulary is an Error; on a GPU it is left out.
struct Distill {
  Tensor divergence;        // [R] f32, written
  Tensor dhidden{};         // [R, D], added to; empty: only the divergence is computed
  Tensor dw{};              // [V, D] f32, added to; empty for a frozen lm_head
  Tensor weight;            // [R] f32
  Tensor hidden;            // [R, D]
  Tensor w;                 // [V, D]
  Tensor teacher_hidden{};  // [R, Dt]; or empty
  Tensor teacher_w{};       // [V, Dt]; or empty
  Tensor top_ids{};         // [R, K] i32: the teacher's most likely tokens, -1 past a row's last; or empty
  Tensor top_logp{};        // [R, K] f32
  Divergence kind;
  TopRest rest = TopRest::bucket;          // of top_ids
  float softcap = 0, teacher_softcap = 0;  // of the logits of student and teacher, before the temperature; 0 = none
  static constexpr auto access =
      op_access(written(&Distill::divergence), added(&Distill::dhidden, &Distill::dw),
                read(&Distill::weight, &Distill::hidden, &Distill::w, &Distill::teacher_hidden, &Distill::teacher_w,
                     &Distill::top_ids, &Distill::top_logp));
};
inline constinit Op<Distill> distill{"distill"};

inline constexpr int64_t max_distill_top = 256;  // K

// Checks of every body. `dtype` is that of hidden and w.
void check_distill(const Distill& args, DType dtype);

}  // namespace hone
