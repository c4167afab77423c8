#include "train/teacher.h"

#include "model/model.h"

namespace hone {

TeacherObjective::TeacherObjective(TeacherConfig config, Term term) : config_(std::move(config)), term_(term) {}
TeacherObjective::~TeacherObjective() = default;

void TeacherObjective::set_teacher(std::unique_ptr<Model> teacher, std::unique_ptr<DividedValues> shards) {
  shards_ = std::move(shards);
  teacher_ = std::move(teacher);
}

Model& TeacherObjective::teacher() const {
  HONE_CHECK(teacher_, "distill: this stage does not load a teacher");
  return *teacher_;
}

void TeacherObjective::set_contexts(std::vector<std::vector<int32_t>> contexts, std::optional<int32_t> bos) {
  contexts_ = std::move(contexts);
  bos_ = bos;
}

std::vector<int32_t> TeacherObjective::with_context(std::span<const int32_t> tokens, float index) const {
  const std::vector<int32_t>& context = contexts_.at(static_cast<size_t>(index));
  const bool has_bos = bos_ && !tokens.empty() && tokens.front() == *bos_;
  std::vector<int32_t> out(tokens.begin(), tokens.end());
  out.insert(out.begin() + (has_bos ? 1 : 0), context.begin(), context.end());
  return out;
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
