#include "train/teacher.h"

#include "core/io/file.h"
#include "core/text/tokenizer/tokenizer.h"
#include "kernels/lm_head/distill.h"
#include "model/forward.h"
#include "model/io/adapter.h"
#include "model/model.h"
#include "train/micro_batch.h"
#include "train/shared_scores.h"
#include "train/stage.h"

namespace hone {

TeacherObjective::TeacherObjective(Source source, Term term) : source_(std::move(source)), term_(term) {}
TeacherObjective::~TeacherObjective() = default;

void check_same_vocabulary(const Model& student, const Tokenizer& student_tokenizer, const Model& teacher,
                           const Tokenizer& teacher_tokenizer, const std::filesystem::path& folder) {
  const int64_t own = student.shape().vocab_size, other = teacher.shape().vocab_size;
  HONE_CHECK(own == other, "distill: the teacher ", folder.string(), " has a vocabulary of ", other,
             " tokens and the student one of ", own, ": distillation compares probabilities token by token, so both ",
             "need the same tokenizer");
  for (int32_t id = 0; id < std::max(student_tokenizer.vocab_size(), teacher_tokenizer.vocab_size()); ++id) {
    const bool both = id < student_tokenizer.vocab_size() && id < teacher_tokenizer.vocab_size();
    const std::string mine = id < student_tokenizer.vocab_size() ? student_tokenizer.token(id) : "",
                      theirs = id < teacher_tokenizer.vocab_size() ? teacher_tokenizer.token(id) : "";
    HONE_CHECK(both && mine == theirs, "distill: token ", id, " is \"", theirs, "\" in the vocabulary of the teacher ",
               folder.string(), " and \"", mine, "\" in the student's: distillation compares probabilities token by ",
               "token, so both need the same tokenizer");
  }
}

void check_distillable(const Model& student, const Model& teacher) {
  HONE_CHECK(student.shape().logit_softcap == 0 && teacher.shape().logit_softcap == 0,
             "distill: a divergence over the whole vocabulary does not support models with a soft-cap of the logits ",
             "(final_logit_softcapping)");
}

void TeacherObjective::load_teacher(const StageContext& stage) {
  if (source_.folder.empty()) {
    HONE_CHECK(!source_.context_field.empty(), "distill: the stage has no teacher: set teacher to a model folder");
    teacher_ = stage.load_start_model(false);
    return;
  }
  const std::filesystem::path folder = expand_path(source_.folder);
  teacher_ = load_model(stage.context, folder, {.dtype = stage.model->dtype()});
  check_same_vocabulary(*stage.model, *stage.tokenizer, *teacher_, Tokenizer::load(tokenizer_folder(folder)), folder);
}

void TeacherObjective::set_teacher(std::unique_ptr<Model> teacher) { teacher_ = std::move(teacher); }

Model& TeacherObjective::teacher() const {
  HONE_CHECK(teacher_, "distill: this stage does not load a teacher");
  return *teacher_;
}

void TeacherObjective::write_teacher_logp(const StageContext& stage, std::span<Group> groups,
                                          double temperature) const {
  std::vector<std::vector<int32_t>> sequences;
  std::vector<size_t> added;  // tokens of the context, for each sequence
  for (const Group& group : groups) {
    std::vector<int32_t> context;
    if (!source_.context_field.empty()) {
      const Json* const text =
          group.task.columns.is_object() ? group.task.columns.find(source_.context_field) : nullptr;
      HONE_CHECK(text && text->is_string(), "distill: the row of task ", group.task.id, " has no text in the field ",
                 source_.context_field, ", which teacher_context names");
      context = stage.tokenizer->encode(text->as_string());
    }
    for (const Sample& sample : group.samples) {
      std::vector<int32_t>& tokens = sequences.emplace_back(context);
      tokens.insert(tokens.end(), sample.tokens.begin(), sample.tokens.end());
      added.push_back(context.size());
    }
  }
  const std::vector<TokenLogprobs> scores =
      shared_logprobs(stage.ranks, stage.context, teacher(), sequences, {.temperature = temperature});
  size_t next = 0;
  for (Group& group : groups)
    for (Sample& sample : group.samples) {
      const std::vector<float>& logp = scores[next].logp;
      sample.columns.set(columns::teacher_logp, {logp.begin() + static_cast<std::ptrdiff_t>(added[next]), logp.end()});
      ++next;
    }
}

void TeacherObjective::write_divergence(Context& context, Model& student, std::span<Sample* const> samples) const {
  check_distillable(student, teacher());
  Arena arena(context.device());
  MicroBatchData staging;
  std::vector<float> tokens;
  for (Sample* sample : samples) {
    const Sample* const one = sample;
    staging.fill({&one, 1});
    tokens.assign(sample->tokens.size(), 0);
    if (!staging.rows().empty()) {
      arena.release({});
      const ScratchScope scope(context);
      const Batch batch = pack_batch(context, arena, staging.parts());
      const Tensor rows = upload(context, arena, staging.rows()), out = arena.take(DType::f32, {rows.size()}),
                   unweighted = arena.take(DType::f32, {rows.size()});
      context.zero(unweighted);
      distill(context, {.divergence = out,
                        .weight = unweighted,
                        .hidden = infer(context, student, batch, rows, nullptr),
                        .w = student.lm_head().value,
                        .teacher_hidden = infer(context, teacher(), batch, rows, nullptr),
                        .teacher_w = teacher().lm_head().value,
                        .kind = term_.divergence});
      staging.to_tokens(download(context, out), tokens);
    }
    sample->columns.set(columns::divergence, tokens);
  }
}

double TeacherObjective::given_divergence(const TokenBatch& batch, MetricSums& metrics) const {
  const std::span<const float> divergence = batch.find(columns::divergence), mask = batch[columns::mask];
  double sum = 0;
  for (size_t t = 0; t < divergence.size(); ++t) {
    if (mask[t] == 0) continue;
    sum += term_.weight * mask[t] * divergence[t];
    metrics.add("distill/divergence", mask[t] * divergence[t], mask[t]);
  }
  return sum * batch.scale;
}

}  // namespace hone
