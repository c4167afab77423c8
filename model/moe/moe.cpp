#include "model/moe/moe.h"

#include <cmath>

#include "kernels/decoder_layer/rmsnorm_gemm.h"
#include "kernels/elementwise/cast.h"
#include "kernels/gemm/gemm.h"
#include "kernels/moe/balance.h"
#include "kernels/moe/dispatch.h"
#include "kernels/moe/expert_bias.h"
#include "kernels/moe/routed_experts.h"
#include "model/mlp.h"

namespace hone {

struct BalanceTotals {
  int64_t num_experts = 0;
  Buffer bytes{};
  Tensor load{}, probs{}, rest{}, offsets{};  // [1, E], [1, E], [1, 2], and [2] i32

  // Starts a micro-batch of this many tokens.
  void begin(Context& context, int64_t num_tokens) {
    const int64_t sums = 2 * num_experts + 2;
    if (!load) {
      bytes = Buffer(context.device(), static_cast<size_t>(sums + 2) * sizeof(float));
      const Tensor all(bytes.data(), DType::f32, context.kind(), {sums + 2});
      load = all.rows(0, num_experts).view({1, num_experts});
      probs = all.rows(num_experts, num_experts).view({1, num_experts});
      rest = all.rows(2 * num_experts, 2).view({1, 2});
      offsets = all.rows(sums, 2);
      offsets.dtype = DType::i32;
    }
    for (const Tensor& sum : {load, probs, rest}) context.zero(sum);
    const std::vector<int32_t> ends{0, static_cast<int32_t>(num_tokens)};
    context.copy(offsets, host_view(std::span(ends)));
  }
};

std::shared_ptr<BalanceTotals> make_balance_totals(const MoeConfig& config) {
  if (config.scope != BalanceScope::micro_batch) return nullptr;
  return std::make_shared<BalanceTotals>(BalanceTotals{.num_experts = config.num_experts});
}

// A number of config.json that is 0 or more.
static double read_factor(ConfigReader& config, const char* key, double fallback) {
  const Json* value = config.find(key);
  const double out = value ? value->as_double(config.place(key)) : fallback;
  config.require(std::isfinite(out) && out >= 0, key, " is ", out, ", wants 0 or more");
  return out;
}

void read_balance(ConfigReader& config, MoeConfig& moe, double coef) {
  moe.balance_coef = read_factor(config, "router_aux_loss_coef", coef);
  config.set("router_aux_loss_coef", moe.balance_coef);
  moe.z_coef = read_factor(config, "router_z_loss_coef", 0);
  moe.bias_rate = read_factor(config, "router_bias_update_rate", 0);
  moe.capacity_factor = read_factor(config, "expert_capacity_factor", 0);
  if (!config.find("router_aux_loss_scope")) return;
  config.accept("router_aux_loss_scope", "sequence", {"sequence", "micro_batch"});
  if (config.text("router_aux_loss_scope", "sequence") == "micro_batch") moe.scope = BalanceScope::micro_batch;
}

Moe::Moe(const MoeConfig& config, const Names& names, int64_t width, double init_std, int64_t index,
         std::shared_ptr<BalanceTotals> totals)
    : config_(config), index_(index), balances_(names.numbered), totals_(std::move(totals)) {
  const int64_t E = config.num_experts;
  router_ = {.slices = {{names.router + ".weight", E}}, .shape = {E, width}, .init_std = init_std};
  if (config.biases)
    router_bias_ = {.slices = {{names.router + ".bias", E}}, .shape = {E}, .decay = false, .init_std = init_std};
  if (config.bias_rate > 0 || config.has_choice_bias)
    bias_ = {.slices = {{names.router + ".e_score_correction_bias", E}},
             .shape = {E},
             .decay = false,
             .trainable = false,
             .keep_f32 = true};
  FusedModules inner, outer;
  for (int64_t e = 0; e < E; ++e) {
    const std::string prefix = concat(names.experts, names.numbered ? concat(".", e) : std::string(), ".");
    inner.emplace_back(prefix + names.gate, config.inner_size);
    inner.emplace_back(prefix + names.up, config.inner_size);
    outer.emplace_back(prefix + names.down, width);
  }
  gate_up_ = Linear(inner, width, config.biases, init_std);
  down_ = Linear(outer, config.inner_size, config.biases, init_std);
  gate_up_.num_experts = down_.num_experts = E;
  for (Linear* linear : {&gate_up_, &down_})
    linear->weight.active_share = linear->bias.active_share =
        static_cast<double>(config.num_choices) / static_cast<double>(E);
}

Moe::~Moe() = default;

void Moe::add_to(ModuleList& list) {
  list.add(router_);
  list.add(router_bias_);
  list.add(gate_up_);
  list.add(down_);
  if (shared_) shared_->add_to(list);
  list.add(bias_);
}

Moe::Routed Moe::take_routed(Frame& frame, int64_t num_tokens) const {
  const int64_t E = config_.num_experts, k = config_.num_choices;
  const Tensor logits = frame.save(DType::f32, {num_tokens, E}), experts = frame.save(DType::i32, {num_tokens, k}),
               weights = frame.save(DType::f32, {num_tokens, k}), order = frame.save(DType::i32, {num_tokens * k}),
               places = frame.save(DType::i32, {num_tokens, k}), offsets = frame.save(DType::i32, {E + 1});
  return {logits, experts, weights, order, places, offsets};
}

Moe::Routed Moe::restore_routed(Saved& saved) {
  const Tensor logits = saved.next(), experts = saved.next(), weights = saved.next(), order = saved.next(),
               places = saved.next();
  return {logits, experts, weights, order, places, saved.next()};
}

void Moe::route(Context& context, const LayerPass& pass, Tensor x, const Routed& to) const {
  gemm_forward(context, {.y = to.logits, .x = x, .w = router_.value, .bias = router_bias_.value});
  router_forward(
      context,
      {.experts = to.experts, .weights = to.weights, .logits = to.logits, .bias = bias_.value, .rule = config_.rule});
  const double even = static_cast<double>(to.experts.size()) / static_cast<double>(config_.num_experts);
  const bool limited = config_.capacity_factor > 0 && pass.aux.weights;
  moe_dispatch(context, {.order = to.order,
                         .places = to.places,
                         .offsets = to.offsets,
                         .experts = to.experts,
                         .capacity = limited ? static_cast<int64_t>(std::ceil(config_.capacity_factor * even)) : 0});
}

bool Moe::is_fused(const LayerPass& pass) const {
  return !gate_up_.lora && !down_.lora && !pass.tape && !pass.aux.weights && !pass.aux.sums;
}

void Moe::infer(Context& context, Tensor out, Tensor x, Tensor logits, Tensor residual) const {
  routed_experts(context, {.y = out,
                           .x = x,
                           .logits = logits,
                           .bias = bias_.value,
                           .gate_up = gate_up_.expert_matrices(),
                           .down = down_.expert_matrices(),
                           .residual = residual,
                           .rule = config_.rule,
                           .num_choices = config_.num_choices,
                           .activation = config_.activation,
                           .clamped = config_.clamped});
}

std::optional<FusedExperts> Moe::fused_experts(const LayerPass& pass) const {
  if (!is_fused(pass) || shared_ || bias_.value) return {};
  return FusedExperts{.router = {router_.value, router_bias_.value},
                      .gate_up = gate_up_.expert_matrices(),
                      .down = down_.expert_matrices(),
                      .rule = config_.rule,
                      .num_choices = config_.num_choices,
                      .activation = config_.activation,
                      .clamped = config_.clamped};
}

bool Moe::infer_with_norm(Context& context, const LayerPass& pass, const RmsNormWeights& norm, Tensor out, Tensor x,
                          Tensor residual) const {
  if (!is_fused(pass)) return false;
  const ScratchScope scope(context);
  const Tensor logits = context.scratch().take(DType::f32, {x.dim(0), config_.num_experts}),
               normed = context.scratch().take(x.dtype, x.dims());
  rmsnorm_gemm(context,
               {.y = logits, .normed = normed, .x = x, .norm = norm, .product = {router_.value, router_bias_.value}});
  if (shared_) {
    Frame frame(context, nullptr);
    shared_->forward(context, pass, out, normed, residual, frame);
  }
  infer(context, out, normed, logits, shared_ ? out : residual);
  return true;
}

void Moe::forward(Context& context, const LayerPass& pass, Tensor out, Tensor x, Tensor residual, Frame& frame) const {
  if (is_fused(pass)) {
    const ScratchScope scope(context);
    const Tensor logits = context.scratch().take(DType::f32, {x.dim(0), config_.num_experts});
    if (shared_) shared_->forward(context, pass, out, x, residual, frame);
    gemm_forward(context, {.y = logits, .x = x, .w = router_.value, .bias = router_bias_.value});
    return infer(context, out, x, logits, shared_ ? out : residual);
  }
  const int64_t rows = x.dim(0) * config_.num_choices;
  const Routed routed = take_routed(frame, x.dim(0));
  const Tensor gathered = frame.save_cheap(x.dtype, {rows, x.dim(1)}),
               both = frame.save(x.dtype, {rows, 2 * config_.inner_size}),
               activated = frame.save_cheap(x.dtype, {rows, config_.inner_size});
  route(context, pass, x, routed);
  if (balances() && pass.aux.sums) add_sums(context, pass, routed);
  if (shared_) {
    LayerPass plain = pass;
    plain.aux = {};
    shared_->forward(context, plain, out, x, residual, frame);
    residual = out;
  }
  const ScratchScope scope(context);
  const Tensor results = context.scratch().take(x.dtype, {rows, x.dim(1)});
  moe_gather(context, {.y = gathered, .x = x, .order = routed.order});
  gate_up_.forward_experts(context, both, gathered, routed.offsets);
  activate(context, activated, both);
  down_.forward_experts(context, results, activated, routed.offsets);
  moe_combine(context,
              {.y = out, .x = results, .places = routed.places, .weights = routed.weights, .residual = residual});
}

void Moe::backward(Context& context, const LayerPass& pass, Tensor dx, Tensor dout, Tensor x, Saved& saved) const {
  const ScratchScope scope(context);
  const Routed routed = restore_routed(saved);
  Tensor gathered = saved.next();
  const Tensor both = saved.next();
  Tensor activated = saved.next();
  const int64_t rows = both.dim(0);
  const auto take = [&](int64_t columns) { return context.scratch().take(x.dtype, {rows, columns}); };
  if (!activated) {
    activated = take(config_.inner_size);
    activate(context, activated, both);
  }
  // The second matrix: the weights of the choices are taken at its input (kernels/moe/dispatch.h).
  const Tensor dresults = take(x.dim(1)), dactivated = take(config_.inner_size),
               dweights = context.scratch().take(DType::f32, routed.weights.dims());
  moe_gather(context, {.y = dresults, .x = dout, .order = routed.order});
  down_.backward_input_experts(context, dactivated, dresults, routed.offsets);
  moe_weight_backward(
      context,
      {.dweights = dweights, .g = dactivated, .h = activated, .weights = routed.weights, .places = routed.places});
  if (const Tensor biases = down_.expert_biases())
    expert_bias_weights(
        context,
        {.dweights = dweights, .dy = dresults, .bias = biases, .experts = routed.experts, .places = routed.places});
  down_.backward_bias_experts(context, dresults, routed.offsets, routed.weights, routed.order);
  down_.backward_weight_experts(context, dresults, activated, routed.offsets);
  // The first matrix.
  const Tensor dboth = both;
  activate_backward(context, dboth, dactivated, both);
  if (!gathered) {
    gathered = take(x.dim(1));
    moe_gather(context, {.y = gathered, .x = x, .order = routed.order});
  }
  gate_up_.backward_bias_experts(context, dboth, routed.offsets);
  gate_up_.backward_weight_experts(context, dboth, gathered, routed.offsets);
  const Tensor dgathered = dresults;
  gate_up_.backward_input_experts(context, dgathered, dboth, routed.offsets);
  // The inputs of experts, router and shared expert are one.
  backward_router(context, pass, dx, dweights, x, routed);
  moe_combine(context, {.y = dx, .x = dgathered, .places = routed.places, .residual = dx});
  if (!shared_) return;
  LayerPass plain = pass;
  plain.aux = {};
  const Tensor dshared = context.scratch().take(dx.dtype, dx.dims());
  shared_->backward(context, plain, dshared, dout, x, saved);
  add_into(context, dx, dshared);
}

void Moe::activate(Context& context, Tensor activated, Tensor both) const {
  if (config_.clamped)
    clamped_glu_forward(context, activated, both, *config_.clamped);
  else
    glu_forward(context, activated, both, config_.activation);
}

void Moe::activate_backward(Context& context, Tensor dboth, Tensor dactivated, Tensor both) const {
  if (config_.clamped)
    clamped_glu_backward(context, dboth, dactivated, both, *config_.clamped);
  else
    glu_backward(context, dboth, {}, dactivated, both, config_.activation);
}

// Writes dx.
void Moe::backward_router(Context& context, const LayerPass& pass, Tensor dx, Tensor dweights, Tensor x,
                          const Routed& of) const {
  const ScratchScope scope(context);
  const Tensor dlogits = context.scratch().take(DType::f32, of.logits.dims());
  router_backward(
      context,
      {.dlogits = dlogits, .dweights = dweights, .experts = of.experts, .logits = of.logits, .rule = config_.rule});
  if (balances() && pass.aux.weights) add_loss_gradient(context, pass, dlogits, of);
  Tensor gradient = dlogits;
  if (x.dtype != DType::f32) {
    gradient = context.scratch().take(x.dtype, dlogits.dims());
    cast(context, gradient, dlogits);
  }
  if (router_.grad) gemm_backward_weight(context, router_.grad, router_bias_.grad, gradient, x);
  gemm_backward_input(context, dx, gradient, router_.value);
}

void Moe::add_sums(Context& context, const LayerPass& pass, const Routed& of) const {
  const ScratchScope scope(context);
  const int64_t S = pass.batch.num_sequences, E = config_.num_experts;
  RouterLoad load{.load = context.scratch().take(DType::f32, {S, E}),
                  .probs = context.scratch().take(DType::f32, {S, E}),
                  .rest = context.scratch().take(DType::f32, {S, 2}),
                  .logits = of.logits,
                  .experts = of.experts,
                  .places = of.places,
                  .weights = pass.aux.weights,
                  .offsets = pass.batch.offsets,
                  .scores = config_.rule.scores};
  for (const Tensor& sum : {load.load, load.probs, load.rest}) context.zero(sum);
  router_load(context, load);
  RouterSums sums{.sums = pass.aux.sums,
                  .load = load.load,
                  .probs = load.probs,
                  .rest = load.rest,
                  .num_choices = config_.num_choices};
  router_sums(context, sums);
  if (!totals_) return;
  if (index_ == 0) totals_->begin(context, of.logits.dim(0));
  load.load = totals_->load;
  load.probs = totals_->probs;
  load.rest = totals_->rest;
  load.offsets = totals_->offsets;
  router_load(context, load);
  // The layer's own balance loss counts for nothing; the last layer has that of all layers.
  context.zero(pass.aux.sums.rows(0, 1));
  if (index_ + 1 < config_.num_layers) return;
  const Tensor all = context.scratch().take(DType::f32, {3 + E});
  context.zero(all);
  router_sums(context, {.sums = all,
                        .load = totals_->load,
                        .probs = totals_->probs,
                        .rest = totals_->rest,
                        .num_choices = config_.num_choices});
  context.copy(pass.aux.sums.rows(0, 1), all.rows(0, 1));
}

void Moe::add_loss_gradient(Context& context, const LayerPass& pass, Tensor dlogits, const Routed& of) const {
  if (config_.balance_coef == 0 && config_.z_coef == 0) return;
  const ScratchScope scope(context);
  const int64_t S = pass.batch.num_sequences, E = config_.num_experts;
  RouterLossesBackward backward{.dlogits = dlogits,
                                .logits = of.logits,
                                .load = {},
                                .weights = pass.aux.weights,
                                .offsets = {},
                                .scores = config_.rule.scores,
                                .num_choices = config_.num_choices,
                                .balance = static_cast<float>(per_layer(config_.balance_coef)),
                                .z = static_cast<float>(per_layer(config_.z_coef))};
  if (totals_) {
    backward.load = totals_->load;
    backward.offsets = totals_->offsets;
  } else {
    const RouterLoad load{.load = context.scratch().take(DType::f32, {S, E}),
                          .probs = context.scratch().take(DType::f32, {S, E}),
                          .rest = context.scratch().take(DType::f32, {S, 2}),
                          .logits = of.logits,
                          .experts = of.experts,
                          .weights = pass.aux.weights,
                          .offsets = pass.batch.offsets,
                          .scores = config_.rule.scores};
    for (const Tensor& sum : {load.load, load.probs, load.rest}) context.zero(sum);
    router_load(context, load);
    backward.load = load.load;
    backward.offsets = pass.batch.offsets;
  }
  router_losses_backward(context, backward);
}

void Moe::end_step(Context& context, std::span<const double> sums, AuxReport& report) {
  if (sums.empty()) return;
  const std::span<const double> load = sums.subspan(3);
  double choices = 0;
  for (const double one : load) choices += one;
  if (choices <= 0) return;  // no trained tokens
  report.loss += per_layer(config_.balance_coef) * sums[0] + per_layer(config_.z_coef) * sums[1];
  if (!totals_)
    report.add("moe/balance_loss", sums[0]);
  else if (index_ + 1 == config_.num_layers)
    report.add("moe/balance_loss", per_layer(sums[0]));
  report.add("moe/z_loss", sums[1]);
  report_load(load, sums[2] / choices, report);
  if (config_.bias_rate == 0 || !router_.trainable) return;  // a frozen router keeps its bias
  const ScratchScope scope(context);
  const std::vector<float> loads(load.begin(), load.end());
  router_bias_update(context, {.bias = bias_.value,
                               .load = upload(context, context.scratch(), std::span<const float>(loads)),
                               .rate = static_cast<float>(config_.bias_rate)});
}

void Moe::report_load(std::span<const double> load, double dropped, AuxReport& report) const {
  constexpr int64_t most_single_loads = 256;  // metrics of a step
  double choices = 0, entropy = 0, most = 0, least = INFINITY;
  for (const double one : load) choices += one;
  const auto E = static_cast<double>(load.size());
  for (size_t e = 0; e < load.size(); ++e) {
    const double share = load[e] / choices;
    if (share > 0) entropy -= share * std::log(share);
    most = std::max(most, share * E);
    least = std::min(least, share * E);
    if (config_.num_layers * config_.num_experts <= most_single_loads)
      report.add(concat("moe/load/", index_, "/", e), share);
  }
  report.add("moe/load_entropy", E > 1 ? entropy / std::log(E) : 1);
  report.add("moe/load_violation_max", most - 1);
  report.add("moe/load_min", least);
  report.add("moe/dropped", dropped);
}

std::unique_ptr<Sublayer> gated_shared_expert(const std::string& gate, const std::string& mlp, int64_t width,
                                              int64_t inner_size, double init_std, Activation activation) {
  const MoeConfig config{.num_experts = 1,
                         .num_choices = 1,
                         .inner_size = inner_size,
                         .rule = {.scores = RouterScores::sigmoid},
                         .activation = activation};
  return std::make_unique<Moe>(config, Moe::Names{.router = gate, .experts = mlp, .numbered = false}, width, init_std);
}

}  // namespace hone
