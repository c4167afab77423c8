// A teacher behind an OpenAI-compatible server. Rank 0 asks it.
#include "posttrain/teacher/prompt_logprobs_api.h"
#include "posttrain/teacher/teacher_scorer.h"

namespace hone {
namespace {

class EndpointTeacher final : public TeacherScorer {
 public:
  EndpointTeacher(const StageContext& stage, const TeacherConfig& config)
      : ranks_(stage.ranks), api_(config.endpoint, *stage.tokenizer) {}

  std::vector<std::vector<float>> logprobs(std::span<const std::vector<int32_t>> sequences, double) override {
    const auto ask = [&] {
      std::vector<std::vector<float>> out;
      for (ServedLogprobs& one : api_.logprobs(sequences, 0)) out.push_back(std::move(one.logp));
      return logprob_bytes(out);
    };
    return logprobs_of(ranks_.on_first("the teacher's log-probs", ask), sequences);
  }

 private:
  const Ranks ranks_;
  PromptLogprobsApi api_;
};

}  // namespace

std::unique_ptr<TeacherScorer> make_endpoint_teacher(const StageContext& stage, const TeacherConfig& config) {
  return std::make_unique<EndpointTeacher>(stage, config);
}

}  // namespace hone
