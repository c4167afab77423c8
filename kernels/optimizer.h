#pragma once
// Fused optimizer updates of one flat parameter range. value, grad and states are f32 [n]; grad is read only. clip: f32 [1], the factor
// that the global-norm clip puts on every gradient (on the device, so that a step needs no host sync).
#include "kernels/op.h"

namespace hone {

// sum f64 [1] += sum of x^2, x f32 [n]: over fixed blocks, added in ascending order.
inline constinit Op<void(Tensor sum, Tensor x)> sum_squares{"sum_squares"};
// clip f32 [1] = min(1, max_norm / (sqrt(sum) + 1e-6)) as torch.nn.utils.clip_grad_norm_; norm f32 [1] = sqrt(sum). max_norm <= 0: no clip.
inline constinit Op<void(Tensor clip, Tensor norm, Tensor sum, float max_norm)> clip_factor{"clip_factor"};

struct AdamwStep {
  float learning_rate = 0, beta1 = 0.9f, beta2 = 0.999f, eps = 1e-8f, weight_decay = 0;
  float correction1 = 1, correction2 = 1;  // 1 - beta^step
};
// Decoupled weight decay (Loshchilov and Hutter 2019), in torch.optim.AdamW's order of operations.
inline constinit Op<void(Tensor value, Tensor m, Tensor v, Tensor grad, Tensor clip, AdamwStep step)> adamw_update{"adamw_update"};

struct SgdStep {
  float learning_rate = 0, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false, first = false;  // first: the buffer takes the gradient itself, as torch.optim.SGD does
};
inline constinit Op<void(Tensor value, Tensor buffer, Tensor grad, Tensor clip, SgdStep step)> sgd_update{"sgd_update"};

struct RmspropStep {
  float learning_rate = 0, alpha = 0.99f, eps = 1e-8f, weight_decay = 0;
};
// torch.optim.RMSprop without centering or momentum.
inline constinit Op<void(Tensor value, Tensor square, Tensor grad, Tensor clip, RmspropStep step)> rmsprop_update{"rmsprop_update"};

}  // namespace hone
