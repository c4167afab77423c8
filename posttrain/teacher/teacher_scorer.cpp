// The teacher in this process, and what the others share.
#include "posttrain/teacher/teacher_scorer.h"

#include <cstring>

#include "train/shared_scores.h"

namespace hone {
namespace {

class LocalTeacher final : public TeacherScorer {
 public:
  LocalTeacher(const StageContext& stage, Model& teacher) : stage_(stage), teacher_(teacher) {}

  std::vector<std::vector<float>> logprobs(std::span<const std::vector<int32_t>> sequences,
                                           double temperature) override {
    std::vector<std::vector<float>> out;
    for (TokenLogprobs& scores :
         shared_logprobs(stage_.ranks, stage_.context, teacher_, sequences, {.temperature = temperature}))
      out.push_back(std::move(scores.logp));
    return out;
  }

 private:
  const StageContext& stage_;
  Model& teacher_;
};

}  // namespace

std::unique_ptr<TeacherScorer> make_local_teacher(const StageContext& stage, Model& teacher) {
  return std::make_unique<LocalTeacher>(stage, teacher);
}

std::string logprob_bytes(std::span<const std::vector<float>> logprobs) {
  std::string out;
  for (const std::vector<float>& one : logprobs)
    out.append(reinterpret_cast<const char*>(one.data()), one.size() * sizeof(float));
  return out;
}

std::vector<std::vector<float>> logprobs_of(std::string_view bytes, std::span<const std::vector<int32_t>> sequences) {
  size_t tokens = 0;
  for (const std::vector<int32_t>& sequence : sequences) tokens += sequence.size();
  HONE_CHECK(bytes.size() == tokens * sizeof(float), "distill: ", bytes.size(),
             " bytes of the teacher's log-probs for ", tokens, " tokens");
  std::vector<std::vector<float>> out;
  for (const std::vector<int32_t>& sequence : sequences) {
    std::vector<float>& own = out.emplace_back(sequence.size());
    if (!own.empty()) std::memcpy(own.data(), bytes.data(), own.size() * sizeof(float));
    bytes.remove_prefix(own.size() * sizeof(float));
  }
  return out;
}

}  // namespace hone
