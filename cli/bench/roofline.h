#pragma once
// The least time that a machine's limits allow: the sum over the parts of a pass of
// max(bytes / bandwidth, FLOPs / peak). The parts are the GEMMs with weights and attention. Norms, activations and
// sampling are not counted.
#include "cli/bench/op_bench.h"
#include "rollout/engine.h"

namespace hone {

class Roofline {
 public:
  // The bytes of layers, keys and values follow from the formats of `engine`.
  Roofline(Model& model, const MachineLimits& limits, const EngineConfig& engine);
  // Seconds of a decode pass. It reads each weight once, and the keys and values of `context` tokens per sequence.
  double decode(int64_t sequences, int64_t context) const;
  // Seconds of prefill. The lm_head is computed for the last token of each sequence.
  double prefill(int64_t sequences, int64_t tokens) const;
  // Seconds of num_generations completions of each prompt, decoded in one batch. Prefill gives the first token.
  struct Rollout {
    double prefill = 0, decode = 0;
  };
  Rollout rollout(int64_t prompts, int64_t num_generations, int64_t prompt_tokens, int64_t new_tokens) const;
  // Bytes of a decode pass.
  double decode_bytes(int64_t sequences, int64_t context) const;

 private:
  // Seconds of GEMMs with `weights` weights of `width` bytes, and of attention over `keys` keys with `pairs` pairs of
  // query and key.
  double products(double weights, double width, int64_t rows) const;
  double attention(double keys, double pairs) const;

  MachineLimits limits_;
  double width_, block_width_, key_width_;  // bytes per number: lm_head, layers, keys and values
  double blocks_, head_;                    // weights of the GEMMs: layers, lm_head
  double numbers_of_key_ = 0,
         products_of_pair_ = 0;  // per token: numbers of key and value in all layers; multiply-adds of a pair
};

}  // namespace hone
