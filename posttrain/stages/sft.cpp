// Supervised fine-tuning on prompts with completions, or on conversations.
#include "posttrain/offline.h"
#include "posttrain/teacher/top_logprobs.h"

namespace hone {
namespace {

class Sft : public OfflineStage<SftSource> {
 public:
  Sft() : OfflineStage({"sft", 32, "samples", 2e-5}, 1) {}
  void fields(Fields& f) override {
    data_fields(f);
    f("packing", packing_,
      "true: a step is as many complete samples as fit into batch_size * max_length tokens; false: batch_size samples. "
      "A sample attends only to itself in both cases");
    training_.fields(f);
    f("neftune_noise_alpha", training_.trainer().neftune_noise_alpha,
      "uniform noise on the embeddings in training, within alpha / sqrt(length * width) (NEFTune); 0 = none");
    f.require("neftune_noise_alpha", training_.trainer().neftune_noise_alpha >= 0,
              "neftune_noise_alpha must be 0 or more");
  }

 protected:
  std::vector<Group> load(const SftSource& source, const Tokenizer& tokenizer) const override {
    const std::unique_ptr<Objective> objective = training_.make_objective();
    const auto* const taught = dynamic_cast<const TeacherObjective*>(objective.get());
    std::vector<Group> groups;
    const auto keep = [&](Sample& sample, const Json& row, const std::string& where) {
      Group& group = groups.emplace_back();
      group.task.id = where;
      if (!taught) return;
      if (taught->term().stored) read_top_logprobs(row, where, tokenizer.vocab_size(), sample);
      const std::string& field = taught->config().context_field;
      if (const Json* context = field.empty() ? nullptr : row.find(field))
        group.task.columns = JsonObject{{field, *context}};
    };
    std::vector<Sample> samples = load_sft(source, tokenizer, keep);
    for (size_t i = 0; i < samples.size(); ++i) groups[i].samples.push_back(std::move(samples[i]));
    return groups;
  }

  int64_t packed_tokens() const override { return packing_ ? training_.batch_size() * data_.sample.max_length : 0; }

 private:
  bool packing_ = false;
};

[[maybe_unused]] const bool added = stages().add("sft", [] { return std::unique_ptr<Stage>(new Sft); });

}  // namespace
}  // namespace hone
