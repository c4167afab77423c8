#include "train/trainer.h"

#include <algorithm>
#include <cmath>

#include "core/base/stopwatch.h"
#include "core/device/device_library.h"
#include "data/sample_json.h"
#include "kernels/op.h"
#include "train/micro_batch.h"
#include "train/micro_batch_runner.h"
#include "train/param_update.h"
#include "train/ranks/weight_probe.h"
#include "train/step_exchange.h"
#include "train/step_plan.h"

namespace hone {

namespace {

// Sums over the micro-batches of a step, in the order of the plan.
struct StepSums {
  double loss = 0;
  MetricSums metrics;
  std::vector<double> aux;
};

// With several ranks the sum of gradients gives the parameters' gradients their memory.
std::vector<GradUnit> units_for(const StepExchange& exchange, Context& context, Model& model) {
  if (exchange.size() > 1) drop_gradient_memory(context, model);
  return grad_units(context, model);
}

}  // namespace

struct Trainer::Impl {
  Impl(Context& context_, Model& model_, TrainerConfig config_, StepExchange* ranks)
      : context(context_),
        model(model_),
        config(std::move(config_)),
        exchange(ranks ? *ranks : one_rank),
        policy(context,
               exchange.make_gradient_sum(context, &model, units_for(exchange, context, model), config.norm_piece),
               config.optimizer->make(), "", config.groups),
        phases(context),
        update_phases(context),
        timed(policy.gradients(), phases, policy.gradients().gathers_values()),
        runner(context, model, config, phases,
               exchange.size() > 1 ? static_cast<UnitHooks*>(&timed) : &policy.gradients()),
        step_arena(context.device()),
        host(context),
        cost(cost_of(model)) {
    require_training_libraries(context.device());
  }

  Critic& the_critic() {
    if (!critic)
      critic = std::make_unique<Critic>(context, model, config.critic, config.recomputation(), config.optimizer->make(),
                                        exchange, config.norm_piece, &phases);
    return *critic;
  }
  // For the passes of a step, which gather values unit by unit.
  void release_values() {
    model.release_values();
    if (critic) critic->release_values();
  }
  void end_rounds() {
    policy.gradients().end_rounds();
    if (critic) critic->params().gradients().end_rounds();
    if (exchange.size() > 1) phases.mark(Phase::exchange);
  }
  bool is_dry_run() const { return context.kind() == DeviceKind::meta; }
  bool has_two_norms() const { return critic && critic->separate(); }
  // Updates of the policy. Optimizers count from their first update.
  int64_t policy_steps() const { return steps - critic_steps; }

  // The parts of step(), in the order of their calls.
  void reserve(const StepPlan& plan, const Objective& objective);
  void begin(const StepPlan& plan, const Objective& objective);
  void run_micro_batches(const StepPlan& plan, const Objective& objective);
  void measure_idle(const StepPlan& plan, const Objective& objective);
  void queue_norms();
  void fetch();
  void read_static_losses(const StepPlan& plan, const Objective& objective);
  void read_aux_sums(const StepPlan& plan);
  void end_step(const StepSums& sums, StepReport& report);
  StepSums fold_results(const StepPlan& plan);
  std::vector<Tensor> trained_weights() const;
  double checked_norm(Tensor fetched, const char* what, std::span<const Sample* const> samples) const;
  void update(double learning_rate);

  void run(const StepPlan& plan, size_t index, const Objective& objective);
  [[noreturn]] void reject_step(const char* what, double value, std::span<const Sample* const> samples) const;

  Context& context;
  Model& model;
  TrainerConfig config;
  StepExchange one_rank;
  StepExchange& exchange;
  ParamUpdate policy;
  std::unique_ptr<Critic> critic;
  PhaseTimer phases, update_phases;
  TimedHooks timed;
  MicroBatchRunner runner;
  MemoryPlan reservation;
  PeakBytes reserved;  // by the last measurement; allocated unless `freed`
  bool freed = false;  // by free_activations()
  Arena step_arena;    // of one step
  HostFetch host;
  StepCost cost;
  std::filesystem::path dump_path;
  int64_t steps = 0, critic_steps = 0;  // critic_steps: those that updated the critic alone
  int64_t handed_steps = 0;             // steps of a trainer before this one, in which this critic was not
  std::vector<MicroBatchData> stagings;

  Updated updated = Updated::all;  // of one step, as what follows
  // Columns of all trained rows, if the loss is linear in logp; hit: if the objective measures accuracy.
  Tensor logp, hit, host_logp, host_hit;
  Tensor aux_sums, host_aux_sums;  // [micro-batches, Model::num_aux_sums()]; empty without losses made inside layers
  // A critic with a shared trunk is clipped with the policy; a separate critic on its own.
  GradNorm norm, critic_norm;
  Tensor host_norm, host_critic_norm;
  Tensor host_weights;                    // with several ranks: some of those that the step began with
  std::vector<MicroBatchResult> results;  // of the plan's micro-batches, then of the idle ones
};

void Trainer::Impl::reject_step(const char* what, double value, std::span<const Sample* const> samples) const {
  std::string where;
  if (!dump_path.empty()) {
    if (exchange.rank() == 0) write_samples(dump_path, samples);  // all ranks have the same samples
    where = "; its samples are in " + dump_path.string();
  }
  fail("step ", steps + 1, ": the ", what, " is ", number_text(value), where, "; the weights are as before the step");
}

// Reserves memory for the step's largest micro-batch.
void Trainer::Impl::reserve(const StepPlan& plan, const Objective& objective) {
  const std::optional<PeakBytes> grown = reservation.grow_to_fit(context, model, config, objective, plan);
  if (grown) reserved = *grown;
  if (!grown && !freed) return;
  context.scratch().reserve(reserved.scratch);  // first: it frees the blocks that sampling has left
  runner.reserve(reserved);
  if (critic && reserved.critic > 0) critic->reserve(reserved.critic);
  freed = false;
}

void Trainer::Impl::begin(const StepPlan& plan, const Objective& objective) {
  const Needs needs = objective.needs();
  phases.begin();
  policy.gradients().begin_step(plan.num_active());
  if (critic) critic->params().gradients().begin_step(plan.num_active());
  step_arena.release({});
  const auto column = [&](bool wanted) { return wanted ? step_arena.take(DType::f32, {plan.num_trained}) : Tensor(); };
  logp = column(needs.loss_linear_in_logp);
  hit = column(needs.loss_linear_in_logp && needs.token_accuracy);
  aux_sums = Tensor();
  if (const int64_t count = model.num_aux_sums(); count > 0 && !plan.micro_batches.empty()) {
    aux_sums = step_arena.take(DType::f32, {static_cast<int64_t>(plan.micro_batches.size()), count});
    context.zero(aux_sums);
  }
  stagings.resize(std::max(stagings.size(), needs.loss_linear_in_logp ? plan.micro_batches.size() : 1));
  results.assign(plan.micro_batches.size() + plan.idle_micro_batches.size(), {});
}

// Ranks run side by side: micro-batches k N to k N + N - 1 are round k. All ranks call the hooks of a round in which
// one of them learns.
void Trainer::Impl::run_micro_batches(const StepPlan& plan, const Objective& objective) {
  const size_t count = plan.micro_batches.size(), ranks = exchange.size();
  std::vector<uint8_t> active(ranks);
  for (size_t first = 0; first < count; first += ranks) {
    for (size_t rank = 0; rank < ranks; ++rank)
      active[rank] = first + rank < count && plan.micro_batches[first + rank].active();
    const bool any_active = std::ranges::find(active, 1) != active.end();
    if (any_active) {
      policy.gradients().begin_round(active);
      if (critic) critic->params().gradients().begin_round(active);
    }
    const size_t own = first + exchange.rank();
    if (own < count) run(plan, own, objective);
    if (any_active && active[exchange.rank()] == 0) runner.skip(objective, critic.get());
  }
}

void Trainer::Impl::run(const StepPlan& plan, size_t index, const Objective& objective) {
  const PlannedMicroBatch& micro = plan.micro_batches[index];
  MicroBatchPosition place{.step = steps,
                           .first_sample = static_cast<int64_t>(micro.begin),
                           .first_token = micro.first_token,
                           .token_weight = 1 / static_cast<double>(std::max<int64_t>(1, plan.num_tokens))};
  if (aux_sums) place.aux_sums = aux_sums.rows(static_cast<int64_t>(index), 1).view({aux_sums.dim(1)});
  const bool is_static = static_cast<bool>(logp);
  MicroBatchData& staging = stagings[is_static ? index : 0];
  staging.fill(plan.samples_of(micro));
  if (is_static)
    runner.queue_static_grad(staging, objective, plan.scale, place, logp.rows(micro.first_row, micro.num_rows),
                             hit ? hit.rows(micro.first_row, micro.num_rows) : Tensor());
  else
    results[index].loss = runner.run(staging, objective, plan.scale, place, critic.get(), results[index].metrics);
}

// Entropy and clip fractions are means over every sample of the step, as in TRL and verl. Without the idle samples they
// would describe only prompts whose rewards differ. An idle sample has no gradient, so a forward pass is enough. All
// ranks call its hooks.
void Trainer::Impl::measure_idle(const StepPlan& plan, const Objective& objective) {
  const size_t count = plan.idle_micro_batches.size(), ranks = exchange.size();
  for (size_t first = 0; first < count; first += ranks) {
    size_t i = first;
    while (i < first + ranks && !exchange.is_own(plan.micro_batches.size() + i)) ++i;
    if (i >= count) {
      runner.skip_measure();
      continue;
    }
    const MicroBatch& micro = plan.idle_micro_batches[i];
    MicroBatchData staging;
    staging.fill(std::span(plan.idle).subspan(micro.begin, micro.end - micro.begin));
    runner.measure(staging, objective, plan.scale, results[plan.micro_batches.size() + i].metrics);
  }
}

void Trainer::Impl::queue_norms() {
  ParamUpdate* const own = &policy;
  if (updated == Updated::critic) {
    ParamUpdate* const alone = &critic->params();
    norm = critic_norm = queue_norm(context, step_arena, {&alone, 1}, config.max_grad_norm);
    return;
  }
  if (has_two_norms()) {
    ParamUpdate* const second = &critic->params();
    norm = queue_norm(context, step_arena, {&own, 1}, config.max_grad_norm);
    critic_norm = queue_norm(context, step_arena, {&second, 1}, config.max_grad_norm);
    return;
  }
  std::vector<ParamUpdate*> all{own};
  if (critic) all.push_back(&critic->params());
  norm = critic_norm = queue_norm(context, step_arena, all, config.max_grad_norm);
}

std::vector<Tensor> Trainer::Impl::trained_weights() const {
  std::vector<Tensor> out = policy.gradients().common_values();
  if (critic)
    for (const Tensor& values : critic->params().gradients().common_values()) out.push_back(values);
  return out;
}

// Fetches what the host reads of the step. Waits for the device.
void Trainer::Impl::fetch() {
  host.clear();
  host_norm = host.fetch(norm.norm);
  host_critic_norm = host.fetch(critic_norm.norm);
  host_logp = logp ? host.fetch(logp) : Tensor();
  host_hit = hit ? host.fetch(hit) : Tensor();
  host_aux_sums = aux_sums ? host.fetch(aux_sums) : Tensor();
  host_weights = exchange.size() > 1 ? host.fetch(probed_weights(trained_weights(), steps)) : Tensor();
  context.synchronize();
}

// The losses of micro-batches whose gradients were known before their log-probs.
void Trainer::Impl::read_static_losses(const StepPlan& plan, const Objective& objective) {
  if (!logp) return;
  for (size_t i = 0; i < plan.micro_batches.size(); ++i) {
    if (!exchange.is_own(i)) continue;
    const PlannedMicroBatch& micro = plan.micro_batches[i];
    MicroBatchResult& result = results[i];
    runner.read_rows(stagings[i], host_logp.rows(micro.first_row, micro.num_rows), stagings[i].logp);
    result.loss = runner.evaluate(stagings[i], objective, plan.scale, result.metrics);
    if (hit) runner.add_token_accuracy(host_hit.rows(micro.first_row, micro.num_rows), result.metrics);
  }
}

void Trainer::Impl::read_aux_sums(const StepPlan& plan) {
  if (!aux_sums || is_dry_run()) return;
  const auto count = static_cast<size_t>(aux_sums.dim(1));
  for (size_t i = 0; i < plan.micro_batches.size(); ++i) {
    if (!exchange.is_own(i)) continue;
    const std::span<const float> own = host_aux_sums.as<float>().subspan(i * count, count);
    results[i].aux_sums.assign(own.begin(), own.end());
  }
}

StepSums Trainer::Impl::fold_results(const StepPlan& plan) {
  if (!is_dry_run()) exchange.fold(results);  // the other ranks of a dry run do not exist
  StepSums out;
  out.aux.resize(static_cast<size_t>(model.num_aux_sums()));
  for (size_t i = 0; i < results.size(); ++i) {
    if (!std::isfinite(results[i].loss)) reject_step("loss", results[i].loss, plan.samples_of(plan.micro_batches[i]));
    out.loss += results[i].loss;
    out.metrics.merge(results[i].metrics);
    const size_t count = results[i].aux_sums.size();
    HONE_CHECK(count == 0 || count == out.aux.size(), "trainer: micro-batch ", i, " has ", count,
               " sums of its layers, the model has ", out.aux.size());
    for (size_t j = 0; j < count; ++j) out.aux[j] += double{results[i].aux_sums[j]};
  }
  return out;
}

// Tells the layers what the step's sums are.
void Trainer::Impl::end_step(const StepSums& sums, StepReport& report) {
  if (sums.aux.empty() || is_dry_run()) return;
  const AuxReport aux = model.end_step(context, sums.aux);
  report.loss += aux.loss;
  for (const auto& [name, value] : aux.metrics()) report.metrics[name] = value;
}

double Trainer::Impl::checked_norm(Tensor fetched, const char* what, std::span<const Sample* const> samples) const {
  const double out = is_dry_run() ? 0 : fetched.ptr<float>()[0];
  if (!std::isfinite(out)) reject_step(what, out, samples);
  return out;
}

void Trainer::Impl::update(double learning_rate) {
  update_phases.begin();
  const OpRange range(context, "optimizer");
  const int64_t number = ++steps;  // from here on, an exception leaves half-updated weights
  if (updated == Updated::critic)
    ++critic_steps;
  else
    policy.apply(norm, policy_steps(), learning_rate);
  if (critic) critic->update(critic_norm, number - handed_steps, learning_rate);
  update_phases.mark(Phase::optimizer);
}

Trainer::Trainer(Context& context, Model& model, TrainerConfig config, StepExchange* ranks)
    : impl_(std::make_unique<Impl>(context, model, std::move(config), ranks)) {}
Trainer::~Trainer() = default;

StepReport Trainer::step(std::span<const Sample* const> samples, const Objective& objective, double learning_rate,
                         Updated updated) {
  const Stopwatch watch;
  Impl& m = *impl_;
  HONE_CHECK(updated == Updated::all || objective.needs().critic,
             "trainer: the objective has no critic to update alone");
  m.updated = updated;
  m.runner.compute_gradients(updated == Updated::all);
  const StepPlan plan = plan_step(samples, objective, m.config, m.model.shape(), m.cost, m.is_dry_run());
  m.exchange.check_plan(plan);
  if (objective.needs().critic) m.the_critic();
  m.release_values();
  m.reserve(plan, objective);
  m.begin(plan, objective);
  m.run_micro_batches(plan, objective);
  m.measure_idle(plan, objective);
  m.end_rounds();
  m.queue_norms();
  m.phases.mark(Phase::optimizer);
  m.fetch();
  m.read_static_losses(plan, objective);
  m.read_aux_sums(plan);
  const StepSums sums = m.fold_results(plan);

  StepReport report;
  report.loss = sums.loss;
  report.grad_norm = m.checked_norm(m.host_norm, "gradient norm", samples);
  const double critic_norm = m.checked_norm(m.host_critic_norm, "critic's gradient norm", samples);
  report.learning_rate =
      updated == Updated::all ? m.policy.learning_rate_of(m.policy_steps() + 1, learning_rate) : learning_rate;
  report.num_sequences = static_cast<int64_t>(samples.size());
  report.num_tokens = plan.num_tokens;
  report.samples_digest = plan.samples_digest;
  if (m.host_weights) report.weights_digest = digest_of(m.host_weights);
  report.num_trained_tokens = plan.num_trained;
  report.flops = updated == Updated::all ? plan.flops : plan.flops / 3;  // a forward pass is a third
  report.times = m.phases.read();
  report.times.optimizer += m.update_phases.read().optimizer;  // of the previous update: this one is only queued
  m.update(learning_rate);
  if (!m.is_dry_run()) m.context.scratch().reserve(0);  // merges what bodies took beyond the plan
  report.metrics = sums.metrics.means();
  if (updated == Updated::all) m.end_step(sums, report);  // it may change a layer's state (expert balance)
  if (m.has_two_norms()) report.metrics["critic/grad_norm"] = critic_norm;
  report.seconds = watch.seconds();
  return report;
}

void Trainer::free_activations() {
  Impl& m = *impl_;
  m.context.synchronize();  // the last update may still be queued
  m.runner.free_memory();
  m.step_arena.free();
  if (m.critic) m.critic->free_activations();
  m.freed = true;
}

void Trainer::dump_to(std::filesystem::path path) { impl_->dump_path = std::move(path); }

void Trainer::gather_saved_values() {
  if (!impl_->model.lora()) impl_->model.gather_values();
  if (impl_->critic) impl_->critic->gather_values();
}

size_t Trainer::count_value_passes(std::span<const Sample* const> samples) const {
  std::vector<MicroBatch> micro_batches;
  make_micro_batches(samples, 1, impl_->config.micro_batch_tokens, micro_batches);
  return micro_batches.size();
}

std::vector<std::vector<float>> Trainer::values(std::span<const Sample* const> samples, size_t passes) {
  Impl& m = *impl_;
  Critic& critic = m.the_critic();
  std::vector<std::vector<float>> out;
  for (size_t i = 0; i < samples.size(); ++i) check_sample(*samples[i], i, m.model.shape());
  std::vector<MicroBatch> micro_batches;
  make_micro_batches(samples, 1, m.config.micro_batch_tokens, micro_batches);
  MicroBatchData staging;
  for (const MicroBatch& micro : micro_batches) {
    staging.fill(samples.subspan(micro.begin, micro.end - micro.begin));
    const std::vector<float> tokens = m.runner.values(staging, critic);
    auto begin = tokens.begin();
    for (size_t i = micro.begin; i < micro.end; ++i) {
      const auto end = begin + static_cast<std::ptrdiff_t>(samples[i]->tokens.size());
      out.emplace_back(begin, end);
      begin = end;
    }
  }
  for (size_t pass = micro_batches.size(); pass < passes; ++pass) critic.skip_score();
  return out;
}

int64_t Trainer::steps_done() const { return impl_->steps; }

PeakBytes Trainer::peak() const {
  PeakBytes out = impl_->runner.peak();
  out.critic = impl_->critic ? impl_->critic->peak_bytes() : 0;
  out.scratch = impl_->context.scratch().peak_bytes();
  return out;
}

TrainerMemory Trainer::memory() const {
  const Impl& m = *impl_;
  const bool counted = m.is_dry_run();  // a dry run's arenas grow freely: only their peaks count
  const PeakBytes peak = m.runner.peak();
  size_t activations = counted ? peak.tape + peak.columns + m.step_arena.capacity_bytes()
                               : m.runner.capacity_bytes() + m.step_arena.capacity_bytes();
  TrainerMemory out{.optimizer = m.policy.state_bytes(), .gradients = m.policy.gradients().bytes()};
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
  if (impl_->critic_steps > 0) section.values.set("critic_steps", impl_->critic_steps);
  if (impl_->handed_steps > 0) section.values.set("handed_steps", impl_->handed_steps);
  section.values.set("critic", impl_->critic != nullptr);
  section.values.set("optimizer", impl_->config.optimizer.kind());
  impl_->policy.save_state(section);
  if (!impl_->critic) return;
  StateSection own;
  impl_->critic->save_state(own);
  for (NamedTensor& named : own.tensors) section.tensors.push_back({concat(critic_prefix, named.name), named.tensor});
}

// A number of steps; absent is 0.
static int64_t count_of(const StateSection& section, const char* key) {
  const Json* const count = section.values.find(key);
  const int64_t out = count ? count->as_int(concat("trainer state: ", key)) : 0;
  HONE_CHECK(out >= 0, "trainer state: ", key, " is ", out, "; it must be 0 or more");
  return out;
}

void Trainer::load_state(const StateSection& section) {
  impl_->steps = section.values.at("steps", "trainer state").as_int("trainer state: steps");
  impl_->critic_steps = count_of(section, "critic_steps");
  impl_->handed_steps = count_of(section, "handed_steps");
  impl_->policy.load_state(section);
  if (!section.values.at("critic", "trainer state").as_bool("trainer state: critic")) return;
  StateSection own;
  for (const NamedTensor& named : section.tensors)
    if (named.name.starts_with(critic_prefix))
      own.tensors.push_back({named.name.substr(critic_prefix.size()), named.tensor});
  impl_->the_critic().load_state(own);
}

void Trainer::continue_from(const StateSection& section) {
  const std::string& own = impl_->config.optimizer.kind();
  const Json* kind = section.values.find("optimizer");  // checkpoints of older versions lack it
  if (kind) {
    const std::string& saved = kind->as_string("trainer state: optimizer");
    HONE_CHECK(saved == own, "its optimizer is ", saved, ", and this stage's is ", own,
               ": a state cannot go on with another optimizer");
  }
  const int64_t steps = section.values.at("steps", "trainer state").as_int("trainer state: steps");
  impl_->policy.load_state(section);
  impl_->steps = impl_->handed_steps = steps - count_of(section, "critic_steps");  // updates of the policy
}

}  // namespace hone
