#include "model/token_logprobs.h"

#include <algorithm>

#include "core/base/rank_thread.h"
#include "kernels/lm_head/logprob.h"
#include "kernels/sampling/sample.h"
#include "model/forward.h"

namespace hone {
namespace {

// Computes the log-probs of several sequences in one pass. The hidden state of token t gives the log-prob of token
// t + 1, so the last hidden state of a sequence is not read.
void score_pack(Context& context, Model& model, std::span<const std::vector<int32_t>> sequences,
                const LogprobOptions& options, std::span<TokenLogprobs> out) {
  ScratchScope scope(context);
  std::vector<BatchPart> parts;
  std::vector<int32_t> rows, targets;
  int32_t first = 0;
  for (const auto& sequence : sequences) {
    if (sequence.size() < 2) continue;
    parts.push_back({std::span(sequence).first(sequence.size() - 1)});
    for (size_t t = 1; t < sequence.size(); ++t) {
      rows.push_back(first + static_cast<int32_t>(t) - 1);
      targets.push_back(sequence[t]);
    }
    first += static_cast<int32_t>(sequence.size()) - 1;
  }
  for (size_t s = 0; s < sequences.size(); ++s) {
    out[s].logp.assign(sequences[s].size(), 0);
    if (options.entropy) out[s].entropy.assign(sequences[s].size(), 0);
    if (options.hit) out[s].hit.assign(sequences[s].size(), 0);
  }
  const auto count = static_cast<int64_t>(rows.size());
  if (count == 0) return;
  Arena& scratch = context.scratch();
  const auto column = [&] { return scratch.take(DType::f32, {count}); };
  const Tensor logp = column(), lse = column(), entropy = options.entropy ? column() : Tensor(),
               hit = options.hit ? column() : Tensor();
  const Tensor hidden = infer(context, model, pack_batch(context, scratch, parts),
                              upload(context, scratch, std::span<const int32_t>(rows)), nullptr);
  logprob_forward(context, {.logp = logp,
                            .lse = lse,
                            .entropy = entropy,
                            .hit = hit,
                            .hidden = hidden,
                            .w = model.lm_head().value,
                            .targets = upload(context, scratch, std::span<const int32_t>(targets)),
                            .inv_temperature = inverse_temperature(static_cast<float>(options.temperature)),
                            .softcap = model.shape().logit_softcap});

  const auto spread = [&](Tensor values, std::vector<float> TokenLogprobs::*member) {
    const std::vector<float> host = download(context, values);
    auto from = host.begin();
    for (size_t s = 0; s < sequences.size(); ++s) {
      auto& to = out[s].*member;
      if (to.size() < 2) continue;
      std::copy_n(from, to.size() - 1, to.begin() + 1);
      from += static_cast<std::ptrdiff_t>(to.size() - 1);
    }
  };
  spread(logp, &TokenLogprobs::logp);
  if (options.entropy) spread(entropy, &TokenLogprobs::entropy);
  if (options.hit) spread(hit, &TokenLogprobs::hit);
}

// The end of the pack that begins at a sequence.
size_t pack_end(std::span<const std::vector<int32_t>> sequences, size_t begin, const LogprobOptions& options) {
  size_t end = begin;
  int64_t tokens = 0;
  do tokens += static_cast<int64_t>(sequences[end++].size());
  while (end < sequences.size() && tokens + static_cast<int64_t>(sequences[end].size()) <= options.batch_tokens);
  return end;
}

}  // namespace

size_t count_logprob_passes(std::span<const std::vector<int32_t>> sequences, const LogprobOptions& options) {
  size_t out = 0;
  for (size_t begin = 0; begin < sequences.size();) {
    const size_t end = pack_end(sequences, begin, options);
    out += std::ranges::any_of(sequences.subspan(begin, end - begin),
                               [](const std::vector<int32_t>& sequence) { return sequence.size() > 1; });
    begin = end;
  }
  return out;
}

std::vector<TokenLogprobs> compute_logprobs(Context& context, Model& model,
                                            std::span<const std::vector<int32_t>> sequences,
                                            const LogprobOptions& options) {
  HONE_CHECK(options.temperature > 0, "temperature is ", options.temperature,
             "; log-probabilities want a positive one");
  for (size_t s = 0; s < sequences.size(); ++s) {
    check_tokens(model, sequences[s], concat("sequence ", s));
    HONE_CHECK(static_cast<int64_t>(sequences[s].size()) <= model.shape().max_positions + 1, "sequence ", s, " has ",
               sequences[s].size(), " tokens; the model has ", model.shape().max_positions,
               " positions, and one more token can be predicted");
  }
  std::vector<TokenLogprobs> out(sequences.size());
  for (size_t begin = 0; begin < sequences.size();) {
    const size_t end = pack_end(sequences, begin, options);
    note_progress();
    score_pack(context, model, sequences.subspan(begin, end - begin), options,
               std::span(out).subspan(begin, end - begin));
    begin = end;
  }
  return out;
}

}  // namespace hone
