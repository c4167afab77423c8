#include "pretrain/trainer.h"

#include <algorithm>
#include <cmath>

#include "core/stopwatch.h"
#include "kernels/logprob.h"
#include "kernels/optimizer.h"
#include "pretrain/critic.h"
#include "pretrain/dump.h"
#include "pretrain/packing.h"
#include "pretrain/staging.h"

namespace hone {

void TrainerConfig::fields(Fields& f) {
  f("micro_batch_tokens", micro_batch_tokens, "packed tokens of one forward and backward pass; a step's samples are cut into as many as needed");
  f("max_grad_norm", max_grad_norm, "clips the gradient's global norm; 0: no clip");
  f("z_loss", z_loss, "weight of the squared log-sum-exp of the logits; 0: none");
  f("recompute", recompute, "none | block: keep a block's input alone and run its forward pass again in backward");
  f("optimizer", optimizer, "adamw | sgd | rmsprop");
  f.require("micro_batch_tokens", micro_batch_tokens > 0, "micro_batch_tokens must be positive");
  f.require("max_grad_norm", max_grad_norm >= 0, "max_grad_norm must be 0 or more");
  f.require("z_loss", z_loss >= 0, "z_loss must be 0 or more");
  f.require("recompute", recompute == "none" || recompute == "block", "recompute must be none or block");
  f.require("optimizer", optimizers().contains(optimizer), optimizers().unknown(optimizer));
  if (f.reading() || !optimizer_settings) optimizer_settings = optimizers().at(optimizer)();
  optimizer_settings->fields(f);
}

namespace {

std::unique_ptr<Optimizer> make_optimizer(const TrainerConfig& config) {
  return config.optimizer_settings ? config.optimizer_settings->fresh() : optimizers().at(config.optimizer)();
}

// What outside data can get wrong about a sample.
void check_sample(const Sample& sample, size_t index, const ModelShape& shape) {
  const auto length = static_cast<int64_t>(sample.tokens.size());
  HONE_CHECK(shape.max_positions == 0 || length <= shape.max_positions, "trainer: sample ", index, " has ", length, " tokens, the model ",
             shape.max_positions, " positions");
  HONE_CHECK(sample.mask.size() == sample.tokens.size(), "trainer: sample ", index, " has ", length, " tokens and a mask of ", sample.mask.size());
  HONE_CHECK(length == 0 || sample.mask[0] == 0, "trainer: sample ", index, " trains on its first token, which nothing predicts");
  for (const int32_t id : sample.tokens)
    HONE_CHECK(id >= 0 && id < shape.vocab_size, "trainer: sample ", index, " has token ", id, ", the model's vocabulary ends at ", shape.vocab_size,
               " (is the tokenizer another model's?)");
}

bool any(std::span<const float> values) {
  return std::any_of(values.begin(), values.end(), [](float v) { return v != 0; });
}

}  // namespace

struct Trainer::Impl {
  Impl(Context& context_, Model& model_, TrainerConfig config_)
      : context(context_),
        model(model_),
        config(std::move(config_)),
        optimizer(make_optimizer(config)),
        pass(context, model, config.recompute == "block" ? Recompute::block : Recompute::none),
        arena(context.device()),
        inv_temperature(static_cast<float>(1 / config.temperature)) {
    HONE_CHECK(config.temperature > 0, "trainer: temperature ", config.temperature, " must be above 0");
    optimizer->attach(context, model.params());
    for (const Param* param : model.params())
      if (param->trainable) trained.push_back(param->grad.view({param->grad.size()}));
  }

  Critic& the_critic() {
    if (!critic) critic = std::make_unique<Critic>(context, model.shape().hidden_size, make_optimizer(config));
    return *critic;
  }

  // Reads a tensor of rows into the entries of a column.
  void read_rows(Tensor rows, std::vector<float>& column) {
    row_values.resize(static_cast<size_t>(rows.size()));
    context.copy(host_view(std::span(row_values)), rows.view({rows.size()}));
    staging.to_tokens(row_values, column);
  }
  Tensor rows_of(std::span<const float> column) {
    staging.to_rows(column, row_values);
    return upload(context, arena, std::span<const float>(row_values));
  }

  // The objective's loss of what is staged; its gradient is staged too.
  double evaluate(const Objective& objective, double scale, MetricSums& metrics) {
    const TokenBatch batch = staging.batch(scale);
    check_batch(objective.needs(), batch);
    return objective.loss(batch, staging.zeroed_grad(), metrics);
  }

  double forward_backward(std::span<const Sample* const> samples, const Objective& objective, double scale, MetricSums& metrics);
  void linear_head(const Objective& objective, double scale, Tensor hidden, Tensor targets, Tensor dhidden);
  double general_head(const Objective& objective, const Needs& needs, double scale, MetricSums& metrics, Tensor hidden, Tensor targets,
                      Tensor dhidden);
  double global_norm(Tensor clip);
  [[noreturn]] void refuse(const char* what, double value, std::span<const Sample* const> samples) const;

  Context& context;
  Model& model;
  TrainerConfig config;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<Critic> critic;
  Pass pass;
  Arena arena;  // of one micro-batch
  float inv_temperature;
  std::filesystem::path dump_path;
  int64_t steps = 0;
  std::vector<Tensor> trained;  // gradients of the trainable parameters, flat
  Staging staging;
  std::vector<MicroBatch> micro_batches;
  std::vector<float> row_values;
};

void Trainer::Impl::refuse(const char* what, double value, std::span<const Sample* const> samples) const {
  std::string where;
  if (!dump_path.empty()) {
    dump_samples(dump_path, samples);
    where = "; its samples are in " + dump_path.string();
  }
  fail("step ", steps + 1, ": the ", what, " is ", number_text(value), where, "; the weights are as before the step");
}

// The gradient is known before the log-probs are: one pass over the vocabulary.
void Trainer::Impl::linear_head(const Objective& objective, double scale, Tensor hidden, Tensor targets, Tensor dhidden) {
  MetricSums unused;
  evaluate(objective, scale, unused);
  const Tensor logp = arena.take(DType::f32, {targets.size()}), lse = arena.take(DType::f32, {targets.size()});
  const LogprobGrad grad{.logp = rows_of(staging.grad_logp), .entropy = {}, .z_loss = static_cast<float>(config.z_loss)};
  Param& head = model.head();
  logprob_fused(context, logp, lse, dhidden, head.grad, grad, hidden, head.value, targets, inv_temperature);
  read_rows(logp, staging.logp);
}

double Trainer::Impl::general_head(const Objective& objective, const Needs& needs, double scale, MetricSums& metrics, Tensor hidden, Tensor targets,
                                   Tensor dhidden) {
  const int64_t rows = targets.size();
  const Tensor logp = arena.take(DType::f32, {rows}), lse = arena.take(DType::f32, {rows});
  const Tensor entropy = needs.entropy ? arena.take(DType::f32, {rows}) : Tensor();
  Param& head = model.head();
  logprob_forward(context, logp, lse, entropy, hidden, head.value, targets, inv_temperature);
  read_rows(logp, staging.logp);
  if (needs.entropy) read_rows(entropy, staging.entropy);
  if (needs.critic) {
    const Tensor value = arena.take(DType::f32, {rows, 1});
    critic->forward(value, hidden);
    read_rows(value, staging.value);
  }
  const double loss = evaluate(objective, scale, metrics);
  if (!std::isfinite(loss)) return loss;

  LogprobGrad grad{.logp = rows_of(staging.grad_logp), .entropy = {}, .z_loss = static_cast<float>(config.z_loss)};
  if (any(staging.grad_entropy)) grad.entropy = rows_of(staging.grad_entropy);
  logprob_backward(context, dhidden, head.grad, grad, lse, grad.entropy ? entropy : Tensor(), hidden, head.value, targets, inv_temperature);
  if (needs.critic) critic->backward(dhidden, rows_of(staging.grad_value).view({rows, 1}), hidden);
  return loss;
}

double Trainer::Impl::forward_backward(std::span<const Sample* const> samples, const Objective& objective, double scale, MetricSums& metrics) {
  const Needs needs = objective.needs();
  staging.fill(samples);
  if (staging.rows().empty()) {
    if (needs.critic) staging.value.assign(staging.logp.size(), 0);
    return evaluate(objective, scale, metrics);
  }
  arena.release({});
  const Batch batch = pack_batch(context, arena, staging.parts());
  const Tensor rows = upload(context, arena, staging.rows()), targets = upload(context, arena, staging.targets());
  const Tensor hidden = pass.forward(batch, rows);
  const Tensor dhidden = arena.take(DType::f32, {rows.size(), model.shape().hidden_size});
  double loss;
  if (needs.linear) {
    linear_head(objective, scale, hidden, targets, dhidden);
    loss = evaluate(objective, scale, metrics);
  } else {
    loss = general_head(objective, needs, scale, metrics, hidden, targets, dhidden);
  }
  if (!std::isfinite(loss)) refuse("loss", loss, samples);
  pass.backward(dhidden);
  return loss;
}

// The norm of all gradients; clip [1] is written.
double Trainer::Impl::global_norm(Tensor clip) {
  const Tensor sum = arena.take(DType::f64, {1}), norm = arena.take(DType::f32, {1});
  context.zero(sum);
  for (const Tensor& grad : trained) sum_squares(context, sum, grad);
  if (critic) sum_squares(context, sum, critic->flat_grads());
  clip_factor(context, clip, norm, sum, static_cast<float>(config.max_grad_norm));
  float out = 0;
  context.copy(host_view(std::span(&out, 1)), norm);
  return out;
}

Trainer::Trainer(Context& context, Model& model, TrainerConfig config) : impl_(std::make_unique<Impl>(context, model, std::move(config))) {}
Trainer::~Trainer() = default;

StepReport Trainer::step(std::span<const Sample* const> samples, const Objective& objective, double learning_rate) {
  const Stopwatch watch;
  Impl& m = *impl_;
  const Needs needs = objective.needs();
  HONE_CHECK(!samples.empty(), "trainer: a step needs at least one sample");
  StepReport report;
  report.learning_rate = learning_rate;
  report.num_sequences = static_cast<int64_t>(samples.size());
  double count = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    check_sample(*samples[i], i, m.model.shape());
    count += count_of(needs.per, samples[i]->mask);
    report.num_tokens += static_cast<int64_t>(samples[i]->tokens.size());
    report.num_trained_tokens += std::count_if(samples[i]->mask.begin(), samples[i]->mask.end(), [](float v) { return v != 0; });
  }
  cut_micro_batches(samples, needs.per == Per::pair ? 2 : 1, m.config.micro_batch_tokens, m.micro_batches);

  m.model.zero_grad(m.context);
  if (needs.critic) m.the_critic();
  if (m.critic) m.critic->zero_grad();
  MetricSums metrics;
  for (const MicroBatch& micro : m.micro_batches)
    report.loss += m.forward_backward(samples.subspan(micro.begin, micro.end - micro.begin), objective, scale_of(count), metrics);

  m.arena.release({});
  const Tensor clip = m.arena.take(DType::f32, {1});
  report.grad_norm = m.global_norm(clip);
  if (!std::isfinite(report.grad_norm)) m.refuse("gradient's norm", report.grad_norm, samples);
  m.optimizer->update(m.context, clip, m.steps + 1, learning_rate);
  if (m.critic) m.critic->update(clip, m.steps + 1, learning_rate);
  m.context.synchronize();
  ++m.steps;
  report.metrics = metrics.means();
  report.seconds = watch.seconds();
  return report;
}

void Trainer::dump_to(std::filesystem::path path) { impl_->dump_path = std::move(path); }

std::vector<std::vector<float>> Trainer::values(std::span<const Sample* const> samples) {
  Impl& m = *impl_;
  std::vector<std::vector<float>> out;
  for (size_t i = 0; i < samples.size(); ++i) check_sample(*samples[i], i, m.model.shape());
  cut_micro_batches(samples, 1, m.config.micro_batch_tokens, m.micro_batches);
  std::vector<float> tokens;
  for (const MicroBatch& micro : m.micro_batches) {
    m.staging.fill(samples.subspan(micro.begin, micro.end - micro.begin));
    m.arena.release({});
    tokens.assign(m.staging.logp.size(), 0);
    if (!m.staging.rows().empty()) {
      const ScratchScope scope(m.context);
      const Batch batch = pack_batch(m.context, m.arena, m.staging.parts());
      const Tensor rows = upload(m.context, m.arena, m.staging.rows()), value = m.arena.take(DType::f32, {rows.size(), 1});
      m.the_critic().forward(value, infer(m.context, m.model, batch, rows, nullptr));
      m.read_rows(value, tokens);
    }
    auto begin = tokens.begin();
    for (size_t i = micro.begin; i < micro.end; ++i) {
      const auto end = begin + static_cast<std::ptrdiff_t>(samples[i]->tokens.size());
      out.emplace_back(begin, end);
      begin = end;
    }
  }
  return out;
}

int64_t Trainer::steps_done() const { return impl_->steps; }

TrainerMemory Trainer::memory() const {
  return {.optimizer = impl_->optimizer->state_bytes(),
          .activations = static_cast<int64_t>(impl_->pass.peak_bytes() + impl_->arena.capacity_bytes())};
}

void Trainer::save_state(StateSection& section) const {
  section.values.set("steps", impl_->steps);
  section.values.set("critic", impl_->critic != nullptr);
  impl_->optimizer->save_state(section);
  if (impl_->critic) impl_->critic->save_state(section);
}

void Trainer::load_state(const StateSection& section) {
  impl_->steps = section.values.at("steps", "trainer state").as_int("trainer state: steps");
  impl_->optimizer->load_state(section);
  if (section.values.at("critic", "trainer state").as_bool("trainer state: critic")) impl_->the_critic().load_state(section);
}

}  // namespace hone
