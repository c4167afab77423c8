#include "train/trainer.h"

#include <algorithm>
#include <cmath>

#include "core/base/stopwatch.h"
#include "core/device/device_library.h"
#include "data/sample_json.h"
#include "kernels/optimizer/optimizer.h"
#include "model/flops.h"
#include "train/micro_batch.h"
#include "train/micro_batch_runner.h"

namespace hone {

namespace {

// Checks what outside data can get wrong about a sample.
void check_sample(const Sample& sample, size_t index, const ModelShape& shape) {
  const auto length = static_cast<int64_t>(sample.tokens.size());
  HONE_CHECK(shape.max_positions == 0 || length <= shape.max_positions, "trainer: sample ", index, " has ", length,
             " tokens, the model ", shape.max_positions, " positions");
  const std::span<const float> mask = sample.columns.find(columns::mask);
  HONE_CHECK(mask.size() == sample.tokens.size(), "trainer: sample ", index, " has ", length, " tokens and a mask of ",
             mask.size());
  HONE_CHECK(length == 0 || mask[0] == 0, "trainer: sample ", index,
             " trains on its first token, which nothing predicts");
  for (const int32_t id : sample.tokens)
    HONE_CHECK(id >= 0 && id < shape.vocab_size, "trainer: sample ", index, " has token ", id,
               ", the model's vocabulary has ", shape.vocab_size,
               " entries (does the tokenizer belong to another model?)");
}

}  // namespace

struct Trainer::Impl {
  Impl(Context& context_, Model& model_, TrainerConfig config_)
      : context(context_),
        model(model_),
        config(std::move(config_)),
        optimizer(config.optimizer->make()),
        phases(context),
        update_phases(context),
        pass(context, model, config, phases),
        step_arena(context.device()),
        host(context) {
    require_training_libraries(context.device());
    optimizer->attach(context, model.params());
    flops_per_token = count_flops(model, 0).causal_train_flops_per_token;
    flops_per_context = count_flops(model, 1).causal_train_flops_per_token - flops_per_token;
  }

  Critic& the_critic() {
    if (!critic)
      critic =
          std::make_unique<Critic>(context, model, config.critic, config.recomputation(), config.optimizer->make());
    return *critic;
  }
  bool is_dry_run() const { return context.kind() == DeviceKind::meta; }

  // Reserves memory for the step's largest micro-batch.
  void reserve(const Objective& objective) {
    const std::optional<PeakBytes> peak =
        reservation.grow_to_fit(context, model, config, objective, active_samples, micro_batches);
    if (!peak) return;
    context.scratch().reserve(peak->scratch);  // first: it frees the blocks that sampling has left
    pass.reserve(*peak);
    if (critic && peak->critic > 0) critic->reserve(peak->critic);
  }
  // Clip factor [1] and norm [1] of gradients that are clipped together. A critic with a shared trunk is clipped with
  // the policy; a separate critic on its own.
  struct Norm {
    Tensor clip, norm;
  };
  Norm queue_norm(const std::function<void(Tensor)>& add_squares);
  // Adds the objective's metrics of samples without a gradient to those of the step.
  void measure_idle(const Objective& objective, double scale, MetricSums& metrics);
  [[noreturn]] void reject_step(const char* what, double value, std::span<const Sample* const> samples) const;

  Context& context;
  Model& model;
  TrainerConfig config;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<Critic> critic;
  PhaseTimer phases, update_phases;
  MicroBatchRunner pass;
  MemoryPlan reservation;
  Arena step_arena;  // of one step
  HostFetch host;
  std::filesystem::path dump_path;
  int64_t steps = 0;
  double flops_per_token = 0, flops_per_context = 0;  // of a token; of a token for each token of its sample
  std::vector<MicroBatchData> stagings;
  std::vector<MicroBatch> micro_batches;
  std::vector<const Sample*> active_samples;  // of a step: the samples that are not idle
  std::vector<const Sample*> idle;  // of a step: idle samples with tokens to measure, if the objective measures entropy
};

void Trainer::Impl::reject_step(const char* what, double value, std::span<const Sample* const> samples) const {
  std::string where;
  if (!dump_path.empty()) {
    write_samples(dump_path, samples);
    where = "; its samples are in " + dump_path.string();
  }
  fail("step ", steps + 1, ": the ", what, " is ", number_text(value), where, "; the weights are as before the step");
}

// Entropy and clip fractions are means over every sample of the step, as in TRL and verl. Without the idle samples they
// would describe only prompts whose rewards differ. An idle sample has no gradient, so a forward pass is enough.
void Trainer::Impl::measure_idle(const Objective& objective, double scale, MetricSums& metrics) {
  if (idle.empty()) return;
  const std::span<const Sample* const> all = idle;
  make_micro_batches(all, 1, config.micro_batch_tokens, micro_batches);
  for (const MicroBatch& micro : micro_batches) {
    stagings.front().fill(all.subspan(micro.begin, micro.end - micro.begin));
    pass.measure(stagings.front(), objective, scale, metrics);
  }
}

Trainer::Impl::Norm Trainer::Impl::queue_norm(const std::function<void(Tensor)>& add_squares) {
  const Tensor sum = step_arena.take(DType::f64, {1});
  const Norm out{step_arena.take(DType::f32, {1}), step_arena.take(DType::f32, {1})};
  context.zero(sum);
  add_squares(sum);
  clip_factor(context, out.clip, out.norm, sum, static_cast<float>(config.max_grad_norm));
  return out;
}

Trainer::Trainer(Context& context, Model& model, TrainerConfig config)
    : impl_(std::make_unique<Impl>(context, model, std::move(config))) {}
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
  const bool may_skip = m.config.z_loss == 0 && !m.is_dry_run();  // a dry run has no numbers to look at
  m.active_samples.clear();
  m.idle.clear();
  for (size_t i = 0; i < samples.size(); ++i) {
    const Sample& sample = *samples[i];
    check_sample(sample, i, m.model.shape());
    const std::span<const float> mask = sample.columns.find(columns::mask);
    count += count_of(needs.unit, mask);
    report.num_tokens += static_cast<int64_t>(sample.tokens.size());
    const auto trained = std::ranges::count_if(mask, [](float v) { return v != 0; });
    if (may_skip && objective.has_no_gradient(sample)) {
      if (needs.entropy && trained > 0) m.idle.push_back(&sample);
      continue;
    }
    m.active_samples.push_back(&sample);
    report.num_trained_tokens += trained;
    const auto length = static_cast<double>(sample.tokens.size());
    report.flops += length * (m.flops_per_token + m.flops_per_context * length);
  }
  const std::span<const Sample* const> working = m.active_samples;
  if (needs.critic) m.the_critic();
  make_micro_batches(working, needs.unit == LossUnit::pair ? 2 : 1, m.config.micro_batch_tokens, m.micro_batches);
  m.reserve(objective);
  const auto samples_of = [&](const MicroBatch& micro) {
    return working.subspan(micro.begin, micro.end - micro.begin);
  };

  m.phases.begin();
  m.model.zero_grad(m.context);
  if (m.critic) m.critic->zero_grad();
  m.step_arena.release({});
  MetricSums metrics;
  const double scale = scale_of(count);
  const auto add_loss = [&](double loss, const MicroBatch& micro) {
    if (!std::isfinite(loss)) m.reject_step("loss", loss, samples_of(micro));
    report.loss += loss;
  };
  const auto step_column = [&](bool wanted) {
    return wanted ? m.step_arena.take(DType::f32, {report.num_trained_tokens}) : Tensor();
  };
  const bool counts_hits = needs.loss_linear_in_logp && needs.token_accuracy;
  const Tensor logp = step_column(needs.loss_linear_in_logp), hit = step_column(counts_hits);
  m.stagings.resize(std::max(m.stagings.size(), needs.loss_linear_in_logp ? m.micro_batches.size() : 1));
  int64_t first_row = 0;
  MicroBatchPosition place{.step = m.steps};
  for (size_t i = 0; i < m.micro_batches.size(); ++i) {
    MicroBatchData& staging = m.stagings[needs.loss_linear_in_logp ? i : 0];
    staging.fill(samples_of(m.micro_batches[i]));
    place.first_sample = static_cast<int64_t>(m.micro_batches[i].begin);
    const auto rows = static_cast<int64_t>(staging.rows().size());
    if (needs.loss_linear_in_logp)
      m.pass.queue_static_grad(staging, objective, scale, place, logp.rows(first_row, rows),
                               counts_hits ? hit.rows(first_row, rows) : Tensor());
    else
      add_loss(m.pass.run(staging, objective, scale, place, m.critic.get(), metrics), m.micro_batches[i]);
    first_row += rows;
    place.first_token += static_cast<int64_t>(staging.logp.size());
  }

  m.measure_idle(objective, scale, metrics);

  const bool two_norms = m.critic && m.critic->separate();
  const Impl::Norm policy = m.queue_norm([&](Tensor sum) {
    m.optimizer->add_squares(m.context, sum);
    if (m.critic && !two_norms) m.critic->add_squares(sum);
  });
  const Impl::Norm critic = two_norms ? m.queue_norm([&](Tensor sum) { m.critic->add_squares(sum); }) : policy;
  m.phases.mark(Phase::optimizer);
  m.host.clear();
  const Tensor host_norm = m.host.fetch(policy.norm), host_critic_norm = m.host.fetch(critic.norm),
               host_logp = needs.loss_linear_in_logp ? m.host.fetch(logp) : Tensor(),
               host_hit = counts_hits ? m.host.fetch(hit) : Tensor();
  m.context.synchronize();
  if (needs.loss_linear_in_logp) {
    first_row = 0;
    for (size_t i = 0; i < m.micro_batches.size(); ++i) {
      MicroBatchData& staging = m.stagings[i];
      const auto rows = static_cast<int64_t>(staging.rows().size());
      m.pass.read_rows(staging, host_logp.rows(first_row, rows), staging.logp);
      add_loss(m.pass.evaluate(staging, objective, scale, metrics), m.micro_batches[i]);
      first_row += rows;
    }
    if (counts_hits) m.pass.add_token_accuracy(host_hit, metrics);
  }
  const double critic_norm = m.is_dry_run() ? 0 : host_critic_norm.ptr<float>()[0];
  if (!m.is_dry_run()) report.grad_norm = host_norm.ptr<float>()[0];
  if (!std::isfinite(report.grad_norm)) m.reject_step("gradient norm", report.grad_norm, samples);
  if (!std::isfinite(critic_norm)) m.reject_step("critic's gradient norm", critic_norm, samples);
  report.times = m.phases.read();
  report.times.optimizer += m.update_phases.read().optimizer;  // of the previous update: this one is only queued
  m.update_phases.begin();
  const OpRange range(m.context, "optimizer");
  const int64_t number = ++m.steps;  // from here on, an exception leaves half-updated weights
  m.optimizer->update(m.context, policy.clip, number, learning_rate);
  if (m.critic) m.critic->update(critic.clip, number, learning_rate);
  m.update_phases.mark(Phase::optimizer);
  if (!m.is_dry_run()) m.context.scratch().reserve(0);  // merges what bodies took beyond the plan
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
  make_micro_batches(samples, 1, m.config.micro_batch_tokens, m.micro_batches);
  m.stagings.resize(std::max<size_t>(m.stagings.size(), 1));
  MicroBatchData& staging = m.stagings.front();
  for (const MicroBatch& micro : m.micro_batches) {
    staging.fill(samples.subspan(micro.begin, micro.end - micro.begin));
    const std::vector<float> tokens = m.pass.values(staging, m.the_critic());
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

PeakBytes Trainer::peak() const {
  PeakBytes out = impl_->pass.peak();
  out.critic = impl_->critic ? impl_->critic->peak_bytes() : 0;
  out.scratch = impl_->context.scratch().peak_bytes();
  return out;
}

TrainerMemory Trainer::memory() const {
  const Impl& m = *impl_;
  const bool counted = m.is_dry_run();  // a dry run's arenas grow freely: only their peaks count
  const PeakBytes peak = m.pass.peak();
  size_t activations = counted ? peak.tape + peak.columns + m.step_arena.capacity_bytes()
                               : m.pass.capacity_bytes() + m.step_arena.capacity_bytes();
  TrainerMemory out{.optimizer = m.optimizer->state_bytes()};
  if (m.critic) {
    out.optimizer += m.critic->state_bytes();
    out.critic = m.critic->weight_bytes();
    activations += counted ? m.critic->peak_bytes() : m.critic->capacity_bytes();
  }
  out.activations = static_cast<int64_t>(activations);
  return out;
}

std::vector<float> Trainer::value_head() { return impl_->the_critic().value_head(); }
void Trainer::set_value_head(std::span<const float> weight) { impl_->the_critic().set_value_head(weight); }

// Prefix of the critic's tensors: a separate trunk has parameters of the same names as the policy.
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
    if (named.name.starts_with(critic_prefix))
      own.tensors.push_back({named.name.substr(critic_prefix.size()), named.tensor});
  impl_->the_critic().load_state(own);
}

}  // namespace hone
