#pragma once
// The memory of a stage's teacher (train/teacher.h) on a rank, by a dry run on the meta device.
#include <span>
#include <vector>

#include "run/plan/dry_run.h"

namespace hone {

struct TeacherMemory {
  int64_t weights = 0;
  int64_t scratch = 0;  // at its peak: the teacher's pass over a micro-batch and the logits of both models
};

// samples: of the largest micro-batch. A teacher's context adds tokens whose number is not known; they are not counted.
TeacherMemory measure_teacher(DryRank& dry, const PlannedStage& planned, const RankLayout& layout, int rank,
                              std::span<const Sample> samples);

}  // namespace hone
