#include "model/units.h"

#include <algorithm>
#include <initializer_list>

#include "kernels/adds_once.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/latent/head_gemm.h"
#include "kernels/elementwise/embedding.h"
#include "kernels/gemm/gemm.h"
#include "kernels/lm_head/logprob.h"
#include "kernels/moe/expert_bias.h"
#include "kernels/moe/grouped_gemm.h"
#include "kernels/norm/layernorm.h"
#include "kernels/norm/rmsnorm.h"
#include "kernels/rope/qkv.h"
#include "model/lora.h"
#include "model/model.h"
#include "model/modules.h"
#include "model/mtp.h"

namespace hone {
namespace {

bool all_add_once(DeviceKind device, std::initializer_list<const OpBase*> ops) {
  return std::ranges::all_of(ops, [&](const OpBase* op) { return adds_once(*op, device); });
}

// The units' parameters, without ranges.
std::vector<Unit> split(Model& model, DeviceKind device) {
  const int64_t num_layers = model.shape().num_layers;
  const std::vector<Param*> base = model.base_params();
  std::vector<Unit> out(static_cast<size_t>(num_layers) + 2);
  size_t at = 0;
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    const ModuleList modules = model.layer_modules(layer);
    const std::vector<Param*>& own = modules.params;
    Unit& unit = out[static_cast<size_t>(layer) + 1];
    unit.params = own;
    unit.adds_once = all_add_once(
        device, {&gemm_backward_weight, &grouped_gemm_backward_weight, &head_gemm_weight, &expert_bias_backward,
                 &rmsnorm_backward, &layernorm_backward, &qkv_backward, &attention_backward});
    if (layer == 0) {
      at = static_cast<size_t>(std::ranges::find(base, own.front()) - base.begin());
      out.front().params.assign(base.begin(), base.begin() + static_cast<std::ptrdiff_t>(at));
    }
    at += own.size();
    for (Linear* linear : modules.linears)
      if (linear->lora) unit.params.insert(unit.params.end(), {&linear->lora->a, &linear->lora->b});
  }
  out.back().params.assign(base.begin() + static_cast<std::ptrdiff_t>(at), base.end());
  const bool tied = std::ranges::find(out.front().params, &model.lm_head()) != out.front().params.end();
  // A tied head and the embedding add to the same gradient: two additions in a pass. Multi-token prediction adds once
  // more to embedding, lm_head and final norm.
  const bool once = !mtp_of(model);
  out.front().adds_once = !tied && once && adds_once(embedding_backward, device);
  out.back().adds_once = once && all_add_once(device, {&rmsnorm_backward, &layernorm_backward}) &&
                         (tied || all_add_once(device, {&logprob_backward, &logprob_fused}));
  return out;
}

// Extends a range that may be empty to [first, last).
void extend(ElementRange& range, int64_t first, int64_t last) {
  if (range.size() == 0) range.first = first;
  range.last = last;
}

}  // namespace

std::vector<Unit> units_of(Model& model, DeviceKind device) {
  std::vector<Unit> out = split(model, device);
  const std::vector<Param*> adapters = model.lora() ? model.adapter_params() : std::vector<Param*>();
  const auto unit_of = [&](const Param* param) -> Unit& {
    const auto found = std::ranges::find_if(
        out, [&](const Unit& unit) { return std::ranges::find(unit.params, param) != unit.params.end(); });
    HONE_CHECK(found != out.end(), "model: ", param->slices.front().name, " belongs to no unit");
    return *found;
  };
  int64_t value_at = 0, grad_at = 0;
  const Param* last = nullptr;  // the parameter before
  for (Param* param : model.params()) {
    Unit& unit = unit_of(param);
    const bool adapter = std::ranges::find(adapters, param) != adapters.end();
    const int64_t size = param->padded_elements();
    extend(adapter ? unit.adapter_values : unit.values, value_at, value_at + size);
    value_at += size;
    if (param->grad && param->trainable) {
      HONE_CHECK(unit.trained.empty() || unit.trained.back() == last, "model: ", last->slices.front().name,
                 " lies between trained parameters of its layer; a frozen one must be the first or the last");
      unit.trained.push_back(param);
      extend(unit.grads, grad_at, grad_at + size);
      if (!adapter) extend(unit.trained_values, value_at - size, value_at);
    }
    last = param;
    if (param->grad) grad_at += size;
  }
  return out;
}

}  // namespace hone
