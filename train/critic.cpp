#include "train/critic.h"

#include <algorithm>

#include "core/io/file.h"
#include "kernels/adds_once.h"
#include "kernels/elementwise/cast.h"
#include "kernels/gemm/gemm.h"
#include "model/io/adapter.h"
#include "model/io/model_files.h"
#include "model/io/model_folder.h"
#include "model/lora.h"
#include "train/step_exchange.h"

namespace hone {

void CriticConfig::fields(Fields& f) {
  f("trunk", trunk,
    "shared: a value head on the policy | separate: a second model with its own optimizer and gradient norm");
  f("path", path,
    "separate: model folder or .gguf file that it starts from; a reward model's head is loaded too; empty = a copy of "
    "the policy at "
    "the start of the stage");
  f("learning_rate_factor", learning_rate_factor, "learning rate of the critic as a multiple of the policy's");
  f.require("trunk", trunk == "shared" || trunk == "separate", "trunk must be shared or separate");
  f.require("path", path.empty() || separate(), "path needs a separate trunk: set trunk = \"separate\" or remove path");
  f.require("learning_rate_factor", learning_rate_factor > 0, "learning_rate_factor must be above 0");
}

static void check_vocabulary(const Model& trunk, int64_t vocab_size, const std::string& path) {
  HONE_CHECK(trunk.shape().vocab_size >= vocab_size, path, ": its vocabulary has ", trunk.shape().vocab_size,
             " entries, the policy's has ", vocab_size, "; a critic needs as many");
}

void check_critic(const CriticConfig& config, int64_t vocab_size) {
  if (!config.path.empty()) check_vocabulary(*read_model_folder(expand_path(config.path)), vocab_size, config.path);
}

static std::unique_ptr<Model> make_trunk(Context& context, Model& policy, const std::string& path, bool gradients) {
  const std::filesystem::path folder = expand_path(path);
  // A policy with adapters gets a critic with adapters.
  const LoraConfig lora = policy.lora() ? policy.lora()->config : LoraConfig{};
  std::unique_ptr<Model> out;
  if (!path.empty() && context.kind() != DeviceKind::meta) {
    out = load_model(context, folder, {.dtype = policy.dtype(), .gradients = gradients, .lora = lora});
  } else {
    out = path.empty() ? policy.same_shape()
                       : make_model(read_model_config(base_folder(folder)), config_source(base_folder(folder)));
    if (!path.empty() && lora.r > 0) out->add_lora(lora);
    out->allocate(context, policy.dtype(), gradients);
    if (path.empty()) {
      policy.gather_values();
      context.copy(out->flat_values(), policy.flat_values());
    }
  }
  check_vocabulary(*out, policy.shape().vocab_size, path);
  if (!out->lm_head().lookup) out->lm_head().trainable = false;  // values do not read it; a tied one is the embedding
  return out;
}

Critic::Critic(Context& context, Model& policy, const CriticConfig& config, Recompute recompute,
               std::unique_ptr<Optimizer> optimizer, StepExchange& ranks, int64_t piece, PhaseTimer* phases)
    : context_(context), policy_(policy), learning_rate_factor_(config.learning_rate_factor), ranks_(ranks) {
  const bool several = ranks.size() > 1;
  if (config.separate()) trunk_ = std::make_unique<Trunk>(Trunk{make_trunk(context, policy, config.path, !several)});
  const int64_t width = (trunk_ ? *trunk_->model : policy).shape().hidden_size;
  bytes_ = Buffer(context.device(), 2 * static_cast<size_t>(width) * sizeof(float));
  const Tensor all(bytes_.data(), DType::f32, context.kind(), {2, width});
  context.zero(all);
  head_.slices = {{"score.weight", 1}};
  head_.shape = {1, width};
  head_.value = all.rows(0, 1);
  head_.grad = all.rows(1, 1);
  if (!config.path.empty() && context.kind() != DeviceKind::meta)
    if (const std::vector<float> head = load_value_head(context, expand_path(config.path)); !head.empty())
      set_value_head(head);
  std::vector<GradUnit> units;
  if (trunk_ && several) drop_gradient_memory(context, *trunk_->model);
  if (trunk_) units = grad_units(context, *trunk_->model);
  head_unit_ = units.size();
  units.push_back({.trained = {&head_},
                   .values = head_.value.view({width}),
                   .grads = head_.grad.view({width}),
                   .adds_once = adds_once(gemm_backward_weight, context.target())});
  Model* const model = trunk_ ? trunk_->model.get() : nullptr;
  update_ = std::make_unique<ParamUpdate>(context, ranks.make_gradient_sum(context, model, std::move(units), piece),
                                          std::move(optimizer), "critic");
  if (several && phases) timed_.emplace(update_->gradients(), *phases, update_->gradients().gathers_values());
  if (trunk_) trunk_->pass = std::make_unique<TrainingPass>(context, *trunk_->model, recompute, &hooks());
}

void Critic::free_activations() {
  if (trunk_) trunk_->pass->free_memory();
}

Tensor Critic::in_f32(Tensor x) {
  if (x.dtype == DType::f32) return x;
  const Tensor out = context_.scratch().take(DType::f32, x.dims());
  cast(context_, out, x);
  return out;
}

void Critic::apply_head(Tensor value, Tensor hidden) {
  const ScratchScope scope(context_);
  gemm_forward(context_, {.y = value, .x = in_f32(hidden), .w = head_.value});
}

void Critic::forward(Tensor value, const Batch& batch, Tensor rows, Tensor hidden) {
  if (trunk_) trunk_->hidden = trunk_->pass->forward(batch, rows);
  apply_head(value, trunk_ ? trunk_->hidden : hidden);
}

void Critic::score(Tensor value, const Batch& batch, Tensor rows) {
  apply_head(value, infer(context_, scored_model(), batch, rows, nullptr));
}

void Critic::backward(Tensor dhidden, Tensor dvalue, Tensor hidden) {
  const ScratchScope scope(context_);
  const Tensor read = trunk_ ? trunk_->hidden : hidden;
  hooks().before(context_, head_unit_, Direction::backward);
  gemm_backward_weight(context_, head_.grad, Tensor(), dvalue, in_f32(read));
  hooks().after(context_, head_unit_, Direction::backward);
  Tensor dread = context_.scratch().take(DType::f32, read.dims());
  gemm_backward_input(context_, dread, dvalue, head_.value);
  if (!trunk_) {
    const Tensor total = in_f32(dhidden);
    add_into(context_, total, dread);
    if (dhidden.dtype != DType::f32) cast(context_, dhidden, total);
    return;
  }
  if (read.dtype != DType::f32) {
    const Tensor rounded = context_.scratch().take(read.dtype, read.dims());
    cast(context_, rounded, dread);
    dread = rounded;
  }
  trunk_->pass->backward(dread);
}

void Critic::skip_backward() {
  hooks().before(context_, head_unit_, Direction::backward);
  hooks().after(context_, head_unit_, Direction::backward);
  if (trunk_) trunk_->pass->skip_backward();
}

void Critic::skip_forward() {
  if (trunk_) trunk_->pass->skip_forward();
}

void Critic::update(const GradNorm& norm, int64_t step, double learning_rate) {
  update_->apply(norm, step, learning_rate_factor_ * learning_rate);
}

std::vector<float> Critic::value_head() const {
  std::vector<float> out(static_cast<size_t>(head_.value.size()));
  context_.copy(host_view(std::span(out)), head_.value.view({head_.value.size()}));
  return out;
}

void Critic::set_value_head(std::span<const float> weight) {
  HONE_CHECK(static_cast<int64_t>(weight.size()) == head_.value.size(), "critic: the head has ", weight.size(),
             " numbers, the trunk's hidden size is ", head_.value.size());
  std::vector<float> copy(weight.begin(), weight.end());
  context_.copy(head_.value.view({head_.value.size()}), host_view(std::span(copy)));
}

int64_t Critic::weight_bytes() const {
  const GradientBytes gradients = update_->gradients().bytes();
  int64_t out = static_cast<int64_t>(bytes_.size()) + gradients.sum + gradients.buffers + gradients.values;
  if (trunk_) out += static_cast<int64_t>(trunk_->model->flat_values().bytes() + trunk_->model->flat_grads().bytes());
  return out;
}

void Critic::reserve(size_t bytes) {
  if (trunk_) trunk_->pass->reserve(bytes);
}

void Critic::gather_values() {
  if (trunk_) trunk_->model->gather_values();
}

void Critic::release_values() {
  if (trunk_) trunk_->model->release_values();
}

std::vector<NamedTensor> Critic::values() const {
  std::vector<NamedTensor> out{{"value.head", head_.value.view({head_.value.size()})}};
  if (trunk_) out.push_back({"value.trunk", trunk_->model->flat_values()});
  return out;
}

void Critic::save_state(StateSection& section) const {
  host_copies_.clear();
  // All ranks have the same weights.
  const std::vector<NamedTensor> written = ranks_.rank() == 0 ? values() : std::vector<NamedTensor>();
  for (const NamedTensor& named : written) {
    std::vector<std::byte>& bytes = host_copies_.emplace_back(named.tensor.bytes());
    const Tensor host(bytes.data(), named.tensor.dtype, DeviceKind::cpu, named.tensor.dims());
    context_.copy(host, named.tensor);
    section.tensors.push_back({named.name, host});
  }
  update_->save_state(section);
}

void Critic::load_state(const StateSection& section) {
  gather_values();
  for (const NamedTensor& own : values()) {
    const auto saved = std::ranges::find(section.tensors, own.name, &NamedTensor::name);
    if (saved == section.tensors.end()) throw SectionTensorError(concat("critic state: ", own.name, " is missing"));
    if (saved->tensor.dtype != own.tensor.dtype || saved->tensor.size() != own.tensor.size())
      throw SectionTensorError(concat("critic state: ", own.name, " has ", saved->tensor.size(), " ",
                                      name_of(saved->tensor.dtype), " numbers; this critic has ", own.tensor.size(),
                                      " ", name_of(own.tensor.dtype)));
    context_.copy(own.tensor, saved->tensor);
  }
  update_->load_state(section);
}

}  // namespace hone
