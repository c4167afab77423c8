#pragma once
// Balance of the experts' load: the auxiliary loss of Switch Transformer (Fedus et al. 2021), the router z-loss (Zoph
// et al. 2022) and DeepSeek-V3's bias update.
//
// With n tokens in a sequence, load_e choices of expert e and p the routers' probabilities (softmax; sigmoid scores are
// divided by their sum), the balance loss of a sequence is E * sum_e (load_e / n) * mean(p_e). With even load it is k,
// as in Hugging Face's transformers. A step's loss is the mean over its tokens, so that packing and micro-batches do
// not change it.
#include "kernels/moe/router.h"

namespace hone {

// Sums over the tokens of each sequence. Each element gets one addition.
struct RouterLoad {
  Tensor load;     // [S, E] f32: the number of choices of each expert
  Tensor probs;    // [S, E] f32: the sum of each expert's probability
  Tensor z;        // [S] f32: the sum of logsumexp(logits)^2
  Tensor logits;   // [T, E] f32
  Tensor experts;  // [T, k] i32
  Tensor offsets;  // [S + 1] i32: sequence s is tokens offsets[s] .. offsets[s + 1]
  RouterScores scores = RouterScores::softmax;
  static constexpr auto access = op_access(added_once(&RouterLoad::load, &RouterLoad::probs, &RouterLoad::z),
                                           read(&RouterLoad::logits, &RouterLoad::experts, &RouterLoad::offsets));
};
inline constinit Op<RouterLoad> router_load{"router_load"};

// losses[0] += sum over s of n_s times the sequence's balance loss; losses[1] += sum of z. n_s = sum_e load / k.
struct RouterLosses {
  Tensor losses;            // [2] f32
  Tensor load;              // [S, E] f32
  Tensor probs;             // [S, E] f32
  Tensor z;                 // [S] f32
  int64_t num_choices = 1;  // k
  static constexpr auto access =
      op_access(added_once(&RouterLosses::losses), read(&RouterLosses::load, &RouterLosses::probs, &RouterLosses::z));
};
inline constinit Op<RouterLosses> router_losses{"router_losses"};

// Adds the gradient of balance * losses[0] + z * losses[1]. The load is constant: gradients flow through the
// probabilities.
struct RouterLossesBackward {
  Tensor dlogits;  // [T, E] f32
  Tensor logits;   // [T, E] f32
  Tensor load;     // [S, E] f32
  Tensor offsets;  // [S + 1] i32
  RouterScores scores = RouterScores::softmax;
  int64_t num_choices = 1;  // k
  float balance = 0, z = 0;
  static constexpr auto access =
      op_access(added_once(&RouterLossesBackward::dlogits),
                read(&RouterLossesBackward::logits, &RouterLossesBackward::load, &RouterLossesBackward::offsets));
};
inline constinit Op<RouterLossesBackward> router_losses_backward{"router_losses_backward"};

// bias_e += rate * sign(mean(load) - load_e): an expert with less than the mean load is chosen more often.
struct RouterBiasUpdate {
  Tensor bias;  // [E] f32, updated
  Tensor load;  // [E] f32: of the whole step
  float rate = 0;
  static constexpr auto access = op_access(updated(&RouterBiasUpdate::bias), read(&RouterBiasUpdate::load));
};
inline constinit Op<RouterBiasUpdate> router_bias_update{"router_bias_update"};

// Throw Error if shapes or dtypes do not fit: for the bodies.
void check_router_load(const RouterLoad& args);
void check_router_losses(const RouterLosses& args);
void check_router_losses_backward(const RouterLossesBackward& args);
void check_router_bias_update(const RouterBiasUpdate& args);

}  // namespace hone
