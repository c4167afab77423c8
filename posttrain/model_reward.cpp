// A reward model's score as a reward (rewards/ sees no models).
#include <mutex>

#include "core/file.h"
#include "posttrain/prompt.h"
#include "posttrain/reward_model.h"
#include "rewards/reward.h"

namespace hone {
namespace {

// The score of the prompt with the completion, which ends as a finished one does. The model is loaded when it is first asked, on a device of its own:
// a recipe may name a folder that one of its stages makes.
class ModelReward : public Reward {
 public:
  void fields(Fields& f) override {
    f("path", path_, "folder of the reward model (a reward_model stage's checkpoint, or Hugging Face's with score.weight [1, D])");
    format_.fields(f);
    f("device", device_, "where it runs: cpu | cuda | auto");
    f.require("path", !path_.empty(), "a reward model needs its folder (path)");
    f.require("device", device_ == "auto" || devices().contains(device_), devices().unknown(device_));
  }
  bool on_host() const override { return false; }

  Score score(const Task& task, const Completion& completion) const override {
    Score out;
    score_group(task, {&completion, 1}, {&out, 1});
    return out;
  }
  void score_group(const Task& task, std::span<const Completion> completions, std::span<Score> scores) const override {
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
      for (const Completion& completion : group.completions)
        sequences.push_back((group.task.messages.empty() ? encoder_->sample(group.task.prompt, completion.text)
                                                         : encoder_->sample(group.task.messages, {{"assistant", completion.text, {}}}))
                                .tokens);
    const std::vector<double> scores = model_->score(sequences);
    auto next = scores.begin();
    for (const GroupScores& group : groups)
      for (Score& score : group.scores) score.score = *next++;
  }

 private:
  std::string path_, device_ = "auto";
  PromptFormat format_;
  mutable std::mutex mutex_;  // of what follows
  mutable std::unique_ptr<RewardModel> model_;
  mutable std::optional<PromptEncoder> encoder_;
};

[[maybe_unused]] const bool added = rewards().add("reward_model", [] { return std::unique_ptr<Reward>(new ModelReward); });

}  // namespace
}  // namespace hone
