#include "run/plan/teacher_memory.h"

#include <algorithm>

#include "core/base/log.h"
#include "core/io/file.h"
#include "kernels/lm_head/distill.h"
#include "model/forward.h"
#include "model/io/model_folder.h"
#include "model/token_logprobs.h"
#include "train/micro_batch.h"
#include "train/parallel/value_shards.h"
#include "train/teacher.h"

namespace hone {
namespace {

// The teacher without weights. One that an earlier stage writes is counted as a copy of the student.
std::unique_ptr<Model> shape_of(const TeacherConfig& config, Model& student) {
  if (config.folder.empty()) return student.same_shape();
  const std::filesystem::path folder = expand_path(config.folder);
  if (std::filesystem::exists(folder)) return read_model_folder(folder);
  log::warning("plan: the teacher ", folder.string(), " does not exist yet: its memory is counted as the student's");
  return student.same_shape();
}

// Samples that are not longer than the teacher's positions; a run stops at longer ones.
std::vector<Sample> clipped(std::span<const Sample> samples, const Model& teacher) {
  std::vector<Sample> out(samples.begin(), samples.end());
  const int64_t most = teacher.shape().max_positions;
  for (Sample& sample : out) {
    if (most == 0 || std::ssize(sample.tokens) <= most) continue;
    sample.tokens.resize(static_cast<size_t>(most));
    sample.columns.truncate(static_cast<size_t>(most));
  }
  return out;
}

// The teacher's pass and the op of the loss. It needs no weights: the meta device computes nothing.
void run_term(Context& context, Model& teacher, Model& student, std::span<const Sample> samples) {
  std::vector<const Sample*> batch;
  for (const Sample& sample : samples) batch.push_back(&sample);
  MicroBatchData staging;
  staging.fill(batch);
  Arena arena(context.device());
  const Batch packed = pack_batch(context, arena, staging.parts());
  const Tensor rows = upload(context, arena, staging.rows());
  const int64_t R = rows.size(), D = student.shape().hidden_size;
  const ScratchScope scope(context);
  const Tensor hidden = arena.take(student.dtype(), {R, D}), numbers = arena.take(DType::f32, {R});
  distill(context, {.divergence = numbers,
                    .dhidden = hidden,
                    .weight = numbers,
                    .hidden = hidden,
                    .w = student.lm_head().value,
                    .teacher_hidden = infer(context, teacher, packed, rows, nullptr),
                    .teacher_w = teacher.lm_head().value,
                    .kind = {},
                    .softcap = student.shape().logit_softcap,
                    .teacher_softcap = teacher.shape().logit_softcap});
}

}  // namespace

TeacherMemory measure_teacher(DryRank& dry, const PlannedStage& planned, const RankLayout& layout, int rank,
                              std::span<const Sample> samples) {
  TeacherMemory out;
  const auto* const taught = dynamic_cast<const TeacherObjective*>(planned.step.objective.get());
  if (!taught || taught->term().stored || taught->config().has_endpoint()) return out;
  if (taught->config().folder.empty() && taught->config().context_field.empty()) return out;  // an error of the run
  Context context(dry.context().device());
  context.plan_for(dry.context().target());
  context.set_numerics(dry.context().numerics());
  const std::unique_ptr<Model> teacher = shape_of(taught->config(), dry.model());
  teacher->allocate(context, dry.model().dtype(), false);
  out.weights = static_cast<int64_t>(teacher->flat_values().bytes());
  if (!taught->config().is_local()) return out;  // the weights on their way to workers
  if (taught->reads_model()) {
    run_term(context, *teacher, dry.model(), clipped(samples, *teacher));
  } else {
    const int64_t most = teacher->shape().max_positions;
    const std::vector<int32_t> longest(static_cast<size_t>(most > 0 ? std::min(planned.length, most) : planned.length));
    compute_logprobs(context, *teacher, {&longest, 1}, {});
  }
  out.scratch = static_cast<int64_t>(context.scratch().peak_bytes());
  if (layout.ranks > 1 && layout.zero == 3) {
    CountingGroup group(rank, layout.ranks);
    const ValueShards shards(context, *teacher, group);
    out.weights = shards.bytes();
  }
  return out;
}

}  // namespace hone
