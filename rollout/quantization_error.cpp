#include "rollout/quantization_error.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/parallel_for.h"
#include "kernels/elementwise/softcap.h"
#include "kernels/gemm/gemm.h"
#include "model/forward.h"
#include "model/quantized_model.h"
#include "rollout/kv/kv_storage.h"

namespace hone {
namespace {

// The two distributions at one position, compared. `target` is the token that follows.
struct Prediction {
  double logp = 0, engine_logp = 0, kl = 0;
  bool same_top = false;
};

double log_sum_exp(std::span<const float> logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float z : logits) sum += std::exp(static_cast<double>(z) - top);
  return top + std::log(sum);
}

Prediction compare(std::span<const float> logits, std::span<const float> engine_logits, size_t target) {
  const double lse = log_sum_exp(logits), engine_lse = log_sum_exp(engine_logits);
  Prediction out{.logp = logits[target] - lse, .engine_logp = engine_logits[target] - engine_lse};
  for (size_t v = 0; v < logits.size(); ++v) {
    const double logp = logits[v] - lse, engine_logp = engine_logits[v] - engine_lse;
    if (std::isfinite(logp)) out.kl += std::exp(logp) * (logp - engine_logp);
  }
  const auto top_id = [](std::span<const float> z) { return std::max_element(z.begin(), z.end()) - z.begin(); };
  out.same_top = top_id(logits) == top_id(engine_logits);
  return out;
}

// A KV cache of one sequence, with its blocks in order.
class SequenceCache {
 public:
  SequenceCache(Context& context, Model& model, const EngineConfig& config, int64_t longest)
      : context_(context),
        blocks_((longest + config.kv_block_size - 1) / config.kv_block_size),
        storage_(context, one_table(model.kv_groups()), config.kv_dtype(model.dtype()), config.kv_block_size, blocks_) {
  }
  // A view of the first `tokens` tokens; its tables are in scratch.
  KvView view(int64_t tokens) {
    std::vector<int32_t> slots(static_cast<size_t>(tokens)), table(static_cast<size_t>(blocks_));
    std::iota(slots.begin(), slots.end(), 0);
    std::iota(table.begin(), table.end(), 0);
    const auto on_device = [&](const std::vector<int32_t>& values) {
      return upload(context_, context_.scratch(), std::span<const int32_t>(values));
    };
    KvView out = storage_.view();
    out.groups = {{.slots = on_device(slots), .block_table = on_device(table).view({1, blocks_})}};
    out.lengths = on_device({static_cast<int32_t>(tokens)});
    return out;
  }

 private:
  Context& context_;
  int64_t blocks_;
  KvStorage storage_;
};

constexpr int64_t kRowsAtOnce = 64;

}  // namespace

QuantizationError quantization_error(Context& context, Model& model, const EngineConfig& config,
                                     std::span<const std::vector<int32_t>> sequences) {
  int64_t longest = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    check_tokens(model, sequences[i], concat("sequence ", i));
    HONE_CHECK(!sequences[i].empty(), "sequence ", i, " is empty");
    longest = std::max(longest, std::ssize(sequences[i]));
  }
  HONE_CHECK(longest > 1, "no sequence has a second token, so that there is nothing to predict: give longer texts");
  HONE_CHECK(longest <= model.shape().max_positions, "a sequence has ", longest, " tokens, the model has ",
             model.shape().max_positions, " positions: shorten it");
  std::unique_ptr<QuantizedModel> quantized;
  if (config.quantization != "none")
    quantized = std::make_unique<QuantizedModel>(context, model, quant_formats().at(config.quantization));
  Model& engine_model = quantized ? quantized->model() : model;
  SequenceCache cache(context, model, config, longest);
  QuantizationError out;
  double nll = 0, engine_nll = 0;
  for (const std::vector<int32_t>& sequence : sequences) {
    if (sequence.size() < 2) continue;
    const ScratchScope scope(context);
    const auto count = std::ssize(sequence) - 1;  // the last token predicts nothing
    const BatchPart part{std::span(sequence).first(static_cast<size_t>(count))};
    const Batch batch = pack_batch(context, context.scratch(), {&part, 1});
    const KvView view = cache.view(count);
    const Tensor hidden = infer(context, model, batch, {}, nullptr),
                 engine_hidden = infer(context, engine_model, batch, {}, &view);
    for (int64_t first = 0; first < count; first += kRowsAtOnce) {
      const ScratchScope inner(context);
      const int64_t rows = std::min(kRowsAtOnce, count - first), V = model.shape().vocab_size;
      const auto logits_of = [&](Tensor from) {
        const Tensor logits = context.scratch().take(DType::f32, {rows, V});
        gemm_forward(context, {.y = logits, .x = from.rows(first, rows), .w = model.lm_head().value});
        if (const float softcap = model.shape().logit_softcap; softcap > 0) softcap_forward(context, logits, softcap);
        return download(context, logits);
      };
      const std::vector<float> logits = logits_of(hidden), engine_logits = logits_of(engine_hidden);
      std::vector<Prediction> predictions(static_cast<size_t>(rows));
      parallel_for(rows, 1, [&](int64_t begin, int64_t end) {
        for (auto r = static_cast<size_t>(begin); r < static_cast<size_t>(end); ++r) {
          const auto row_of = [&](const std::vector<float>& all) {
            return std::span(all).subspan(r * static_cast<size_t>(V), static_cast<size_t>(V));
          };
          predictions[r] = compare(row_of(logits), row_of(engine_logits),
                                   static_cast<size_t>(sequence[static_cast<size_t>(first) + r + 1]));
        }
      });
      for (const Prediction& prediction : predictions) {
        const double difference = std::fabs(prediction.logp - prediction.engine_logp);
        out.max_difference = std::max(out.max_difference, difference);
        out.mean_difference += difference;
        out.kl += prediction.kl;
        out.same_top += prediction.same_top;
        nll -= prediction.logp;
        engine_nll -= prediction.engine_logp;
        ++out.tokens;
      }
    }
  }
  const auto n = static_cast<double>(out.tokens);
  out.mean_difference /= n;
  out.kl /= n;
  out.same_top /= n;
  out.perplexity = std::exp(nll / n);
  out.engine_perplexity = std::exp(engine_nll / n);
  return out;
}

}  // namespace hone
