#pragma once
// Router of a mixture of experts: chooses k of E experts for each token and gives each choice a weight (Shazeer et al.
// 2017, Switch Transformer, DeepSeek-V3). A token's choices and weights depend on its own logits alone.
//
// A token's choices are in descending order of their keys; among equals the lower expert id comes first. The key of an
// expert is its logit; with `bias` or groups it is its score plus bias.
#include "kernels/op.h"

namespace hone {

enum class RouterScores : uint8_t {
  softmax,         // over all experts
  sigmoid,         // of each logit (DeepSeek-V3)
  softmax_of_top,  // over the chosen experts (gpt-oss)
};

struct RouterRule {
  RouterScores scores = RouterScores::softmax;
  bool normalize = false;  // divide a token's weights by their sum
  float scale = 1;         // factor of the weights, after `normalize`
  // Above 1: the experts are num_groups ranges of equal size, and choices come from the best top_groups of them. A
  // group's rank is the sum of its two best scores + bias (sigmoid, DeepSeek-V3) or its best one (softmax,
  // DeepSeek-V2).
  int64_t num_groups = 1, top_groups = 1;
};

struct RouterForward {
  Tensor experts;  // [T, k] i32
  Tensor weights;  // [T, k] f32
  Tensor logits;   // [T, E] f32
  Tensor bias{};   // [E] f32 or empty: added for the choice only, not to the weights
  RouterRule rule{};
  static constexpr auto access = op_access(written(&RouterForward::experts, &RouterForward::weights),
                                           read(&RouterForward::logits, &RouterForward::bias));
};
inline constinit Op<RouterForward> router_forward{"router_forward"};

// The choice is constant: gradients flow through the weights.
struct RouterBackward {
  Tensor dlogits;   // [T, E] f32
  Tensor dweights;  // [T, k] f32
  Tensor experts;   // [T, k] i32 of router_forward
  Tensor logits;    // [T, E] f32
  RouterRule rule{};
  static constexpr auto access =
      op_access(written(&RouterBackward::dlogits),
                read(&RouterBackward::dweights, &RouterBackward::experts, &RouterBackward::logits));
};
inline constinit Op<RouterBackward> router_backward{"router_backward"};

// Throw Error if shapes or the rule do not fit: for the bodies.
void check_router_forward(const RouterForward& args);
void check_router_backward(const RouterBackward& args);

// Added to the sum that `normalize` divides by, as in DeepSeek-V3: a token whose sigmoids are all 0 gets weights of 0.
inline constexpr float router_sum_floor = 1e-20f;

}  // namespace hone
