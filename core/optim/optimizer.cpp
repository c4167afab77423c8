#include "core/optim/optimizer.h"

#include <algorithm>

namespace hone {
namespace {

int64_t elements(const Param& param) { return param.value.size(); }

}  // namespace

void Optimizer::attach(Context& context, const std::vector<Param*>& params) {
  HONE_CHECK(!context_, "optimizer: attached twice");
  context_ = &context;
  const size_t count = state_names().size();
  int64_t total = 0;
  for (Param* param : params) {
    if (!param->trainable) continue;
    HONE_CHECK(param->value.dtype == DType::f32 && param->grad, "optimizer: ", param->blocks.front().name,
               " needs f32 values with gradients to be trained");
    slots_.push_back({param, {}});
    total += elements(*param) * static_cast<int64_t>(count);
  }
  bytes_ = Buffer(context.device(), static_cast<size_t>(total) * sizeof(float));
  const Tensor all(bytes_.data(), DType::f32, context.kind(), {total});
  context.zero(all);
  int64_t begin = 0;
  for (Slot& slot : slots_)
    for (size_t i = 0; i < count; ++i, begin += elements(*slot.param)) slot.states.push_back(all.rows(begin, elements(*slot.param)));
}

void Optimizer::update(Context& context, Tensor clip, int64_t step, double learning_rate) {
  for (const Slot& slot : slots_) update_param(context, *slot.param, slot.states, clip, step, learning_rate);
}

int64_t Optimizer::state_bytes() const { return static_cast<int64_t>(bytes_.size()); }

std::string Optimizer::state_name(const Slot& slot, size_t state) const { return state_names()[state] + "." + slot.param->blocks.front().name; }

void Optimizer::save_state(StateSection& section) const {
  Tensor all(bytes_.data(), DType::f32, context_->kind(), {state_bytes() / int64_t{sizeof(float)}});
  if (all.device != DeviceKind::cpu) {
    host_copy_.resize(static_cast<size_t>(all.size()));
    context_->copy(host_view(std::span(host_copy_)), all);
    all = host_view(std::span(host_copy_));
  }
  int64_t begin = 0;
  for (const Slot& slot : slots_)
    for (size_t i = 0; i < slot.states.size(); ++i, begin += elements(*slot.param))
      section.tensors.push_back({state_name(slot, i), all.rows(begin, elements(*slot.param))});
}

void Optimizer::load_state(const StateSection& section) {
  std::map<std::string_view, Tensor> saved;
  for (const NamedTensor& named : section.tensors) saved.emplace(named.name, named.tensor);
  for (const Slot& slot : slots_)
    for (size_t i = 0; i < slot.states.size(); ++i) {
      const std::string name = state_name(slot, i);
      const auto found = saved.find(name);
      HONE_CHECK(found != saved.end(), "optimizer state: ", name, " is missing");
      HONE_CHECK(found->second.dtype == DType::f32 && found->second.size() == slot.states[i].size(), "optimizer state: ", name, " has ",
                 found->second.size(), " ", name_of(found->second.dtype), " numbers, the parameter has ", slot.states[i].size(), " f32");
      context_->copy(slot.states[i], found->second.view({found->second.size()}));
    }
}

Registry<OptimizerFactory>& optimizers() {
  static Registry<OptimizerFactory> registry("optimizer");
  return registry;
}

}  // namespace hone
