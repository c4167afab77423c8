#include "pretrain/critic.h"

#include "kernels/cast.h"
#include "kernels/gemm.h"

namespace hone {
namespace {

constexpr const char* state_name = "critic.values";

Param make_param(const char* name, std::vector<int64_t> shape, bool decay) {
  Param out;
  out.blocks = {{name, shape[0]}};
  out.shape = std::move(shape);
  out.decay = decay;
  return out;
}

}  // namespace

Critic::Critic(Context& context, int64_t hidden_size, std::unique_ptr<Optimizer> optimizer)
    : context_(context),
      bytes_(context.device(), 2 * static_cast<size_t>(hidden_size + 1) * sizeof(float)),
      weight_(make_param("critic.weight", {1, hidden_size}, true)),
      bias_(make_param("critic.bias", {1}, false)),
      optimizer_(std::move(optimizer)) {
  const Tensor all(bytes_.data(), DType::f32, context.kind(), {2 * (hidden_size + 1)});
  context.zero(all);
  values_ = all.rows(0, hidden_size + 1), grads_ = all.rows(hidden_size + 1, hidden_size + 1);
  weight_.value = values_.rows(0, hidden_size).view({1, hidden_size}), weight_.grad = grads_.rows(0, hidden_size).view({1, hidden_size});
  bias_.value = values_.rows(hidden_size, 1), bias_.grad = grads_.rows(hidden_size, 1);
  optimizer_->attach(context, {&weight_, &bias_});
}

Tensor Critic::in_f32(Tensor x) {
  if (x.dtype == DType::f32) return x;
  const Tensor out = context_.scratch().take(DType::f32, x.dims());
  cast(context_, out, x);
  return out;
}

void Critic::forward(Tensor value, Tensor hidden) {
  const ScratchScope scope(context_);
  gemm_forward(context_, value, in_f32(hidden), weight_.value, bias_.value, Tensor());
}

void Critic::backward(Tensor dhidden, Tensor dvalue, Tensor hidden) {
  const ScratchScope scope(context_);
  gemm_backward_weight(context_, weight_.grad, bias_.grad, dvalue, in_f32(hidden));
  const Tensor part = context_.scratch().take(DType::f32, dhidden.dims()), total = in_f32(dhidden);
  gemm_backward_input(context_, part, dvalue, weight_.value);
  add_into(context_, total, part);
  if (dhidden.dtype != DType::f32) cast(context_, dhidden, total);
}

void Critic::zero_grad() { context_.zero(grads_); }

void Critic::update(Tensor clip, int64_t step, double learning_rate) { optimizer_->update(context_, clip, step, learning_rate); }

void Critic::save_state(StateSection& section) const {
  host_copy_.resize(static_cast<size_t>(values_.size()));
  context_.copy(host_view(std::span(host_copy_)), values_);
  section.tensors.push_back({state_name, host_view(std::span(host_copy_))});
  optimizer_->save_state(section);
}

void Critic::load_state(const StateSection& section) {
  for (const NamedTensor& named : section.tensors) {
    if (named.name != state_name) continue;
    HONE_CHECK(named.tensor.dtype == DType::f32 && named.tensor.size() == values_.size(), "critic state: ", named.tensor.size(),
               " numbers; this model's critic has ", values_.size());
    context_.copy(values_, named.tensor);
    optimizer_->load_state(section);
    return;
  }
  fail("critic state: ", state_name, " is missing");
}

}  // namespace hone
