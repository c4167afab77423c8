#include "cli/bench/roofline.h"

#include <algorithm>
#include <cmath>

#include "cli/bench/model_bench.h"
#include "kernels/elementwise/noise.h"
#include "model/flops.h"
#include "model/modules.h"

namespace hone {

double measure_experts_read(Context& context, Model& model, int64_t sequences) {
  constexpr int64_t length = 32;
  int64_t E = 0;
  for (const Linear* linear : model.linear_modules()) E = std::max(E, linear->num_experts);
  const int64_t num_sums = model.num_aux_sums();
  if (E <= 1 || num_sums == 0) return 1;
  // The sums of a layer: three losses, then the load of each expert (model/moe/moe.h). The last token of each sequence
  // counts.
  HONE_CHECK(num_sums % (3 + E) == 0, "bench: the layers have different numbers of experts");
  const ScratchScope scope(context);
  std::vector<std::vector<int32_t>> tokens;
  std::vector<BatchPart> parts;
  std::vector<float> weights;
  std::vector<int32_t> rows;
  for (int64_t i = 0; i < sequences; ++i) {
    tokens.push_back(random_tokens(length, model.shape().vocab_size, static_cast<uint64_t>(i)));
    weights.insert(weights.end(), length - 1, 0.0f);
    weights.push_back(1);
    rows.push_back(static_cast<int32_t>((i + 1) * length - 1));
  }
  for (const std::vector<int32_t>& sequence : tokens) parts.push_back({sequence});
  const Tensor sums = context.scratch().take(DType::f32, {num_sums});
  context.zero(sums);
  TrainingPass pass(context, model, Recompute::full);
  pass.forward(pack_batch(context, context.scratch(), parts),
               upload(context, context.scratch(), std::span<const int32_t>(rows)), {}, {},
               {.weights = upload(context, context.scratch(), std::span<const float>(weights)), .sums = sums});
  const std::vector<float> load = download(context, sums);
  int64_t used = 0;
  for (int64_t i = 0; i < num_sums; ++i) used += i % (3 + E) >= 3 && load[static_cast<size_t>(i)] > 0;
  return static_cast<double>(used) / static_cast<double>(num_sums / (3 + E) * E);
}

Roofline::Roofline(Model& model, const MachineLimits& limits, const EngineConfig& engine)
    : limits_(limits),
      kv_groups_(model.kv_groups()),
      kv_dtype_(engine.kv_dtype(model.dtype())),
      width_(static_cast<double>(size_of(model.dtype()))) {
  const ModelShape& shape = model.shape();
  block_width_ = engine.quantization == "none" ? width_ : 1;
  head_ = static_cast<double>(shape.vocab_size * shape.hidden_size);
  for (const Linear* linear : model.linear_modules()) {
    if (linear->num_experts <= 1) continue;
    experts_ += static_cast<double>(linear->weight.num_elements());
    active_share_ = linear->weight.active_share;
  }
  dense_ = count_flops(model, 1).active_params - head_ - experts_ * active_share_;
  for (const AttentionCost& layer : attention_costs(model)) products_of_pair_ += static_cast<double>(layer.products);
}

double Roofline::experts_read(int64_t tokens) const {
  if (tokens == measured_.sequences) return measured_.share;
  return 1 - std::pow(1 - active_share_, static_cast<double>(tokens));
}

double Roofline::layers(int64_t tokens) const {
  return std::max(read_weights(tokens) * block_width_ / limits_.read_bandwidth,
                  2 * (dense_ + experts_ * active_share_) * static_cast<double>(tokens) / limits_.flops);
}

double Roofline::head(int64_t rows) const {
  return std::max(head_ * width_ / limits_.read_bandwidth, 2 * head_ * static_cast<double>(rows) / limits_.flops);
}

double Roofline::attention(double bytes, double pairs) const {
  return std::max(bytes / limits_.read_bandwidth, 2 * pairs * products_of_pair_ / limits_.flops);
}

double Roofline::key_bytes(int64_t tokens, bool all) const {
  int64_t out = 0;
  for (const KvGroupShape& group : kv_groups_) {
    const int64_t read = group.window > 0 && !all ? std::min(group.window, tokens) : tokens;
    out += read * group.planes * row_bytes(group, kv_dtype_);
  }
  return static_cast<double>(out);
}

double Roofline::decode(int64_t sequences, int64_t context) const {
  const double bytes = static_cast<double>(sequences) * key_bytes(context, false);
  return layers(sequences) + head(sequences) + attention(bytes, static_cast<double>(sequences * context));
}

double Roofline::decode_bytes(int64_t sequences, int64_t context) const {
  return block_width_ * read_weights(sequences) + width_ * head_ +
         static_cast<double>(sequences) * key_bytes(context, false);
}

double Roofline::prefill(int64_t sequences, int64_t tokens) const {
  const auto keys = static_cast<double>(sequences * tokens);
  return layers(sequences * tokens) + head(sequences) +
         attention(static_cast<double>(sequences) * key_bytes(tokens, true),
                   keys * static_cast<double>(tokens + 1) / 2);
}

Roofline::Rollout Roofline::rollout(int64_t prompts, int64_t num_generations, int64_t prompt_tokens,
                                    int64_t new_tokens) const {
  Rollout out{.prefill = prefill(prompts, prompt_tokens), .decode = 0};
  for (int64_t written = 1; written < new_tokens; ++written)
    out.decode += decode(prompts * num_generations, prompt_tokens + written);
  return out;
}

}  // namespace hone
