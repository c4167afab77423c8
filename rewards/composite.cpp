// Several rewards added up: sum of weight * score over the parts that have something to say. Every part's score is reported by name.

#include "rewards/reward.h"

namespace hone {

namespace {

class Composite : public Reward {
 public:
  void fields(Fields& f) override {
    f("parts", parts_, "the rewards that are added, each with its kind, weight and own keys");
    f("normalize", normalize_, "divide by the sum of the weights of the parts that were not skipped");
  }
  void prepare() override {
    HONE_CHECK(!parts_.empty(), "parts: there are none");
    names_.clear();
    for (const RewardSpec& part : parts_) {
      std::string name = part.kind;
      for (int n = 2; std::find(names_.begin(), names_.end(), name) != names_.end(); ++n) name = part.kind + "_" + std::to_string(n);
      names_.push_back(std::move(name));
    }
  }
  Score score(const Task& task, const Completion& completion) const override {
    Score out;
    score_group(task, {&completion, 1}, {&out, 1});
    return out;
  }
  void score_group(const Task& task, std::span<const Completion> completions, std::span<Score> scores) const override {
    std::vector<double> weights(completions.size(), 0.0);
    for (Score& score : scores) score = Score{};
    std::vector<Score> given(completions.size());
    for (size_t p = 0; p < parts_.size(); ++p) {
      parts_[p].reward->score_group(task, completions, given);
      for (size_t i = 0; i < scores.size(); ++i) add(scores[i], weights[i], given[i], names_[p], parts_[p].weight);
    }
    for (size_t i = 0; i < scores.size(); ++i) {
      scores[i].skipped = scores[i].parts.empty();
      if (normalize_ && weights[i] != 0) scores[i].score /= weights[i];
    }
  }

 private:
  static void add(Score& sum, double& weights, const Score& part, const std::string& name, double weight) {
    if (!part.note.empty()) sum.note += (sum.note.empty() ? "" : "; ") + name + ": " + part.note;
    if (part.skipped) return;
    sum.score += weight * part.score;
    weights += weight;
    sum.parts[name] = part.score;
    for (const auto& [inner, score] : part.parts) sum.parts[name + "/" + inner] = score;
  }

  std::vector<RewardSpec> parts_;
  bool normalize_ = false;
  std::vector<std::string> names_;  // of the parts, each once: a second "math" is "math_2"
};

[[maybe_unused]] const bool added = rewards().add("composite", [] { return std::unique_ptr<Reward>(new Composite); });

}  // namespace

}  // namespace hone
