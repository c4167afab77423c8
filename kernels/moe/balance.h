#pragma once
// Balance of the experts' load: the auxiliary loss of Switch Transformer (Fedus et al. 2021), the router z-loss (Zoph
// et al. 2022) and DeepSeek-V3's bias update.
//
// Token t has weight w_t, its share of the optimizer step (model/aux_loss.h); W is the sum over a sequence. With load_e
// the weighted number of choices of expert e, and probs_e the weighted sum of the router's probabilities (softmax;
// sigmoid scores are divided by their sum), the balance loss of a sequence is W * E * sum_e (load_e / W) * (probs_e /
// W). With even load it is W * k, as in Hugging Face's transformers. A step's loss is the sum over its sequences, so
// that packing and micro-batches do not change it.
#include "kernels/moe/router.h"

namespace hone {

// Weighted sums over the tokens of each sequence. Each element gets one addition.
struct RouterLoad {
  Tensor load;      // [S, E] f32: choices of each expert
  Tensor probs;     // [S, E] f32: probability of each expert
  Tensor rest;      // [S, 2] f32: logsumexp(logits)^2; dropped choices
  Tensor logits;    // [T, E] f32
  Tensor experts;   // [T, k] i32
  Tensor places{};  // [T, k] i32 of moe_dispatch, or empty: nothing is dropped
  Tensor weights;   // [T] f32
  Tensor offsets;   // [S + 1] i32: sequence s is tokens offsets[s] .. offsets[s + 1]
  RouterScores scores = RouterScores::softmax;
  static constexpr auto access = op_access(
      added_once(&RouterLoad::load, &RouterLoad::probs, &RouterLoad::rest),
      read(&RouterLoad::logits, &RouterLoad::experts, &RouterLoad::places, &RouterLoad::weights, &RouterLoad::offsets));
};
inline constinit Op<RouterLoad> router_load{"router_load"};

// Sums over all sequences, for the loss and the metrics of a step: sums[0] += balance losses, sums[1] and sums[2] +=
// the columns of rest, sums[3 + e] += load of expert e. Here W = sum_e load_e / k.
struct RouterSums {
  Tensor sums;              // [3 + E] f32
  Tensor load;              // [S, E] f32
  Tensor probs;             // [S, E] f32
  Tensor rest;              // [S, 2] f32
  int64_t num_choices = 1;  // k
  static constexpr auto access =
      op_access(added_once(&RouterSums::sums), read(&RouterSums::load, &RouterSums::probs, &RouterSums::rest));
};
inline constinit Op<RouterSums> router_sums{"router_sums"};

// dlogits += the gradient of balance * sums[0] + z * sums[1]. The load is a constant: gradients flow through the
// probabilities.
struct RouterLossesBackward {
  Tensor dlogits;  // [T, E] f32
  Tensor logits;   // [T, E] f32
  Tensor load;     // [S, E] f32
  Tensor weights;  // [T] f32
  Tensor offsets;  // [S + 1] i32
  RouterScores scores = RouterScores::softmax;
  int64_t num_choices = 1;  // k
  float balance = 0, z = 0;
  static constexpr auto access = op_access(added_once(&RouterLossesBackward::dlogits),
                                           read(&RouterLossesBackward::logits, &RouterLossesBackward::load,
                                                &RouterLossesBackward::weights, &RouterLossesBackward::offsets));
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
void check_router_sums(const RouterSums& args);
void check_router_losses_backward(const RouterLossesBackward& args);
void check_router_bias_update(const RouterBiasUpdate& args);

}  // namespace hone
