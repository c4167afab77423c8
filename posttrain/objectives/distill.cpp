// The objective "distill": a student learns a teacher's next-token distributions. loss = "full" is generalized
// knowledge distillation (GKD, Agarwal et al. 2023) as in TRL: a divergence over the full vocabulary. loss = "sampled"
// is the reverse KL of sampled tokens as a policy gradient, whose advantage is log q - log p (q: the teacher).
#include "posttrain/losses/advantage.h"
#include "posttrain/losses/policy_loss.h"
#include "train/teacher.h"

namespace hone {
namespace {

struct DistillSettings : ObjectiveSettings {
  std::string teacher, teacher_context, loss = "full";
  double beta = 0.5, temperature = 1, lmbda = 0, reward_weight = 0;
  PolicyLoss policy;

  void fields(Fields& f) override {
    f("teacher", teacher, "model folder of the teacher; it must have the student's vocabulary");
    f("teacher_context", teacher_context,
      "field of a row whose text the teacher reads before the prompt (self-distillation from privileged context, with "
      "loss = 'sampled'); without `teacher` the teacher is the model as the stage began; empty = none");
    f("loss", loss,
      "full: the divergence of both distributions over the full vocabulary; sampled: the reverse KL of sampled tokens "
      "as a policy gradient (stage rl)");
    f("beta", beta, "divergence: 0 = forward KL, 1 = reverse KL, between them the generalized Jensen-Shannon (TRL's)");
    f("temperature", temperature, "both models' logits are divided by it in the divergence");
    f("lmbda", lmbda,
      "share of tasks whose completions the student samples, as in TRL: 0 = none (stage sft); above 0 in a stage rl, "
      "where the other tasks have the row's completion (field completion, else the answer)");
    f("reward_weight", reward_weight,
      "weight of the policy gradient of rewards, whose advantages are grpo's; 0 = rewards are only measured (stage "
      "rl)");
    policy.fields(f, {.beta = "kl_loss_coef"});
    f.require("loss", loss == "full" || loss == "sampled",
              concat("loss = '", loss, "' is unknown; known: full, sampled"));
    f.require("beta", beta >= 0 && beta <= 1, "beta must be in [0, 1]");
    f.require("temperature", temperature > 0, "temperature must be above 0");
    f.require("lmbda", lmbda >= 0 && lmbda <= 1, "lmbda must be in [0, 1]");
    f.require("teacher_context", teacher_context.empty() || loss == "sampled",
              "teacher_context needs loss = 'sampled'");
    f.require("reward_weight", reward_weight >= 0, "reward_weight must be 0 or more");
    const bool all_sampled = lmbda == 1;
    f.require("loss", loss == "full" || all_sampled,
              "loss = 'sampled' learns from sampled completions: set lmbda to 1 and use it in a stage rl");
    f.require("reward_weight", reward_weight == 0 || all_sampled,
              "reward_weight needs sampled completions: set lmbda to 1 and use it in a stage rl");
  }
  bool compares_group() const override { return reward_weight > 0; }
  std::vector<std::string> warnings(const RunFacts& facts) const override {
    return has_policy_loss() ? policy.warnings(facts) : std::vector<std::string>();
  }
  std::shared_ptr<const ObjectiveSettings> resolved(const RunFacts& facts) const override {
    auto out = std::make_shared<DistillSettings>(*this);
    out->policy.correction.resolve(facts.off_policy);
    return out;
  }
  std::unique_ptr<Objective> make(const RunFacts& facts) const override;

  bool is_sampled() const { return loss == "sampled"; }
  bool has_policy_loss() const { return is_sampled() || reward_weight > 0; }
  TeacherObjective::Term term() const {
    return {.divergence = {.beta = beta, .inv_temperature = 1 / temperature}, .weight = is_sampled() ? 0.0 : 1.0};
  }
};

class Distill : public TeacherObjective {
 public:
  Distill(const DistillSettings& settings, const RunFacts& facts)
      : TeacherObjective({settings.teacher, settings.teacher_context}, settings.term()),
        settings_(settings),
        policy_(settings.policy) {
    policy_.correction.resolve(facts.off_policy);
  }

  Needs needs() const override {
    Needs out;
    if (settings_.has_policy_loss()) out = policy_.needs();
    std::erase(out.columns, columns::advantage);
    out.optional.push_back(columns::advantage);
    out.optional.push_back(columns::divergence);
    if (settings_.is_sampled()) out.columns.push_back(columns::teacher_logp);
    out.data = settings_.lmbda > 0 ? TrainingData::rewarded : TrainingData::completions;
    return out;
  }

  void select_tokens(std::span<Group> groups, MetricSums& metrics) override {
    if (settings_.has_policy_loss()) return policy_.select_tokens(groups, metrics);
    policy_.mask_truncated(groups);
  }
  void compute_advantages(std::span<Group> groups, MetricSums& metrics) override {
    select_tokens(groups, metrics);
    for (Group& group : groups)
      for (Sample& sample : group.samples) set_advantage(sample, 0);
    if (settings_.reward_weight == 0) return;
    const ShapedRewards shaped(policy_.length_penalty, groups, metrics);
    group_advantages(groups, {.scale = RewardScale::group, .eps = 1e-4});
  }

  double loss(const TokenBatch& batch, TokenGrad grad, MetricSums& metrics) const override {
    const double given = given_divergence(batch, metrics);
    return settings_.has_policy_loss() ? given + policy_gradient(batch, grad, metrics) : given;
  }

  double sampled_share() const override { return settings_.lmbda; }

 private:
  double policy_gradient(const TokenBatch& batch, TokenGrad grad, MetricSums& metrics) const {
    const std::span<const float> mask = batch[columns::mask], rewarded = batch.find(columns::advantage);
    std::vector<float> total(batch.num_tokens());
    for (size_t t = 0; t < rewarded.size(); ++t) total[t] = static_cast<float>(settings_.reward_weight) * rewarded[t];
    if (settings_.is_sampled()) {
      const std::span<const float> teacher = batch[columns::teacher_logp], old = batch.has(columns::old_logp)
                                                                                     ? batch.find(columns::old_logp)
                                                                                     : batch[columns::behavior_logp];
      for (size_t t = 0; t < total.size(); ++t) {
        if (mask[t] == 0) continue;
        total[t] += teacher[t] - old[t];
        metrics.add("distill/reverse_kl", mask[t] * (old[t] - teacher[t]), mask[t]);
      }
    }
    TokenBatch with_advantage = batch;
    with_advantage.columns.set(columns::advantage, total);
    return policy_.evaluate(with_advantage, grad, metrics);
  }

  const DistillSettings settings_;
  PolicyLoss policy_;
};

std::unique_ptr<Objective> DistillSettings::make(const RunFacts& facts) const {
  return std::make_unique<Distill>(*this, facts);
}

[[maybe_unused]] const bool added = add_objective<DistillSettings>("distill");

}  // namespace
}  // namespace hone
