#pragma once
// The least time that a machine's limits allow: the sum over the parts of a pass of
// max(bytes / bandwidth, FLOPs / peak). The parts are the GEMMs with weights and attention. Norms, activations and
// sampling are not counted.
#include "cli/bench/op_bench.h"
#include "rollout/engine.h"

namespace hone {

// The share of the experts' weights that a decode pass of this many sequences reads: its mean over the layers, measured
// in a pass of as many random sequences. 1 for a model without experts.
double measure_experts_read(Context& context, Model& model, int64_t sequences);

class Roofline {
 public:
  // The bytes of layers, keys and values follow from the formats of `engine`.
  Roofline(Model& model, const MachineLimits& limits, const EngineConfig& engine);
  // Uses a measured share for passes of this many sequences. Without it tokens choose experts evenly and independently.
  void set_experts_read(int64_t sequences, double share) { measured_ = {sequences, share}; }
  // The share of the experts' weights that a pass of `tokens` tokens reads.
  double experts_read(int64_t tokens) const;
  // Seconds of a decode pass. It reads each weight once, of a mixture those of the chosen experts, and the keys and
  // values of `context` tokens per sequence.
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
  // Weights that a pass of this many tokens reads from the layers.
  double read_weights(int64_t tokens) const { return dense_ + experts_ * experts_read(tokens); }
  // Seconds of the layers' GEMMs, of the lm_head, and of attention that reads `bytes` of keys and values for `pairs`
  // pairs of query and key.
  double layers(int64_t tokens) const;
  double head(int64_t rows) const;
  double attention(double bytes, double pairs) const;
  // Bytes of the keys and values that one query after `tokens` tokens reads. With `all`: those of all tokens, which the
  // queries of a prefill read.
  double key_bytes(int64_t tokens, bool all) const;

  MachineLimits limits_;
  std::vector<KvGroupShape> kv_groups_;
  DType kv_dtype_;
  double width_, block_width_;         // bytes per weight: lm_head, layers
  double dense_, head_, experts_ = 0;  // weights of the GEMMs: layers without experts, lm_head, all experts
  double active_share_ = 1;            // of the experts, for a token
  struct ExpertsRead {
    int64_t sequences = 0;
    double share = 1;
  } measured_;
  double products_of_pair_ = 0;  // multiply-adds of a pair of query and key in all layers
};

}  // namespace hone
