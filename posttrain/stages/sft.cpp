// Supervised fine-tuning on prompts with completions, or on conversations.
#include "posttrain/offline_stage.h"

namespace hone {
namespace {

class Sft : public OfflineStage<SftSource> {
 public:
  Sft() : OfflineStage({"sft", 32, "samples", 2e-5}, 1) {}
  void fields(Fields& f) override {
    data_.fields(f);
    f("packing", packing_,
      "a step is whole samples of at most batch_size * max_length tokens, however many; false: batch_size samples. "
      "Packed or "
      "not, a sample attends to itself alone");
    training_.fields(f);
    f("neftune_noise_alpha", training_.trainer().neftune_noise_alpha,
      "noise on the embeddings in training, uniform within alpha / sqrt(length * width); 0 = none");
    f.require("neftune_noise_alpha", training_.trainer().neftune_noise_alpha >= 0,
              "neftune_noise_alpha must be 0 or more");
    training_.packed_tokens = packing_ ? training_.batch_size() * data_.sample.max_length : 0;
  }

 protected:
  std::vector<Group> load(const SftSource& source, const Tokenizer& tokenizer) const override {
    std::vector<Group> groups;
    for (Sample& sample : load_sft(source, tokenizer)) groups.emplace_back().samples.push_back(std::move(sample));
    return groups;
  }

 private:
  bool packing_ = false;
};

[[maybe_unused]] const bool added = stages().add("sft", [] { return std::unique_ptr<Stage>(new Sft); });

}  // namespace
}  // namespace hone
