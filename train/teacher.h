#pragma once
// TeacherObjective: an objective with a teacher. Its loss has a term that reads the next-token distributions of student
// and teacher: the sum over trained tokens of scale * mask * weight * divergence (kernels/lm_head/distill.h). The
// teacher is a model, or the stored log-probs of its most likely tokens. The trainer computes the term and its gradient
// beside the lm_head. loss() has the other terms. If a batch has the column `divergence`, loss() adds the term itself,
// without a gradient: held-out samples.
//
// A teacher may read a context that the student does not see. Its sequence is then the student's with the context
// inserted at the beginning, after a BOS token if the student's sequence begins with one. So the distribution that the
// student predicts from position t is compared with the teacher's at position t + length of the context.
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/comm/ranks.h"
#include "core/config/model_api_config.h"
#include "kernels/lm_head/distill.h"
#include "model/batch.h"
#include "train/micro_batch.h"
#include "train/objective.h"

namespace hone {

class DividedValues;
class Model;

// Most likely tokens of a stored distribution, at most.
inline constexpr int max_teacher_top = 64;

namespace columns {
inline const Column divergence = register_column(
    "divergence", {.doc = "divergence between the next-token distributions of teacher and student (distill)"});
inline const Column teacher_logp = register_column("teacher_logp", {.doc = "log-prob under the teacher (distill)"});
inline const Column teacher_context = register_column(
    "teacher_context", {.doc = "index of the context that the teacher reads (distill)", .per_sequence = true});
// -1 past a token's last entry.
inline const Column teacher_top_ids =
    register_column("teacher_top_ids", {.doc = "the teacher's most likely tokens (distill)", .width = max_teacher_top});
inline const Column teacher_top_logp =
    register_column("teacher_top_logp", {.doc = "the log-probs of teacher_top_ids", .width = max_teacher_top});
}  // namespace columns

// A server of a teacher, which returns log-probs of given tokens.
struct TeacherEndpoint : ModelApiConfig {
  std::string api = "auto";  // auto | vllm | echo
  int64_t concurrency = 8;   // requests at the same time
  void fields(Fields& f);
};

struct TeacherConfig {
  std::string folder = {};
  // Field of a task's row whose text the teacher reads before the prompt; "": none. Without another teacher the teacher
  // is then the model as the stage began.
  std::string context_field = {};
  TeacherEndpoint endpoint = {};          // base_url "": none
  std::vector<std::string> workers = {};  // URLs of workers that hold the folder's model; empty: the learner holds it
  bool has_endpoint() const { return !endpoint.base_url.empty(); }
  // True if the learner's process runs the teacher.
  bool is_local() const { return !has_endpoint() && workers.empty(); }
};

class TeacherObjective : public Objective {
 public:
  struct Term {
    Divergence divergence = {};
    double weight = 0;    // 0: the loss does not have the term
    bool stored = false;  // the teacher is the columns teacher_top_ids and teacher_top_logp, not a model
    TopRest rest = TopRest::bucket;
  };
  TeacherObjective(TeacherConfig config, Term term);
  ~TeacherObjective() override;

  const TeacherConfig& config() const { return config_; }
  const Term& term() const { return term_; }
  // Share of a step's tasks that keep their sampled completions; the others get the data's (stage rl).
  virtual double sampled_share() const { return 1; }

  // shards: the values of the model if ranks divide them (ZeRO-3), else null.
  void set_teacher(std::unique_ptr<Model> teacher, std::unique_ptr<DividedValues> shards = nullptr);
  // True if the term reads the teacher's model.
  bool reads_model() const { return term_.weight != 0 && !term_.stored; }
  // An Error before set_teacher().
  Model& teacher() const;

  // The contexts that the column teacher_context counts; bos: of the student's sequences.
  void set_contexts(std::vector<std::vector<int32_t>> contexts, std::optional<int32_t> bos);
  bool has_contexts() const { return !contexts_.empty(); }
  // The teacher's sequence of a student's. index: an entry of the column teacher_context.
  std::vector<int32_t> with_context(std::span<const int32_t> tokens, float index) const;

 protected:
  // The term of tokens that have the column `divergence`. Adds its metric.
  double given_divergence(const TokenBatch& batch, MetricSums& metrics) const;

 private:
  TeacherConfig config_;
  Term term_;
  std::unique_ptr<Model> teacher_;
  std::unique_ptr<DividedValues> shards_;
  std::vector<std::vector<int32_t>> contexts_;
  std::optional<int32_t> bos_;
};

// Runs `student`, a call of the op without a teacher, with the objective's teacher: a pass of its model, or the stored
// log-probs. batch, rows: `staging` on the device. Memory comes from `arena` and the scratch of the caller's
// ScratchScope.
void run_teacher_term(Context& context, Arena& arena, const TeacherObjective& objective, const MicroBatchData& staging,
                      const Batch& batch, Tensor rows, Distill student);
// Takes part in the teacher's pass of other ranks, where they divide its values.
void skip_teacher_term(Context& context, const TeacherObjective& objective);

// Writes the column `divergence` of the samples. The ranks share the passes; all of them call it with equal samples.
void write_divergence(const Ranks& ranks, Context& context, const TeacherObjective& objective, Model& student,
                      std::span<Sample* const> samples);

}  // namespace hone
