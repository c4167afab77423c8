#pragma once
// Fused optimizer updates of one flat range of parameters that lie end to end. The clip factor stays on the device: a
// step needs no synchronization with the host.
#include "kernels/op.h"

namespace hone {

// pieces f64 [ceil(n / size)] = sums of x^2 over pieces of `size` elements of x, f32 [n]; the last piece may be
// shorter. size: a multiple of 4. A piece's sum depends on its own elements alone, so ranks may compute pieces of their
// own.
inline constinit Op<void(Tensor pieces, Tensor x, int64_t size)> sum_squares{"sum_squares"};
// sum f64 [1] = sum of pieces f64 [n], in an order that n alone decides.
inline constinit Op<void(Tensor sum, Tensor pieces)> sum_pieces{"sum_pieces"};
// clip f32 [1] = min(1, max_norm / (sqrt(sum) + 1e-6)) as torch.nn.utils.clip_grad_norm_; norm f32 [1] = sqrt(sum).
// max_norm <= 0: no clip.
inline constinit Op<void(Tensor clip, Tensor norm, Tensor sum, float max_norm)> clip_factor{"clip_factor"};

// One weight-decay flag covers this number of elements.
inline constexpr int64_t param_granule = 64;
// Elements of a piece of the gradient norm. Shards of a parameter list begin at multiples of it.
inline constexpr int64_t norm_piece = 4096;

// The parameters of an update.
struct ParamRange {
  Tensor value;      // f32 [n], updated: the parameters, or the f32 masters of bf16 parameters
  Tensor rounded{};  // bf16 [n], written: the new values rounded to nearest even; or empty
  Tensor grad;       // f32 [n]
  Tensor decays{};   // u8 [ceil(n / param_granule)]: 0 = no weight decay; empty: all granules decay
  Tensor clip;       // f32 [1]: factor on each gradient, from clip_factor
  // Place of element 0 in the optimizer's whole list of parameters. Random draws depend on it, so a part of the list
  // draws as the whole does.
  int64_t first = 0;
  static constexpr auto access = op_access(updated(&ParamRange::value), written(&ParamRange::rounded),
                                           read(&ParamRange::grad, &ParamRange::decays, &ParamRange::clip));
};

struct AdamwStep {
  float learning_rate = 0, beta1 = 0.9f, beta2 = 0.999f, eps = 1e-8f, weight_decay = 0;
  float correction1 = 1, correction2 = 1;  // 1 - beta^step
  uint64_t seed = 0, stream = 0;           // of the rounding of bf16 moments
};
// AdamW with decoupled weight decay (Loshchilov and Hutter 2019), in torch.optim.AdamW's order of operations. bf16
// moments are rounded stochastically after the value had their exact update: with p = range.first + i, element i takes
// word p % 4 of philox(seed, stream, p / 4), its low half for m and its high half for v.
struct AdamwUpdate {
  ParamRange range;
  Tensor m, v;  // [n], updated: both f32 or both bf16
  AdamwStep step;
  static constexpr auto access = op_access(parts(&AdamwUpdate::range), updated(&AdamwUpdate::m, &AdamwUpdate::v));
};
inline constinit Op<AdamwUpdate> adamw_update{"adamw_update"};

struct SgdStep {
  float learning_rate = 0, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
  bool first = false;  // the buffer is set to the gradient, as torch.optim.SGD does
};
struct SgdUpdate {
  ParamRange range;
  Tensor buffer{};  // f32 [n], updated; unused without momentum
  SgdStep step;
  static constexpr auto access = op_access(parts(&SgdUpdate::range), updated(&SgdUpdate::buffer));
};
inline constinit Op<SgdUpdate> sgd_update{"sgd_update"};

struct RmspropStep {
  float learning_rate = 0, alpha = 0.99f, eps = 1e-8f, weight_decay = 0;
};
// torch.optim.RMSprop without centering or momentum.
struct RmspropUpdate {
  ParamRange range;
  Tensor square;  // f32 [n], updated
  RmspropStep step;
  static constexpr auto access = op_access(parts(&RmspropUpdate::range), updated(&RmspropUpdate::square));
};
inline constinit Op<RmspropUpdate> rmsprop_update{"rmsprop_update"};

struct AdagradStep {
  float learning_rate = 0, eps = 1e-10f, weight_decay = 0;
  float initial = 0;   // the sum before the first step
  bool first = false;  // the sum is set to `initial` before the update
};
// Adagrad (Duchi et al. 2011) as torch.optim.Adagrad has it; learning_rate is already decayed.
struct AdagradUpdate {
  ParamRange range;
  Tensor sum;  // f32 [n], updated
  AdagradStep step;
  static constexpr auto access = op_access(parts(&AdagradUpdate::range), updated(&AdagradUpdate::sum));
};
inline constinit Op<AdagradUpdate> adagrad_update{"adagrad_update"};

struct LionStep {
  float learning_rate = 0, beta1 = 0.9f, beta2 = 0.99f, weight_decay = 0;
  uint64_t seed = 0, stream = 0;  // of the rounding of a bf16 mean, which draws as adamw_update's m does
};
// Lion (Chen et al. 2023) in the order of google/automl's lion_pytorch.py: the value moves by the sign of a mix of mean
// and gradient.
struct LionUpdate {
  ParamRange range;
  Tensor m;  // [n], updated: f32 or bf16
  LionStep step;
  static constexpr auto access = op_access(parts(&LionUpdate::range), updated(&LionUpdate::m));
};
inline constinit Op<LionUpdate> lion_update{"lion_update"};

}  // namespace hone
