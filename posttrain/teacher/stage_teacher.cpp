#include "posttrain/teacher/stage_teacher.h"

#include <algorithm>

#include "core/io/file.h"
#include "core/net/http_client.h"
#include "model/io/adapter.h"
#include "model/io/model_folder.h"
#include "train/parallel/value_shards.h"

namespace hone {
namespace {

constexpr const char* no_teacher =
    "distill: the stage has no teacher: set teacher to a model folder, or teacher_endpoint to a server";

std::string spelling(const Tokenizer& tokenizer, int32_t id) {
  return id < tokenizer.vocab_size() ? tokenizer.token(id) : "";
}

void check_vocab_size(int64_t student, int64_t teacher, const std::filesystem::path& folder) {
  HONE_CHECK(student == teacher, "distill: the teacher ", folder.string(), " has a vocabulary of ", teacher,
             " tokens and the student one of ", student,
             ": distillation compares probabilities token by token, so both ", "need the same tokenizer");
}

void check_tokens_of(const Tokenizer& student, const Tokenizer& teacher, const std::filesystem::path& folder) {
  for (int32_t id = 0; id < std::max(student.vocab_size(), teacher.vocab_size()); ++id) {
    const bool both = id < student.vocab_size() && id < teacher.vocab_size();
    const std::string mine = spelling(student, id), theirs = spelling(teacher, id);
    HONE_CHECK(both && mine == theirs, "distill: token ", id, " is \"", theirs, "\" in the vocabulary of the teacher ",
               folder.string(), " and \"", mine, "\" in the student's: distillation compares probabilities token by ",
               "token, so both need the same tokenizer");
  }
}

// The text that the teacher reads before a task's prompt.
const std::string& context_of(const Task& task, const std::string& field) {
  const Json* const text = task.columns.is_object() ? task.columns.find(field) : nullptr;
  HONE_CHECK(text && text->is_string(), "distill: the row of task ", task.id, " has no text in the field ", field,
             ", which teacher_context names");
  return text->as_string();
}

}  // namespace

void check_same_vocabulary(const Model& student, const Tokenizer& student_tokenizer, const Model& teacher,
                           const Tokenizer& teacher_tokenizer, const std::filesystem::path& folder) {
  check_vocab_size(student.shape().vocab_size, teacher.shape().vocab_size, folder);
  check_tokens_of(student_tokenizer, teacher_tokenizer, folder);
}

void check_teacher(const StageCheck& check, const Objective& objective) {
  const auto* const taught = dynamic_cast<const TeacherObjective*>(&objective);
  if (!taught || taught->term().stored) return;
  const TeacherConfig& config = taught->config();
  if (config.has_endpoint())
    return check.problems.attempt("teacher_endpoint", [&] { parse_url(config.endpoint.base_url); });
  check.problems.attempt("teacher", [&] {
    HONE_CHECK(!config.folder.empty() || !config.context_field.empty(), no_teacher);
    const std::filesystem::path folder = expand_path(config.folder);
    if (config.folder.empty() || (check.is_made_earlier && check.is_made_earlier(folder))) return;
    const std::unique_ptr<Model> teacher = read_model_folder(folder);
    // A vocabulary that an earlier stage makes is not known yet.
    if (check.model && check.model->shape().vocab_size > 0 && check.tokenizer && check.tokenizer_is_trained)
      check_vocab_size(check.model->shape().vocab_size, teacher->shape().vocab_size, folder);
  });
}

StageTeacher::StageTeacher(StageContext& stage, TeacherObjective& objective) : stage_(stage), objective_(objective) {
  const TeacherConfig& config = objective_.config();
  if (objective_.term().stored) return;
  if (config.has_endpoint())
    scorer_ = make_endpoint_teacher(stage_, config);
  else
    load_model();
}

StageTeacher::~StageTeacher() = default;

void StageTeacher::load_model() {
  const TeacherConfig& config = objective_.config();
  std::unique_ptr<Model> teacher;
  if (config.folder.empty()) {
    HONE_CHECK(!config.context_field.empty(), no_teacher);
    teacher = stage_.load_start_model(false);
  } else {
    const std::filesystem::path folder = expand_path(config.folder);
    teacher = hone::load_model(stage_.context, folder, {.dtype = stage_.model->dtype()});
    check_same_vocabulary(*stage_.model, *stage_.tokenizer, *teacher, Tokenizer::load(tokenizer_folder(folder)),
                          folder);
  }
  max_positions_ = teacher->shape().max_positions;
  if (!config.workers.empty()) {
    scorer_ = make_worker_teacher(stage_, config, std::move(teacher));
    return;
  }
  std::unique_ptr<DividedValues> shards;
  if (stage_.ranks.size() > 1 && stage_.zero == 3)
    shards = std::make_unique<ValueShards>(stage_.context, *teacher, *stage_.ranks.group());
  objective_.set_teacher(std::move(teacher), std::move(shards));
  scorer_ = make_local_teacher(stage_, objective_.teacher());
}

void StageTeacher::prepare(std::span<Group* const> groups) {
  const std::string& field = objective_.config().context_field;
  std::vector<std::vector<int32_t>> contexts;
  for (Group* group : groups) {
    if (!field.empty()) contexts.push_back(stage_.tokenizer->encode(context_of(group->task, field)));
    const int64_t added = field.empty() ? 0 : std::ssize(contexts.back());
    for (Sample& sample : group->samples) {
      const int64_t length = added + std::ssize(sample.tokens);
      HONE_CHECK(max_positions_ == 0 || length <= max_positions_, "distill: task ", group->task.id, " has ",
                 sample.tokens.size(), " tokens",
                 field.empty() ? "" : concat(" after the ", added, " of the field ", field), "; the teacher takes ",
                 max_positions_, " in all: lower max_length or sampling.max_tokens",
                 field.empty() ? "" : ", or shorten the field");
      if (!field.empty()) sample.columns.set(columns::teacher_context, {static_cast<float>(contexts.size() - 1)});
    }
  }
  if (!field.empty()) objective_.set_contexts(std::move(contexts), stage_.tokenizer->bos());
}

void StageTeacher::write_logp(std::span<Group> groups, double temperature) {
  std::vector<std::vector<int32_t>> sequences;
  for (const Group& group : groups)
    for (const Sample& sample : group.samples) {
      const std::span<const float> context = sample.columns.find(columns::teacher_context);
      sequences.push_back(context.empty() ? sample.tokens : objective_.with_context(sample.tokens, context[0]));
    }
  const std::vector<std::vector<float>> logprobs = scorer_->logprobs(sequences, temperature);
  size_t next = 0;
  for (Group& group : groups)
    for (Sample& sample : group.samples) {
      const std::vector<float>& all = logprobs[next++];
      const auto added = static_cast<std::ptrdiff_t>(all.size() - sample.tokens.size());
      std::vector<float> own(all.begin() + added, all.end());
      if (!own.empty()) own.front() = 0;  // a sequence's first token is never trained on
      sample.columns.set(columns::teacher_logp, std::move(own));
    }
}

}  // namespace hone
