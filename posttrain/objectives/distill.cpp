// The objective "distill": a student learns a teacher's next-token distributions. loss = "full" is generalized
// knowledge distillation (GKD, Agarwal et al. 2023) as in TRL: a divergence over the full vocabulary. loss = "top_k" is
// the forward KL from stored log-probs of a teacher's most likely tokens. loss = "sampled" is the reverse KL of sampled
// tokens as a policy gradient, whose advantage is log q - log p (q: the teacher).
#include "posttrain/losses/advantage.h"
#include "posttrain/losses/policy_loss.h"
#include "train/teacher.h"

namespace hone {
namespace {

const Registry<TopRest>& rests() {
  static const Registry<TopRest> registry = [] {
    Registry<TopRest> r("teacher_rest");
    r.add("bucket", TopRest::bucket);
    r.add("renormalize", TopRest::renormalize);
    r.add("ignore", TopRest::ignore);
    return r;
  }();
  return registry;
}

struct DistillSettings : ObjectiveSettings {
  TeacherConfig teacher;
  std::string loss = "full", rest = "bucket";
  double beta = 0.5, temperature = 1, lmbda = 0, reward_weight = 0;
  PolicyLoss policy;

  void fields(Fields& f) override {
    teacher_fields(f);
    f("loss", loss,
      "full: the divergence of both distributions over the full vocabulary; sampled: the reverse KL of sampled tokens "
      "as a policy gradient (stage rl); top_k: the forward KL from log-probs that the rows hold (stage sft; columns "
      "ids, top_ids and top_logp of hone logprobs --top-logprobs)");
    if (is_top_k()) f.default_if_absent("beta", 0);
    f("beta", beta, "divergence: 0 = forward KL, 1 = reverse KL, between them the generalized Jensen-Shannon (TRL's)");
    f("teacher_rest", rest,
      "with loss = 'top_k', the probability that the stored tokens leave over: bucket = one more token stands for all "
      "others of teacher and student; renormalize = the stored probabilities are divided by their sum; ignore = the "
      "sum over the stored tokens only");
    f("temperature", temperature, "both models' logits are divided by it in the divergence; 1 with loss = 'top_k'");
    f("lmbda", lmbda,
      "share of tasks whose completions the student samples, as in TRL: 0 = none (stage sft); above 0 in a stage rl, "
      "where the other tasks have the row's completion (field completion, else the answer)");
    f("reward_weight", reward_weight,
      "weight of the policy gradient of rewards, whose advantages are grpo's; 0 = rewards are only measured (stage "
      "rl)");
    policy.fields(f, {.beta = "kl_loss_coef"});
    f.require("loss", loss == "full" || is_sampled() || is_top_k(),
              concat("loss = '", loss, "' is unknown; known: full, sampled, top_k"));
    f.require("beta", beta >= 0 && beta <= 1, "beta must be in [0, 1]");
    f.require("beta", beta == 0 || !is_top_k(), "loss = 'top_k' is the forward KL: set beta to 0 or remove it");
    f.require("teacher_rest", rests().contains(rest), rests().unknown(rest));
    f.require("temperature", temperature > 0, "temperature must be above 0");
    f.require("temperature", temperature == 1 || !is_top_k(),
              "stored log-probs have temperature 1: remove temperature");
    f.require("lmbda", lmbda >= 0 && lmbda <= 1, "lmbda must be in [0, 1]");
    f.require("lmbda", lmbda == 0 || !is_top_k(),
              "loss = 'top_k' learns from stored rows: set lmbda to 0 and use it in a stage sft");
    f.require("reward_weight", reward_weight >= 0, "reward_weight must be 0 or more");
    const bool all_sampled = lmbda == 1;
    f.require("loss", !is_sampled() || all_sampled,
              "loss = 'sampled' learns from sampled completions: set lmbda to 1 and use it in a stage rl");
    f.require("reward_weight", reward_weight == 0 || all_sampled,
              "reward_weight needs sampled completions: set lmbda to 1 and use it in a stage rl");
    require_teacher(f);
  }
  void validate(const RunFacts& facts) const override {
    ObjectiveSettings::validate(facts);
    HONE_CHECK(teacher.is_local() || facts.temperature == 1, "a teacher on a server or on workers gives log-probs of ",
               "temperature 1, and sampling.temperature is ", facts.temperature,
               ": set it to 1 or use a teacher's folder");
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
  bool is_top_k() const { return loss == "top_k"; }
  bool has_policy_loss() const { return is_sampled() || reward_weight > 0; }
  TeacherObjective::Term term() const {
    return {.divergence = {.beta = beta, .inv_temperature = 1 / temperature},
            .weight = is_sampled() ? 0.0 : 1.0,
            .stored = is_top_k(),
            .rest = rests().at(rest)};
  }

 private:
  void teacher_fields(Fields& f) {
    f("teacher", teacher.folder, "model folder of the teacher; it must have the student's vocabulary");
    f("teacher_context", teacher.context_field,
      "field of a row whose text the teacher reads before the prompt (self-distillation from privileged context); "
      "without another teacher the teacher is the model as the stage began; empty = none");
    f("teacher_endpoint", teacher.endpoint,
      "an OpenAI-compatible server as the teacher of loss = 'sampled', instead of `teacher`: it returns log-probs of "
      "given token ids; base_url empty = none");
    f("teacher_workers", teacher.workers,
      "addresses of hone workers that compute the log-probs of loss = 'sampled' with the model of `teacher`; the "
      "worker_ keys of [rollout] count for them, too; empty = the learner computes them");
  }
  void require_teacher(Fields& f) const {
    const bool no_teacher = teacher.folder.empty() && teacher.context_field.empty();
    f.require("teacher", !is_top_k() || (no_teacher && teacher.is_local()),
              "loss = 'top_k' reads log-probs from the rows: remove teacher, teacher_context, teacher_endpoint and "
              "teacher_workers");
    f.require("teacher_endpoint", !teacher.has_endpoint() || is_sampled(),
              "a server returns log-probs of single tokens: set loss to 'sampled', or use a teacher's folder");
    f.require("teacher_endpoint", !teacher.has_endpoint() || (teacher.folder.empty() && teacher.workers.empty()),
              "the teacher is a server, or a folder: remove teacher_endpoint, or teacher and teacher_workers");
    f.require("teacher_workers", teacher.workers.empty() || is_sampled(),
              "workers return log-probs of single tokens: set loss to 'sampled', or remove teacher_workers");
    f.require("teacher_workers", teacher.workers.empty() || !teacher.folder.empty(),
              "teacher_workers need the folder of the teacher's model: set teacher");
  }
};

class Distill : public TeacherObjective {
 public:
  Distill(const DistillSettings& settings, const RunFacts& facts)
      : TeacherObjective(settings.teacher, settings.term()), settings_(settings), policy_(settings.policy) {
    policy_.correction.resolve(facts.off_policy);
  }

  Needs needs() const override {
    Needs out;
    if (settings_.has_policy_loss()) out = policy_.needs();
    std::erase(out.columns, columns::advantage);
    out.optional.push_back(columns::advantage);
    out.optional.push_back(columns::divergence);
    out.optional.push_back(columns::teacher_context);
    if (settings_.is_top_k())
      out.columns.insert(out.columns.end(), {columns::teacher_top_ids, columns::teacher_top_logp});
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
