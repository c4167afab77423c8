#pragma once
// The least time that a machine's limits allow: of each part of a pass the larger of its bytes over the bandwidth and
// its FLOPs over the arithmetic. The parts are the products with weights and attention; norms, activations and the draw
// from logits count as nothing.
#include "cli/bench/op_bench.h"
#include "rollout/engine.h"

namespace hone {

class Roofline {
 public:
  // Blocks, keys and values have the bytes that the engine keeps them in.
  Roofline(Model& model, const MachineLimits& limits, const EngineConfig& engine);
  // Seconds of a pass that gives each of so many sequences a token: every weight is read once, and the keys and values
  // of every sequence, `context` tokens of each.
  double decode(int64_t sequences, int64_t context) const;
  // Of the prompts of so many sequences; the head reads their last tokens.
  double prefill(int64_t sequences, int64_t tokens) const;
  // Of num_generations replies to each prompt of a rollout, written side by side: the first token comes from the
  // prompt's pass.
  struct Rollout {
    double prefill = 0, decode = 0;
  };
  Rollout rollout(int64_t prompts, int64_t num_generations, int64_t prompt_tokens, int64_t new_tokens) const;
  // Of a decode() pass.
  double decode_bytes(int64_t sequences, int64_t context) const;

 private:
  // Products of `rows` rows with so many weights of so many bytes; attention that reads `keys` keys and values of
  // `pairs` queries and keys.
  double products(double weights, double width, int64_t rows) const;
  double attention(double keys, double pairs) const;

  MachineLimits limits_;
  double width_, block_width_, key_width_;  // bytes of a number: of the head, of the blocks, of a key or value
  double blocks_, head_;                    // weights that are multiplied
  double numbers_of_key_ = 0, products_of_pair_ = 0;  // with its value, of all blocks; multiply-adds
};

}  // namespace hone
