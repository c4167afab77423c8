#pragma once
// TeacherObjective: an objective with a teacher. Its loss has a term that reads the next-token distributions of student
// and teacher over the full vocabulary: the sum over trained tokens of scale * mask * weight * divergence
// (kernels/lm_head/distill.h). The trainer computes the term and its gradient beside the lm_head. loss() has the other
// terms. If a batch has the column `divergence`, loss() adds the term itself, without a gradient: held-out samples.
#include <filesystem>
#include <memory>
#include <string>

#include "kernels/lm_head/distill_row.h"
#include "train/objective.h"

namespace hone {

class Context;
class Model;
class Tokenizer;
struct StageContext;

namespace columns {
inline const Column divergence = register_column(
    "divergence", {.doc = "divergence between the next-token distributions of teacher and student (distill)"});
inline const Column teacher_logp = register_column("teacher_logp", {.doc = "log-prob under the teacher (distill)"});
}  // namespace columns

class TeacherObjective : public Objective {
 public:
  struct Term {
    Divergence divergence;
    double weight = 0;  // 0: the loss does not have the term
  };
  struct Source {
    std::string folder;  // the teacher's model folder; "": with a context field the model as the stage began
    // Field of a task's row whose text the teacher reads before the prompt; "": none.
    std::string context_field = "";
  };
  TeacherObjective(Source source, Term term);
  ~TeacherObjective() override;

  const Term& term() const { return term_; }
  // Share of a step's tasks that keep their sampled completions; the others get the data's (stage rl).
  virtual double sampled_share() const { return 1; }
  // Loads the teacher. A stage calls it once, before its first step. An Error if no folder is set or if its vocabulary
  // is not the student's.
  void load_teacher(const StageContext& stage);
  // Uses any model as the teacher.
  void set_teacher(std::unique_ptr<Model> teacher);
  // An Error before load_teacher().
  Model& teacher() const;

  // Writes the column teacher_logp of the completions. All ranks call it with equal groups. An Error names a task
  // without the context field.
  void write_teacher_logp(const StageContext& stage, std::span<Group> groups, double temperature) const;
  // Writes the column `divergence` of the samples.
  void write_divergence(Context& context, Model& student, std::span<Sample* const> samples) const;

 protected:
  // The term of tokens that have the column `divergence`. Adds its metric.
  double given_divergence(const TokenBatch& batch, MetricSums& metrics) const;

 private:
  Source source_;
  Term term_;
  std::unique_ptr<Model> teacher_;
};

// Throws an Error unless both have the same tokens. `folder` is the teacher's.
void check_same_vocabulary(const Model& student, const Tokenizer& student_tokenizer, const Model& teacher,
                           const Tokenizer& teacher_tokenizer, const std::filesystem::path& folder);
// Throws an Error if one of the models has logits that the op `distill` does not compute.
void check_distillable(const Model& student, const Model& teacher);

}  // namespace hone
