#include "model/prune/importance.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/base/parallel_for.h"
#include "kernels/elementwise/cast.h"
#include "kernels/lm_head/logprob.h"
#include "model/layer.h"

namespace hone {
namespace {

constexpr size_t tokens_per_pass = 2048;

// Sequences of one pass, without their last tokens.
struct CalibrationBatch {
  std::vector<BatchPart> parts;
  std::vector<int32_t> targets;
  size_t num_sequences = 0;
};

CalibrationBatch next_batch(CalibrationText text) {
  CalibrationBatch out;
  for (const std::vector<int32_t>& sequence : text) {
    if (!out.parts.empty() && out.targets.size() + sequence.size() > tokens_per_pass) break;
    out.parts.push_back({std::span(sequence).first(sequence.size() - 1)});
    out.targets.insert(out.targets.end(), sequence.begin() + 1, sequence.end());
    ++out.num_sequences;
  }
  return out;
}

void check_text(const Model& model, CalibrationText text) {
  HONE_CHECK(!text.empty(), "prune: there is no calibration text");
  for (const std::vector<int32_t>& sequence : text) {
    HONE_CHECK(sequence.size() >= 2 && static_cast<int64_t>(sequence.size()) <= model.shape().max_positions + 1,
               "prune: a calibration sequence has ", sequence.size(), " tokens; it must have 2 to ",
               model.shape().max_positions + 1);
    check_tokens(model, sequence, "calibration sequence");
  }
}

std::vector<float> to_host(Context& context, Tensor x) {
  if (x.dtype == DType::f32) return download(context, x);
  const ScratchScope scope(context);
  const Tensor numbers = context.scratch().take(DType::f32, x.dims());
  cast(context, numbers, x);
  return download(context, numbers);
}

double sum_of_products(const float* a, const float* b, int64_t count) {
  double out = 0;
  for (int64_t i = 0; i < count; ++i) out += double{a[i]} * b[i];
  return out;
}

// Sums over the sequences of all passes.
struct LayerSums {
  double influence = 0;                 // over tokens
  std::vector<double> heads, channels;  // squares of means
};

// The sum over tokens of 1 - cos(before, after).
double influence_of(std::span<const float> before, std::span<const float> after, int64_t width) {
  return ordered_sum(std::ssize(before) / width, 64, [&](int64_t begin, int64_t end) {
    double sum = 0;
    for (int64_t t = begin; t < end; ++t) {
      const float *a = before.data() + t * width, *b = after.data() + t * width;
      const double norms = std::sqrt(sum_of_products(a, a, width) * sum_of_products(b, b, width));
      sum += norms > 0 ? 1 - sum_of_products(a, b, width) / norms : 0;
    }
    return sum;
  });
}

// Adds to sums[p] the square of the mean over a sequence's tokens of the Euclidean norm of part p, which is `size`
// adjacent columns of values [T, parts * size].
void add_norms(std::vector<double>& sums, std::span<const float> values, std::span<const BatchPart> sequences,
               int64_t size) {
  const int64_t parts = std::ssize(sums), width = parts * size;
  parallel_for(parts, 64, [&](int64_t begin, int64_t end) {
    std::vector<double> mean(static_cast<size_t>(end - begin));
    int64_t first = 0;
    for (const BatchPart& sequence : sequences) {
      std::ranges::fill(mean, 0.0);
      const auto length = std::ssize(sequence.tokens);
      for (int64_t t = first; t < first + length; ++t)
        for (int64_t p = begin; p < end; ++p) {
          const float* const part = values.data() + t * width + p * size;
          mean[static_cast<size_t>(p - begin)] +=
              size == 1 ? std::abs(double{*part}) : std::sqrt(sum_of_products(part, part, size));
        }
      for (int64_t p = begin; p < end; ++p) {
        const double value = mean[static_cast<size_t>(p - begin)] / static_cast<double>(length);
        sums[static_cast<size_t>(p)] += value * value;
      }
      first += length;
    }
  });
}

void add_batch(Context& context, Model& model, const CalibrationBatch& text, std::vector<LayerSums>& sums) {
  const ScratchScope scope(context);
  const auto& source = dynamic_cast<const LayerActivationSource&>(model);
  const ModelShape& shape = model.shape();
  const Batch batch = pack_batch(context, context.scratch(), text.parts);
  Tensor x = context.scratch().take(model.dtype(), {batch.num_tokens, shape.hidden_size});
  Tensor out = context.scratch().take(model.dtype(), {batch.num_tokens, shape.hidden_size});
  Tape tape(context.device());
  model.embed(context, batch, x);
  std::vector<float> before = to_host(context, x);
  for (int64_t layer = 0; layer < shape.num_layers; ++layer) {
    LayerSums& sum = sums[static_cast<size_t>(layer)];
    model.forward_layer(layer, context, {.batch = batch, .tape = &tape}, out, x);
    const LayerActivations inside = source.restore_activations(layer, tape);
    add_norms(sum.heads, to_host(context, inside.attn_out), text.parts, shape.head_dim);
    add_norms(sum.channels, to_host(context, inside.activated), text.parts, 1);
    std::vector<float> after = to_host(context, out);
    sum.influence += influence_of(before, after, shape.hidden_size);
    before = std::move(after);
    std::swap(x, out);
    tape.clear();
  }
}

double nll_of(Context& context, Model& model, const CalibrationBatch& text, std::span<const int64_t> layers) {
  const ScratchScope scope(context);
  Arena& scratch = context.scratch();
  const Batch batch = pack_batch(context, scratch, text.parts);
  const Tensor x = scratch.take(model.dtype(), {batch.num_tokens, model.shape().hidden_size}),
               hidden = scratch.take(model.dtype(), x.dims()), logp = scratch.take(DType::f32, {batch.num_tokens}),
               lse = scratch.take(DType::f32, {batch.num_tokens});
  model.embed(context, batch, x);
  for (const int64_t layer : layers) model.forward_layer(layer, context, {.batch = batch}, x, x);
  model.final_norm(context, hidden, x, nullptr);
  logprob_forward(context, {.logp = logp,
                            .lse = lse,
                            .hidden = hidden,
                            .w = model.lm_head().value,
                            .targets = upload(context, scratch, std::span<const int32_t>(text.targets)),
                            .inv_temperature = 1,
                            .softcap = model.shape().logit_softcap});
  double sum = 0;
  for (const float value : download(context, logp)) sum -= double{value};
  return sum;
}

std::vector<double> roots(std::vector<double> squares) {
  for (double& value : squares) value = std::sqrt(value);
  return squares;
}

}  // namespace

std::vector<LayerImportance> measure_importance(Context& context, Model& model, CalibrationText text,
                                                const std::function<void(int64_t done)>& progress) {
  check_text(model, text);
  const ModelShape& shape = model.shape();
  std::vector<LayerSums> sums(static_cast<size_t>(shape.num_layers));
  for (LayerSums& sum : sums) {
    sum.heads.resize(static_cast<size_t>(shape.num_attention_heads));
    sum.channels.resize(static_cast<size_t>(shape.intermediate_size));
  }
  int64_t tokens = 0;
  for (size_t done = 0; done < text.size();) {
    const CalibrationBatch batch = next_batch(text.subspan(done));
    add_batch(context, model, batch, sums);
    tokens += std::ssize(batch.targets);
    done += batch.num_sequences;
    progress(static_cast<int64_t>(done));
  }
  std::vector<LayerImportance> out;
  for (LayerSums& sum : sums)
    out.push_back({.block_influence = sum.influence / static_cast<double>(tokens),
                   .heads = roots(std::move(sum.heads)),
                   .channels = roots(std::move(sum.channels))});
  return out;
}

double calibration_perplexity(Context& context, Model& model, CalibrationText text, std::span<const int64_t> layers) {
  check_text(model, text);
  double nll = 0;
  int64_t tokens = 0;
  for (size_t done = 0; done < text.size();) {
    const CalibrationBatch batch = next_batch(text.subspan(done));
    nll += nll_of(context, model, batch, layers);
    tokens += std::ssize(batch.targets);
    done += batch.num_sequences;
  }
  return std::exp(nll / static_cast<double>(tokens));
}

GreedyLayers remove_layers_by_perplexity(Context& context, Model& model, CalibrationText text, int64_t num_kept,
                                         const std::function<void(int64_t done)>& progress) {
  GreedyLayers out;
  out.kept.resize(static_cast<size_t>(model.shape().num_layers));
  std::iota(out.kept.begin(), out.kept.end(), 0);
  while (std::ssize(out.kept) > num_kept) {
    LayerRemoval best{.layer = -1, .perplexity = std::numeric_limits<double>::infinity()};
    for (const int64_t layer : out.kept) {
      std::vector<int64_t> rest = out.kept;
      std::erase(rest, layer);
      const double perplexity = calibration_perplexity(context, model, text, rest);
      if (best.layer < 0 || perplexity < best.perplexity) best = {layer, perplexity};
    }
    std::erase(out.kept, best.layer);
    out.removals.push_back(best);
    progress(std::ssize(out.removals));
  }
  return out;
}

}  // namespace hone
