#pragma once
// StageTeacher: gives a stage's TeacherObjective its teacher, and writes the columns that come from the teacher: its
// log-probs of sampled tokens, the contexts that it reads, and stored log-probs of data rows.
#include <memory>
#include <span>

#include "posttrain/teacher/teacher_scorer.h"
#include "train/teacher.h"

namespace hone {

class StageTeacher {
 public:
  // Loads what the objective reads. Call it once, before the stage's first step. Throws an Error if no teacher is set
  // or if its vocabulary is not the student's. `stage` and `objective` must outlive this object.
  StageTeacher(StageContext& stage, TeacherObjective& objective);
  ~StageTeacher();

  // Prepares the groups' samples for the loss: writes their contexts, which replace those of the call before. An Error
  // names a task without the context field, and one that is too long for the teacher.
  void prepare(std::span<Group* const> groups);
  // Writes the column teacher_logp of the completions. All ranks call it with equal groups.
  void write_logp(std::span<Group> groups, double temperature);

 private:
  void load_model();

  StageContext& stage_;
  TeacherObjective& objective_;
  std::unique_ptr<TeacherScorer> scorer_;  // null: the loss reads no log-probs of tokens
  int64_t max_positions_ = 0;              // of a teacher's model; 0: not known
};

// Throws an Error unless both have the same tokens. `folder` is the teacher's.
void check_same_vocabulary(const Model& student, const Tokenizer& student_tokenizer, const Model& teacher,
                           const Tokenizer& teacher_tokenizer, const std::filesystem::path& folder);

// Adds a problem if the objective's teacher is a folder or server that cannot be used, before the run computes
// anything.
void check_teacher(const StageCheck& check, const Objective& objective);

}  // namespace hone
