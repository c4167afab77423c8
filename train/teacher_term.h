#pragma once
// The term of a TeacherObjective on a micro-batch: it gives the op distill the teacher's side.
#include <span>

#include "kernels/lm_head/distill.h"
#include "model/batch.h"
#include "train/micro_batch.h"
#include "train/teacher.h"

namespace hone {

// Runs `student`, a call of the op without a teacher, with the objective's teacher: a pass of its model, or the stored
// log-probs. batch, rows: `staging` on the device. Memory comes from `arena` and the scratch of the caller's
// ScratchScope.
void run_teacher_term(Context& context, Arena& arena, const TeacherObjective& objective, const MicroBatchData& staging,
                      const Batch& batch, Tensor rows, Distill student);
// Takes part in the teacher's pass of other ranks, where they divide its values.
void skip_teacher_term(Context& context, const TeacherObjective& objective);

// Writes the column `divergence` of the samples. All ranks call it with equal samples.
void write_divergence(Context& context, const TeacherObjective& objective, Model& student,
                      std::span<Sample* const> samples);

}  // namespace hone
