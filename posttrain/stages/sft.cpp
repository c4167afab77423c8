// Supervised fine-tuning on prompts with completions, or on conversations.
#include "posttrain/offline.h"

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
    std::vector<Group> groups;
    std::vector<std::string> rows;
    for (Sample& sample : load_sft(source, tokenizer, &rows)) {
      Group& group = groups.emplace_back();
      group.task.id = rows[groups.size() - 1];
      group.samples.push_back(std::move(sample));
    }
    return groups;
  }

  int64_t packed_tokens() const override { return packing_ ? training_.batch_size() * data_.sample.max_length : 0; }

 private:
  bool packing_ = false;
};

[[maybe_unused]] const bool added = stages().add("sft", [] { return std::unique_ptr<Stage>(new Sft); });

}  // namespace
}  // namespace hone
