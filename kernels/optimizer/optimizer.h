#pragma once
// Fused optimizer updates of one flat parameter range, or of many parameters that lie end to end. The clip factor stays
// on the device, so that a step needs no host sync.
#include "kernels/op.h"

namespace hone {

// sum f64 [1] += sum of x^2, x f32 [n]: over fixed blocks, added in ascending order.
inline constinit Op<void(Tensor sum, Tensor x)> sum_squares{"sum_squares"};
// clip f32 [1] = min(1, max_norm / (sqrt(sum) + 1e-6)) as torch.nn.utils.clip_grad_norm_; norm f32 [1] = sqrt(sum).
// max_norm <= 0: no clip.
inline constinit Op<void(Tensor clip, Tensor norm, Tensor sum, float max_norm)> clip_factor{"clip_factor"};

// What every update works on. Whether weight decay applies is said for each block of param_granule elements.
struct ParamRange {
  Tensor value;    // f32 [n], read and written: the parameters, or the master copy of parameters in bf16
  Tensor rounded;  // bf16 [n], written with the new values rounded to nearest even; or empty
  Tensor grad;     // f32 [n], read
  Tensor decays;   // u8 [n / param_granule, rounded up]: 0 = no weight decay; empty: every block decays
  Tensor clip;     // f32 [1], the factor that the global-norm clip puts on every gradient
};
inline constexpr int64_t param_granule = 64;

struct AdamwStep {
  float learning_rate = 0, beta1 = 0.9f, beta2 = 0.999f, eps = 1e-8f, weight_decay = 0;
  float correction1 = 1, correction2 = 1;  // 1 - beta^step
  uint64_t seed = 0, stream = 0;           // of bf16 moments' rounding
};
// Decoupled weight decay (Loshchilov and Hutter 2019), in torch.optim.AdamW's order of operations. m, v [n]: both f32,
// or both bf16 and rounded stochastically after the value has had their exact update: element i draws word i % 4 of
// philox(seed, stream, i / 4), its low half for m, its high half for v.
inline constinit Op<void(ParamRange range, Tensor m, Tensor v, AdamwStep step)> adamw_update{"adamw_update"};

struct SgdStep {
  float learning_rate = 0, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false, first = false;  // first: the buffer takes the gradient itself, as torch.optim.SGD does
};
// buffer f32 [n]; unread without momentum.
inline constinit Op<void(ParamRange range, Tensor buffer, SgdStep step)> sgd_update{"sgd_update"};

struct RmspropStep {
  float learning_rate = 0, alpha = 0.99f, eps = 1e-8f, weight_decay = 0;
};
// torch.optim.RMSprop without centering or momentum. square f32 [n].
inline constinit Op<void(ParamRange range, Tensor square, RmspropStep step)> rmsprop_update{"rmsprop_update"};

}  // namespace hone
