// A teacher on workers (rollout/remote). They compute the log-probs of a prompt and generate nothing.
#include "posttrain/rl/rollout_config.h"
#include "posttrain/rl/worker_source.h"
#include "posttrain/teacher/teacher_scorer.h"

namespace hone {
namespace {

class WorkerTeacher final : public TeacherScorer {
 public:
  WorkerTeacher(StageContext& stage, const TeacherConfig& config, std::unique_ptr<Model> teacher)
      : ranks_(stage.ranks) {
    if (!ranks_.is_first()) return;
    WorkerPoolConfig pool = stage.rollout->pool;
    pool.workers = config.workers;
    // The folder tells the run's workers and the teacher's apart.
    pool_ = worker_backend(stage.context, *teacher, *stage.tokenizer, stage.rollout->as_exact(), pool,
                           stage.run_folder / "teacher");
  }

  std::vector<std::vector<float>> logprobs(std::span<const std::vector<int32_t>> sequences, double) override {
    return logprobs_of(ranks_.on_first("the teacher's log-probs", [&] { return logprob_bytes(ask(sequences)); }),
                       sequences);
  }

 private:
  std::vector<std::vector<float>> ask(std::span<const std::vector<int32_t>> sequences) {
    std::vector<std::vector<float>> out(sequences.size());
    std::string problem;
    for (size_t i = 0; i < sequences.size(); ++i) {
      if (sequences[i].empty()) continue;
      GenerationRequest request{.prompt = sequences[i], .id = i, .sampling = {}, .prompt_logprobs = true};
      request.sampling.max_tokens = 0;
      pool_->submit(std::move(request), [&, i](uint64_t, std::vector<CompletionOutput> completions) {
        CompletionOutput& completion = completions.front();
        if (completion.failed)
          problem = completion.finish_reason;
        else if (completion.prompt_logp.size() != sequences[i].size())
          problem = concat(completion.prompt_logp.size(), " log-probs for ", sequences[i].size(), " tokens");
        out[i] = std::move(completion.prompt_logp);
      });
    }
    while (pool_->step()) {}
    HONE_CHECK(problem.empty(), "distill: teacher_workers: ", problem);
    return out;
  }

  const Ranks ranks_;
  std::unique_ptr<GenerationBackend> pool_;
};

}  // namespace

std::unique_ptr<TeacherScorer> make_worker_teacher(StageContext& stage, const TeacherConfig& config,
                                                   std::unique_ptr<Model> teacher) {
  return std::make_unique<WorkerTeacher>(stage, config, std::move(teacher));
}

}  // namespace hone
