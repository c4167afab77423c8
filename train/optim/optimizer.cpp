#include "train/optim/optimizer.h"

#include "core/base/rng.h"
#include "kernels/optimizer/optimizer.h"

namespace hone {

std::vector<ParamPart> whole_parts(std::span<Param* const> params) {
  std::vector<ParamPart> out;
  int64_t place = 0;
  for (const Param* param : params) {
    if (!param->trainable) continue;
    const int64_t count = param->value.size();
    out.push_back({.param = param,
                   .first = 0,
                   .value = param->value.view({count}),
                   .grad = param->grad ? param->grad.view({count}) : Tensor(),
                   .place = place});
    place += (count + param_granule - 1) / param_granule * param_granule;
  }
  return out;
}

double ParamPart::decay_or(double optimizers_own) const {
  if (weight_decay >= 0) return weight_decay;
  return param->decay ? optimizers_own : 0;
}

void Optimizer::attach(Context& context, std::span<const ParamPart> parts, std::string list, DividedParams* divided) {
  HONE_CHECK(!attached_, "optimizer: attached twice");
  attached_ = true;
  list_ = std::move(list);
  for (const ParamPart& part : parts) {
    const DType dtype = part.value.dtype;
    HONE_CHECK((dtype == DType::f32 || dtype == DType::bf16) && part.grad && part.grad.dtype == DType::f32,
               "optimizer: ", state_owner(*part.param), " needs f32 or bf16 values with f32 gradients to be trained");
  }
  allocate(context, parts, divided);
}

uint64_t Optimizer::stream_of_step(int64_t step) const {
  const std::string name = list_.empty() ? concat("update ", step) : concat("update ", step, " of ", list_);
  return stream_of(name.c_str());
}

const std::string& state_owner(const Param& param) { return param.slices.front().name; }

Registry<OptimizerFactory>& optimizers() {
  static Registry<OptimizerFactory> registry("optimizer");
  return registry;
}

}  // namespace hone
