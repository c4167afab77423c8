#include "pretrain/trainer.h"

#include <algorithm>
#include <cmath>

#include "core/stopwatch.h"
#include "kernels/logprob.h"
#include "kernels/optimizer.h"
#include "kernels/sample.h"
#include "pretrain/critic.h"
#include "pretrain/dump.h"
#include "pretrain/packing.h"
#include "pretrain/staging.h"

namespace hone {

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
        pass(context, model, config.recomputation()),
        arena(context.device()),
        step_arena(context.device()),
        host(context.device(), size_t{1} << 16, Place::host),
        phases(context),
        update_phases(context),
        inv_temperature(inverse_temperature(static_cast<float>(config.temperature))) {
    HONE_CHECK(config.temperature > 0, "trainer: temperature ", config.temperature, " must be above 0");
    noise = {.alpha = static_cast<float>(config.neftune_noise_alpha), .seed = config.noise_seed, .first = 0};
    optimizer->attach(context, model.params());
  }

  Critic& the_critic() {
    if (!critic) critic = std::make_unique<Critic>(context, model, config.critic, config.recomputation(), make_optimizer(config));
    return *critic;
  }
  bool counts_only() const { return context.kind() == DeviceKind::meta; }

  // Queues a copy to the host, there after the next synchronize(), until host.release().
  Tensor fetch(Tensor values) {
    const Tensor out = host.take(values.dtype, {values.size()});
    context.copy_later(out, values.view({values.size()}));
    return out;
  }
  // Fetched numbers of rows into the entries of a column.
  void read_rows(const Staging& staging, Tensor rows, std::vector<float>& column) const {
    if (counts_only())
      column.assign(staging.logp.size(), 0);
    else
      staging.to_tokens(rows.as<float>(), column);
  }
  DropoutDraws draws() const { return {.step = steps, .first_token = first_token}; }
  Tensor rows_of(const Staging& staging, std::span<const float> column) {
    staging.to_rows(column, row_values);
    return upload(context, arena, std::span<const float>(row_values));
  }

  // The objective's loss of what is staged; its gradient is staged too.
  double evaluate(Staging& staging, const Objective& objective, double scale, MetricSums& metrics) const {
    const TokenGrad grad = staging.zeroed_grad();
    if (counts_only()) return 0;
    const TokenBatch batch = staging.batch(scale);
    check_batch(objective.needs(), batch);
    return objective.loss(batch, grad, metrics);
  }

  void reserve(std::span<const Sample* const> samples, const Objective& objective);
  void queue_linear(Staging& staging, const Objective& objective, double scale, Tensor logp);
  double run_general(Staging& staging, const Objective& objective, double scale, MetricSums& metrics);
  // What is staged, on the device: its batch, the rows that the head reads and their targets.
  struct Packed {
    Batch batch;
    Tensor rows, targets;
  };
  double general_head(Staging& staging, const Objective& objective, double scale, MetricSums& metrics, const Packed& packed, Tensor hidden,
                      Tensor dhidden);
  Packed pack(const Staging& staging);
  Tensor dhidden_for(Tensor rows) { return arena.take(model.dtype(), {rows.size(), model.shape().hidden_size}); }
  // Clips [1] and norms [1] of the gradients that one optimizer step takes together: the policy's, with a head on its trunk; a critic's of its own.
  struct Norm {
    Tensor clip, norm;
  };
  Norm queue_norm(const std::function<void(Tensor)>& add_squares);
  [[noreturn]] void refuse(const char* what, double value, std::span<const Sample* const> samples) const;

  Context& context;
  Model& model;
  TrainerConfig config;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<Critic> critic;
  Pass pass;
  Arena arena;       // of one micro-batch
  Arena step_arena;  // of one step
  Arena host;        // what is fetched
  Phases phases, update_phases;
  float inv_temperature;
  EmbeddingNoise noise;  // of the micro-batch under way
  std::filesystem::path dump_path;
  int64_t steps = 0;
  int64_t first_token = 0;  // of the micro-batch, among the step's
  int64_t reserved_tokens = 0;
  std::vector<Staging> stagings;
  std::vector<MicroBatch> micro_batches;
  std::vector<const Sample*> working;  // of a step: the samples that are not idle
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

Trainer::Impl::Packed Trainer::Impl::pack(const Staging& staging) {
  arena.release({});
  const Batch batch = pack_batch(context, arena, staging.parts());
  const std::vector<Tensor> columns = upload(context, arena, {staging.rows(), staging.targets()});
  return {batch, columns[0], columns[1]};
}

// The gradient is known before the log-probs are: one pass over the vocabulary, and nothing waits for the host.
void Trainer::Impl::queue_linear(Staging& staging, const Objective& objective, double scale, Tensor logp) {
  if (staging.rows().empty()) return;
  MetricSums unused;
  evaluate(staging, objective, scale, unused);
  const Packed packed = pack(staging);
  const LogprobGrad grad{.logp = rows_of(staging, staging.grad_logp), .entropy = {}, .z_loss = static_cast<float>(config.z_loss)};
  phases.mark(Phase::data);
  const Tensor hidden = pass.forward(packed.batch, packed.rows, noise, draws());
  phases.mark(Phase::forward);
  const Tensor lse = arena.take(DType::f32, {packed.rows.size()}), dhidden = dhidden_for(packed.rows);
  Param& head = model.head();
  logprob_fused(context, logp, lse, dhidden, head.grad, grad, hidden, head.value, packed.targets, inv_temperature);
  phases.mark(Phase::head);
  pass.backward(dhidden);
  phases.mark(Phase::backward);
}

double Trainer::Impl::general_head(Staging& staging, const Objective& objective, double scale, MetricSums& metrics, const Packed& packed,
                                   Tensor hidden, Tensor dhidden) {
  const Needs needs = objective.needs();
  const Tensor targets = packed.targets;
  const int64_t rows = targets.size();
  const Tensor logp = arena.take(DType::f32, {rows}), lse = arena.take(DType::f32, {rows});
  const Tensor entropy = needs.entropy ? arena.take(DType::f32, {rows}) : Tensor();
  const Tensor value = needs.critic ? arena.take(DType::f32, {rows, 1}) : Tensor();
  Param& head = model.head();
  logprob_forward(context, logp, lse, entropy, hidden, head.value, targets, inv_temperature);
  if (needs.critic) critic->forward(value, packed.batch, packed.rows, hidden);
  phases.mark(Phase::head);
  host.release({});
  const Tensor host_logp = fetch(logp), host_entropy = needs.entropy ? fetch(entropy) : Tensor(), host_value = needs.critic ? fetch(value) : Tensor();
  context.synchronize();
  read_rows(staging, host_logp, staging.logp);
  if (needs.entropy) read_rows(staging, host_entropy, staging.entropy);
  if (needs.critic) read_rows(staging, host_value, staging.value);
  const double loss = evaluate(staging, objective, scale, metrics);
  if (!std::isfinite(loss)) return loss;

  LogprobGrad grad{.logp = rows_of(staging, staging.grad_logp), .entropy = {}, .z_loss = static_cast<float>(config.z_loss)};
  if (any(staging.grad_entropy)) grad.entropy = rows_of(staging, staging.grad_entropy);
  const Tensor dvalue = needs.critic ? rows_of(staging, staging.grad_value).view({rows, 1}) : Tensor();
  phases.mark(Phase::data);
  logprob_backward(context, dhidden, head.grad, grad, lse, grad.entropy ? entropy : Tensor(), hidden, head.value, targets, inv_temperature);
  if (needs.critic) critic->backward(dhidden, dvalue, hidden);
  phases.mark(Phase::head);
  return loss;
}

double Trainer::Impl::run_general(Staging& staging, const Objective& objective, double scale, MetricSums& metrics) {
  if (staging.rows().empty()) {
    if (objective.needs().critic) staging.value.assign(staging.logp.size(), 0);
    return evaluate(staging, objective, scale, metrics);
  }
  const Packed packed = pack(staging);
  phases.mark(Phase::data);
  const Tensor hidden = pass.forward(packed.batch, packed.rows, noise, draws());
  phases.mark(Phase::forward);
  const Tensor dhidden = dhidden_for(packed.rows);
  const double loss = general_head(staging, objective, scale, metrics, packed, hidden, dhidden);
  if (!std::isfinite(loss)) return loss;
  pass.backward(dhidden);
  phases.mark(Phase::backward);
  return loss;
}

Trainer::Impl::Norm Trainer::Impl::queue_norm(const std::function<void(Tensor)>& add_squares) {
  const Tensor sum = step_arena.take(DType::f64, {1});
  const Norm out{step_arena.take(DType::f32, {1}), step_arena.take(DType::f32, {1})};
  context.zero(sum);
  add_squares(sum);
  clip_factor(context, out.clip, out.norm, sum, static_cast<float>(config.max_grad_norm));
  return out;
}

// Takes the memory of the step's largest micro-batch in one piece each, as the same code counts it on the meta device: arenas that grow would hold
// more than they need.
void Trainer::Impl::reserve(std::span<const Sample* const> samples, const Objective& objective) {
  if (counts_only()) return;
  int64_t tokens = 0;
  size_t sequences = 0;
  for (const MicroBatch& micro : micro_batches) {
    int64_t sum = 0;
    for (const Sample* sample : samples.subspan(micro.begin, micro.end - micro.begin)) sum += static_cast<int64_t>(sample->tokens.size());
    tokens = std::max(tokens, sum), sequences = std::max(sequences, micro.end - micro.begin);
  }
  if (tokens <= reserved_tokens) return;
  if (reserved_tokens > 0) tokens = std::max(tokens, std::min(config.micro_batch_tokens, tokens + tokens / 4));  // sizes vary
  reserved_tokens = tokens;
  const std::unique_ptr<Device> device = devices().at("meta")(0);
  Context counting(*device);
  counting.stand_for(context.kind());
  counting.set_numerics(context.numerics());
  const std::unique_ptr<Model> shape = model.same_shape();
  shape->allocate(counting, model.dtype(), true);
  Trainer trainer(counting, *shape, config);
  trainer.impl_->config.micro_batch_tokens = tokens;
  std::vector<Sample> widest(sequences);
  std::vector<const Sample*> batch;
  for (size_t i = 0; i < sequences; ++i) {
    const auto count = static_cast<int64_t>(sequences), at = static_cast<int64_t>(i);
    widest[i].tokens.assign(static_cast<size_t>(tokens * (at + 1) / count - tokens * at / count), 0);
    widest[i].mask.assign(widest[i].tokens.size(), 1);
    if (!widest[i].mask.empty()) widest[i].mask[0] = 0;
    batch.push_back(&widest[i]);
  }
  trainer.step(batch, objective, 0);
  pass.reserve(trainer.impl_->pass.peak_bytes());
  if (critic && trainer.impl_->critic) critic->reserve(trainer.impl_->critic->peak_bytes());
  arena.reserve(trainer.impl_->arena.peak_bytes());
  context.scratch().reserve(counting.scratch().peak_bytes());
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
  const bool may_skip = m.config.z_loss == 0 && !m.counts_only();  // what is counted has no numbers yet
  m.working.clear();
  for (size_t i = 0; i < samples.size(); ++i) {
    const Sample& sample = *samples[i];
    check_sample(sample, i, m.model.shape());
    count += count_of(needs.per, sample.mask);
    report.num_tokens += static_cast<int64_t>(sample.tokens.size());
    if (may_skip && objective.idle(sample)) continue;
    m.working.push_back(&sample);
    report.num_trained_tokens += std::count_if(sample.mask.begin(), sample.mask.end(), [](float v) { return v != 0; });
  }
  const std::span<const Sample* const> working = m.working;
  if (needs.critic) m.the_critic();
  cut_micro_batches(working, needs.per == Per::pair ? 2 : 1, m.config.micro_batch_tokens, m.micro_batches);
  m.reserve(working, objective);
  const auto samples_of = [&](const MicroBatch& micro) { return working.subspan(micro.begin, micro.end - micro.begin); };

  m.phases.begin();
  m.model.zero_grad(m.context);
  if (m.critic) m.critic->zero_grad();
  m.step_arena.release({});
  MetricSums metrics;
  const double scale = scale_of(count);
  const auto add_loss = [&](double loss, const MicroBatch& micro) {
    if (!std::isfinite(loss)) m.refuse("loss", loss, samples_of(micro));
    report.loss += loss;
  };
  const Tensor logp = needs.linear ? m.step_arena.take(DType::f32, {report.num_trained_tokens}) : Tensor();
  m.stagings.resize(std::max(m.stagings.size(), needs.linear ? m.micro_batches.size() : 1));
  int64_t first_row = 0;
  m.first_token = 0;
  for (size_t i = 0; i < m.micro_batches.size(); ++i) {
    Staging& staging = m.stagings[needs.linear ? i : 0];
    staging.fill(samples_of(m.micro_batches[i]));
    m.noise.first = (static_cast<uint64_t>(m.steps) << 32) + m.micro_batches[i].begin;
    const auto rows = static_cast<int64_t>(staging.rows().size());
    if (needs.linear)
      m.queue_linear(staging, objective, scale, logp.rows(first_row, rows));
    else
      add_loss(m.run_general(staging, objective, scale, metrics), m.micro_batches[i]);
    first_row += rows;
    m.first_token += static_cast<int64_t>(staging.logp.size());
  }

  const bool two_norms = m.critic && m.critic->separate();
  const Impl::Norm policy = m.queue_norm([&](Tensor sum) {
    m.optimizer->add_squares(m.context, sum);
    if (m.critic && !two_norms) m.critic->add_squares(sum);
  });
  const Impl::Norm critic = two_norms ? m.queue_norm([&](Tensor sum) { m.critic->add_squares(sum); }) : policy;
  m.phases.mark(Phase::optimizer);
  m.host.release({});
  const Tensor host_norm = m.fetch(policy.norm), host_critic_norm = m.fetch(critic.norm), host_logp = needs.linear ? m.fetch(logp) : Tensor();
  m.context.synchronize();
  if (needs.linear) {
    first_row = 0;
    for (size_t i = 0; i < m.micro_batches.size(); ++i) {
      Staging& staging = m.stagings[i];
      const auto rows = static_cast<int64_t>(staging.rows().size());
      m.read_rows(staging, host_logp.rows(first_row, rows), staging.logp);
      add_loss(m.evaluate(staging, objective, scale, metrics), m.micro_batches[i]);
      first_row += rows;
    }
  }
  const double critic_norm = m.counts_only() ? 0 : host_critic_norm.ptr<float>()[0];
  if (!m.counts_only()) report.grad_norm = host_norm.ptr<float>()[0];
  if (!std::isfinite(report.grad_norm)) m.refuse("gradient's norm", report.grad_norm, samples);
  if (!std::isfinite(critic_norm)) m.refuse("critic's gradient's norm", critic_norm, samples);
  report.times = m.phases.read();
  report.times.optimizer += m.update_phases.read().optimizer;  // of the last update: this one has only been queued
  m.update_phases.begin();
  const OpRange range(m.context, "optimizer");
  m.optimizer->update(m.context, policy.clip, m.steps + 1, learning_rate);
  if (m.critic) m.critic->update(critic.clip, m.steps + 1, learning_rate);
  m.update_phases.mark(Phase::optimizer);
  if (!m.counts_only()) m.context.scratch().reserve(0);  // what bodies took beyond the plan is joined to it
  ++m.steps;
  report.metrics = metrics.means();
  if (two_norms) report.metrics["critic/grad_norm"] = critic_norm;
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
  m.stagings.resize(std::max<size_t>(m.stagings.size(), 1));
  Staging& staging = m.stagings.front();
  Critic& critic = m.the_critic();
  for (const MicroBatch& micro : m.micro_batches) {
    staging.fill(samples.subspan(micro.begin, micro.end - micro.begin));
    tokens.assign(staging.logp.size(), 0);
    if (!staging.rows().empty()) {
      const ScratchScope scope(m.context);
      const Impl::Packed packed = m.pack(staging);
      const Tensor value = m.arena.take(DType::f32, {packed.rows.size(), 1});
      critic.score(value, packed.batch, packed.rows);
      m.host.release({});
      const Tensor host_value = m.fetch(value);
      m.context.synchronize();
      m.read_rows(staging, host_value, tokens);
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
  const Impl& m = *impl_;
  const bool counted = m.counts_only();  // its arenas grow as if memory were free
  size_t activations = counted ? m.pass.peak_bytes() + m.arena.peak_bytes() + m.step_arena.peak_bytes()
                               : m.pass.capacity_bytes() + m.arena.capacity_bytes() + m.step_arena.capacity_bytes();
  TrainerMemory out{.optimizer = m.optimizer->state_bytes()};
  if (m.critic) {
    out.optimizer += m.critic->state_bytes();
    out.critic = m.critic->weight_bytes();
    activations += counted ? m.critic->peak_bytes() : m.critic->capacity_bytes();
  }
  out.activations = static_cast<int64_t>(activations);
  return out;
}

std::vector<float> Trainer::value_head() { return impl_->the_critic().head(); }
void Trainer::set_value_head(std::span<const float> weight) { impl_->the_critic().set_head(weight); }

// The critic's tensors stand beside the policy's: a trunk of its own has parameters of the same names.
static constexpr std::string_view critic_prefix = "critic.";

void Trainer::save_state(StateSection& section) const {
  section.values.set("steps", impl_->steps);
  section.values.set("critic", impl_->critic != nullptr);
  impl_->optimizer->save_state(section);
  if (!impl_->critic) return;
  StateSection own;
  impl_->critic->save_state(own);
  for (NamedTensor& named : own.tensors) section.tensors.push_back({concat(critic_prefix, named.name), named.tensor});
}

void Trainer::load_state(const StateSection& section) {
  impl_->steps = section.values.at("steps", "trainer state").as_int("trainer state: steps");
  impl_->optimizer->load_state(section);
  if (!section.values.at("critic", "trainer state").as_bool("trainer state: critic")) return;
  StateSection own;
  for (const NamedTensor& named : section.tensors)
    if (named.name.starts_with(critic_prefix)) own.tensors.push_back({named.name.substr(critic_prefix.size()), named.tensor});
  impl_->the_critic().load_state(own);
}

}  // namespace hone
