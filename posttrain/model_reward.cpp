// A reward model's score as a reward (rewards/ sees no models).
#include <cmath>
#include <mutex>

#include "core/io/file.h"
#include "data/prompt.h"
#include "posttrain/reward_model.h"
#include "rewards/reward.h"

namespace hone {
namespace {

// The score of the prompt with the completion. A completion that ended gets the end of turn that the reward model was
// trained with; one that was cut off at its length does not, and pays missing_eos_penalty. The model is loaded when it
// is first asked, on a device of its own: a recipe may name a folder that one of its stages makes.
class ModelReward : public Reward {
 public:
  void fields(Fields& f) override {
    f("path", path_,
      "folder of the reward model (a reward_model stage's checkpoint, or Hugging Face's with score.weight [1, D])");
    format_.fields(f);
    f("missing_eos_penalty", missing_eos_penalty_,
      "subtracted from the score of a completion that was cut off at its length (finish_reason \"length\"); 0 = none");
    f("device", device_, "where it runs: cpu | cuda | auto");
    f.require("path", !path_.empty(), "a reward model needs its folder (path)");
    f.require("missing_eos_penalty", std::isfinite(missing_eos_penalty_) && missing_eos_penalty_ >= 0,
              "missing_eos_penalty is subtracted: it must be 0 or more");
    f.require("device", device_ == "auto" || devices().contains(device_), devices().unknown(device_));
  }
  bool on_host() const override { return false; }

  RewardScore score(const Task& task, const Completion& completion) const override {
    RewardScore out;
    score_group(task, {&completion, 1}, {&out, 1});
    return out;
  }
  void score_group(const Task& task, std::span<const Completion> completions,
                   std::span<RewardScore> scores) const override {
    const GroupScores group{.task = task, .completions = completions, .scores = scores};
    score_groups({&group, 1});
  }
  void score_groups(std::span<const GroupScores> groups) const override {
    const std::lock_guard lock(mutex_);
    if (!model_) {
      model_ = std::make_unique<RewardModel>(expand_path(path_), device_);
      encoder_.emplace(format_, model_->tokenizer());
    }
    std::vector<std::vector<int32_t>> sequences;
    for (const GroupScores& group : groups)
      for (const Completion& completion : group.completions) sequences.push_back(tokens(group.task, completion));
    const std::vector<double> scores = model_->score(sequences);
    auto next = scores.begin();
    for (const GroupScores& group : groups)
      for (size_t i = 0; i < group.scores.size(); ++i) {
        const bool cut = was_cut(group.completions[i]);
        group.scores[i].score = *next++ - (cut ? missing_eos_penalty_ : 0);
        if (cut) group.scores[i].note = "cut off at its length";
      }
  }

 private:
  static bool was_cut(const Completion& completion) { return completion.finish_reason == "length"; }
  // What the reward model reads: up to the end of the assistant's turn or, of a completion that was cut off, up to its
  // last token.
  std::vector<int32_t> tokens(const Task& task, const Completion& completion) const {
    if (was_cut(completion)) {
      std::vector<int32_t> out = encoder_->prompt(task);
      const std::vector<int32_t> text = model_->tokenizer().encode(completion.text);
      out.insert(out.end(), text.begin(), text.end());
      return out;
    }
    if (task.messages.empty()) return encoder_->sample(task.prompt, completion.text).tokens;
    return encoder_->sample(task.messages, {{"assistant", completion.text, {}}}).tokens;
  }

  std::string path_, device_ = "auto";
  double missing_eos_penalty_ = 0;
  PromptFormat format_;
  mutable std::mutex mutex_;  // of what follows
  mutable std::unique_ptr<RewardModel> model_;
  mutable std::optional<PromptEncoder> encoder_;
};

[[maybe_unused]] const bool added =
    rewards().add("reward_model", [] { return std::unique_ptr<Reward>(new ModelReward); });

}  // namespace
}  // namespace hone
