#include "train/micro_batch_runner.h"

#include <algorithm>
#include <cmath>

#include "kernels/lm_head/logprob.h"
#include "kernels/sampling/sample.h"
#include "model/mtp.h"
#include "train/teacher.h"

namespace hone {

// The objective if its loss has a teacher's term, else null.
static const TeacherObjective* taught_by(const Objective& objective) {
  const auto* const taught = dynamic_cast<const TeacherObjective*>(&objective);
  return taught && taught->term().weight != 0 ? taught : nullptr;
}

static bool any(std::span<const float> values) {
  return std::any_of(values.begin(), values.end(), [](float v) { return v != 0; });
}

MicroBatchRunner::MicroBatchRunner(Context& context, Model& model, const TrainerConfig& config, PhaseTimer& phases,
                                   UnitHooks* hooks)
    : context_(context),
      model_(model),
      phases_(phases),
      pass_(context, model, config.recomputation(), hooks),
      arena_(context.device()),
      host_(context),
      z_loss_(static_cast<float>(config.z_loss)),
      inv_temperature_(inverse_temperature(static_cast<float>(config.temperature))),
      noise_{.alpha = static_cast<float>(config.neftune_noise_alpha), .seed = config.noise_seed, .first = 0} {
  HONE_CHECK(config.temperature > 0, "trainer: temperature ", config.temperature, " must be above 0");
}

void MicroBatchRunner::reserve(const PeakBytes& peak) {
  pass_.reserve(peak.tape);
  arena_.release({});  // of what values() has left
  arena_.reserve(peak.columns);
}

void MicroBatchRunner::read_rows(const MicroBatchData& staging, Tensor rows, std::vector<float>& column) const {
  if (is_dry_run())
    column.assign(staging.logp.size(), 0);
  else
    staging.to_tokens(rows.as<float>(), column);
}

void MicroBatchRunner::add_token_accuracy(Tensor hits, MetricSums& metrics) const {
  if (is_dry_run()) return;
  double sum = 0;
  for (const float hit : hits.as<float>()) sum += hit;
  metrics.add("mean_token_accuracy", sum, static_cast<double>(hits.size()));
}

void MicroBatchRunner::add_token_accuracy(const MicroBatchData& staging, Tensor hits, const Needs& needs,
                                          MetricSums& metrics) const {
  if (needs.unit != LossUnit::pair) return add_token_accuracy(hits, metrics);
  if (is_dry_run()) return;
  std::vector<float> hit;
  read_rows(staging, hits, hit);
  const TokenBatch batch = staging.batch(1);
  const std::span<const float> mask = batch[columns::mask];
  for (size_t s = 0; s < batch.num_sequences(); s += 2)
    for (auto t = static_cast<size_t>(batch.offsets[s]); t < static_cast<size_t>(batch.offsets[s + 1]); ++t)
      if (mask[t] != 0) metrics.add("mean_token_accuracy", hit[t], 1);
}

Tensor MicroBatchRunner::rows_of(const MicroBatchData& staging, std::span<const float> column) {
  staging.to_rows(column, row_values_);
  return upload(context_, arena_, std::span<const float>(row_values_));
}

double MicroBatchRunner::evaluate(MicroBatchData& staging, const Objective& objective, double scale,
                                  MetricSums& metrics) const {
  const TokenGrad grad = staging.zeroed_grad();
  if (is_dry_run()) return 0;
  const TokenBatch batch = staging.batch(scale);
  check_batch(objective.needs(), batch);
  return objective.loss(batch, grad, metrics);
}

MicroBatchRunner::Packed MicroBatchRunner::pack(const MicroBatchData& staging) {
  arena_.release({});
  const Batch batch = pack_batch(context_, arena_, staging.parts());
  const std::vector<Tensor> columns = upload(context_, arena_, {staging.rows(), staging.targets()});
  return {batch, columns[0], columns[1]};
}

AuxLoss MicroBatchRunner::aux_loss(const MicroBatchData& staging, LossUnit unit, double scale,
                                   const MicroBatchPosition& place) {
  if (!place.aux_sums) return {};
  const TokenBatch batch = staging.batch(scale);
  const std::span<const float> mask = batch[columns::mask];
  token_weights_.assign(mask.size(), 0.0f);
  target_weights_.assign(mask.size(), 0.0f);
  for (size_t s = 0; s < batch.num_sequences(); ++s) {
    const auto first = static_cast<size_t>(batch.offsets[s]), last = static_cast<size_t>(batch.offsets[s + 1]);
    const std::span<const float> own = mask.subspan(first, last - first);
    const auto trained = std::ranges::count_if(own, [](float m) { return m != 0; });
    if (trained == 0) continue;
    const double weight = scale * count_of(unit, own) / static_cast<double>(trained);
    for (size_t t = first; t < last; ++t) {
      token_weights_[t] = static_cast<float>(place.token_weight);
      if (mask[t] != 0) target_weights_[t] = static_cast<float>(weight);
    }
  }
  AuxLoss out{.weights = upload(context_, arena_, std::span<const float>(token_weights_)), .sums = place.aux_sums};
  if (mtp_of(model_)) out.target_weights = upload(context_, arena_, std::span<const float>(target_weights_));
  return out;
}

Tensor MicroBatchRunner::forward(const MicroBatchData& staging, const Packed& packed, const MicroBatchPosition& place,
                                 const Objective& objective, double scale) {
  const AuxLoss aux = aux_loss(staging, objective.needs().unit, scale, place);
  noise_.first = (static_cast<uint64_t>(place.step) << 32) + static_cast<uint64_t>(place.first_sample);
  phases_.mark(Phase::data);
  const Tensor hidden = pass_.forward(packed.batch, packed.rows, noise_,
                                      DropoutStream{.step = place.step, .first_token = place.first_token}, aux);
  phases_.mark(Phase::forward);
  return hidden;
}

void MicroBatchRunner::queue_static_grad(MicroBatchData& staging, const Objective& objective, double scale,
                                         const MicroBatchPosition& place, Tensor logp, Tensor hit) {
  if (staging.rows().empty()) return;
  MetricSums unused;
  evaluate(staging, objective, scale, unused);
  const Packed packed = pack(staging);
  const LogprobGrad grad{.logp = rows_of(staging, staging.grad_logp), .entropy = {}, .z_loss = z_loss_};
  const Tensor hidden = forward(staging, packed, place, objective, scale);
  const Tensor lse = arena_.take(DType::f32, {packed.rows.size()}), dhidden = dhidden_for(packed.rows);
  const Param& head = model_.lm_head();
  pass_.begin_backward();
  logprob_fused(context_, {.logp = logp,
                           .lse = lse,
                           .hit = hit,
                           .dhidden = dhidden,
                           .dw = head.grad_target(),
                           .grad = grad,
                           .hidden = hidden,
                           .w = head.value,
                           .targets = packed.targets,
                           .inv_temperature = inv_temperature_,
                           .softcap = model_.shape().logit_softcap});
  phases_.mark(Phase::lm_head);
  pass_.backward(dhidden);
  phases_.mark(Phase::backward);
}

double MicroBatchRunner::run_lm_head(MicroBatchData& staging, const Objective& objective, double scale, Critic* critic,
                                     MetricSums& metrics, const Packed& packed, Tensor hidden, Tensor dhidden) {
  const Needs needs = objective.needs();
  const Tensor targets = packed.targets;
  const int64_t rows = targets.size();
  const Tensor logp = arena_.take(DType::f32, {rows}), lse = arena_.take(DType::f32, {rows});
  const Tensor entropy = needs.entropy ? arena_.take(DType::f32, {rows}) : Tensor();
  const Tensor value = needs.critic ? arena_.take(DType::f32, {rows, 1}) : Tensor();
  const Tensor hit = needs.token_accuracy ? arena_.take(DType::f32, {rows}) : Tensor();
  const Param& head = model_.lm_head();
  logprob_forward(context_, {.logp = logp,
                             .lse = lse,
                             .entropy = entropy,
                             .hit = hit,
                             .hidden = hidden,
                             .w = head.value,
                             .targets = targets,
                             .inv_temperature = inv_temperature_,
                             .softcap = model_.shape().logit_softcap});
  if (needs.critic) critic->forward(value, packed.batch, packed.rows, hidden);
  phases_.mark(Phase::lm_head);
  host_.clear();
  const Tensor host_logp = host_.fetch(logp), host_entropy = needs.entropy ? host_.fetch(entropy) : Tensor(),
               host_value = needs.critic ? host_.fetch(value) : Tensor(),
               host_hit = needs.token_accuracy ? host_.fetch(hit) : Tensor();
  context_.synchronize();
  read_rows(staging, host_logp, staging.logp);
  if (needs.entropy) read_rows(staging, host_entropy, staging.entropy);
  if (needs.critic) read_rows(staging, host_value, staging.value);
  if (needs.token_accuracy) add_token_accuracy(staging, host_hit, needs, metrics);
  const double loss = evaluate(staging, objective, scale, metrics);
  if (!std::isfinite(loss)) return loss;

  if (!computes_gradients_) {
    const Tensor dvalue = rows_of(staging, staging.grad_value).view({rows, 1});
    context_.zero(dhidden);  // a shared trunk's critic adds to it; nothing reads the sum
    phases_.mark(Phase::data);
    pass_.begin_backward();
    critic->backward(dhidden, dvalue, hidden);
    phases_.mark(Phase::lm_head);
    return loss;
  }
  const Tensor dvalue = needs.critic ? rows_of(staging, staging.grad_value).view({rows, 1}) : Tensor();
  phases_.mark(Phase::data);
  pass_.begin_backward();
  const TeacherObjective* const taught = is_dry_run() ? nullptr : taught_by(objective);
  // A loss that is the teacher's term alone has no gradient by log-probs.
  if (taught && !any(staging.grad_logp) && !any(staging.grad_entropy) && z_loss_ == 0)
    context_.zero(dhidden);
  else
    run_logprob_backward(staging, packed, hidden, lse, entropy, dhidden);
  if (needs.critic) critic->backward(dhidden, dvalue, hidden);
  const double term = taught ? add_teacher_term(staging, *taught, scale, metrics, packed, hidden, dhidden) : 0;
  phases_.mark(Phase::lm_head);
  return loss + term;
}

void MicroBatchRunner::run_logprob_backward(const MicroBatchData& staging, const Packed& packed, Tensor hidden,
                                            Tensor lse, Tensor entropy, Tensor dhidden) {
  const Param& head = model_.lm_head();
  LogprobGrad grad{.logp = rows_of(staging, staging.grad_logp), .entropy = {}, .z_loss = z_loss_};
  if (any(staging.grad_entropy)) grad.entropy = rows_of(staging, staging.grad_entropy);
  logprob_backward(context_, {.dhidden = dhidden,
                              .dw = head.grad_target(),
                              .grad = grad,
                              .lse = lse,
                              .entropy = grad.entropy ? entropy : Tensor(),
                              .hidden = hidden,
                              .w = head.value,
                              .targets = packed.targets,
                              .inv_temperature = inv_temperature_,
                              .softcap = model_.shape().logit_softcap});
}

double MicroBatchRunner::add_teacher_term(const MicroBatchData& staging, const TeacherObjective& objective,
                                          double scale, MetricSums& metrics, const Packed& packed, Tensor hidden,
                                          Tensor dhidden) {
  const ScratchScope scope(context_);
  const double factor = scale * objective.term().weight;
  std::vector<float> mask, weights;
  staging.to_rows(staging.batch(scale)[columns::mask], mask);
  for (const float m : mask) weights.push_back(static_cast<float>(factor * m));
  const Tensor divergence = arena_.take(DType::f32, {packed.rows.size()});
  run_teacher_term(context_, arena_, objective, staging, packed.batch, packed.rows,
                   {.divergence = divergence,
                    .dhidden = dhidden,
                    .dw = model_.lm_head().grad_to_add_to(context_),
                    .weight = upload(context_, arena_, std::span<const float>(weights)),
                    .hidden = hidden,
                    .w = model_.lm_head().value,
                    .kind = {},
                    .softcap = model_.shape().logit_softcap});
  host_.clear();
  const Tensor host_divergence = host_.fetch(divergence);
  context_.synchronize();
  const std::span<const float> values = host_divergence.as<float>();
  double sum = 0;
  for (size_t r = 0; r < values.size(); ++r) {
    sum += factor * mask[r] * values[r];
    metrics.add("distill/divergence", mask[r] * values[r], mask[r]);
  }
  return sum;
}

double MicroBatchRunner::run(MicroBatchData& staging, const Objective& objective, double scale,
                             const MicroBatchPosition& place, Critic* critic, MetricSums& metrics) {
  if (staging.rows().empty()) {
    const Needs needs = objective.needs();
    if (needs.critic) staging.value.assign(staging.logp.size(), 0);
    if (needs.entropy) staging.entropy.assign(staging.logp.size(), 0);
    return evaluate(staging, objective, scale, metrics);
  }
  const Packed packed = pack(staging);
  const Tensor hidden = forward(staging, packed, place, objective, scale), dhidden = dhidden_for(packed.rows);
  const double loss = run_lm_head(staging, objective, scale, critic, metrics, packed, hidden, dhidden);
  if (!std::isfinite(loss))
    skip_backward(objective, critic);
  else if (computes_gradients_)
    pass_.backward(dhidden);
  else
    pass_.skip_backward();
  phases_.mark(Phase::backward);
  return loss;
}

void MicroBatchRunner::skip(const Objective& objective, Critic* critic) {
  pass_.skip_forward();
  if (critic) critic->skip_forward();
  skip_backward(objective, critic);
}

void MicroBatchRunner::skip_backward(const Objective& objective, Critic* critic) {
  pass_.begin_backward();
  if (critic) critic->skip_backward();
  if (const TeacherObjective* taught = is_dry_run() ? nullptr : taught_by(objective))
    skip_teacher_term(context_, *taught);
  pass_.skip_backward();
}

void MicroBatchRunner::measure(MicroBatchData& staging, const Objective& objective, double scale, MetricSums& metrics) {
  const ScratchScope scope(context_);
  const Packed packed = pack(staging);
  const int64_t rows = packed.rows.size();
  const Tensor logp = arena_.take(DType::f32, {rows}), lse = arena_.take(DType::f32, {rows}),
               entropy = arena_.take(DType::f32, {rows});
  phases_.mark(Phase::data);
  const Tensor hidden = infer(context_, model_, packed.batch, packed.rows, nullptr);
  logprob_forward(context_, {.logp = logp,
                             .lse = lse,
                             .entropy = entropy,
                             .hidden = hidden,
                             .w = model_.lm_head().value,
                             .targets = packed.targets,
                             .inv_temperature = inv_temperature_,
                             .softcap = model_.shape().logit_softcap});
  phases_.mark(Phase::forward);
  host_.clear();
  const Tensor host_logp = host_.fetch(logp), host_entropy = host_.fetch(entropy);
  context_.synchronize();
  read_rows(staging, host_logp, staging.logp);
  read_rows(staging, host_entropy, staging.entropy);
  evaluate(staging, objective, scale, metrics);
}

std::vector<float> MicroBatchRunner::values(const MicroBatchData& staging, Critic& critic) {
  std::vector<float> out(staging.logp.size(), 0.0f);
  if (staging.rows().empty()) {
    critic.skip_score();
    return out;
  }
  const ScratchScope scope(context_);
  const Packed packed = pack(staging);
  const Tensor value = arena_.take(DType::f32, {packed.rows.size(), 1});
  critic.score(value, packed.batch, packed.rows);
  host_.clear();
  const Tensor host_value = host_.fetch(value);
  context_.synchronize();
  read_rows(staging, host_value, out);
  return out;
}

}  // namespace hone
