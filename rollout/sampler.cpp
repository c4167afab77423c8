#include "rollout/sampler.h"

#include <algorithm>
#include <cstring>

#include "kernels/elementwise/softcap.h"
#include "kernels/gemm/gemm.h"
#include "kernels/sampling/logits_logprob.h"
#include "kernels/sampling/sample.h"
#include "kernels/sampling/token_mask.h"

namespace hone {
namespace {

constexpr int64_t param_size = static_cast<int64_t>(sizeof(RowSamplingParams));

// Calls visit(first, logits) for ranges of at most rows_at_once rows of hidden, which bounds the memory of the logits.
// `first` is the range's first row.
template <class Visit>
void for_each_row_range(Context& context, Model& model, Tensor hidden, int64_t rows_at_once, Visit visit) {
  for (int64_t first = 0; first < hidden.dim(0); first += rows_at_once) {
    const int64_t rows = std::min(rows_at_once, hidden.dim(0) - first);
    ScratchScope scope(context);
    const Tensor logits = context.scratch().take(DType::f32, {rows, model.shape().vocab_size});
    gemm_forward(context, {.y = logits, .x = hidden.rows(first, rows), .w = model.lm_head().value});
    if (const float softcap = model.shape().logit_softcap; softcap > 0) softcap_forward(context, logits, softcap);
    visit(first, logits);
  }
}

template <class T>
Tensor upload_bytes(Context& context, std::span<const T> items) {
  const auto bytes = static_cast<int64_t>(items.size_bytes());
  const Tensor out = context.scratch().take(DType::u8, {bytes});
  if (bytes > 0) context.copy(out, Tensor(const_cast<T*>(items.data()), DType::u8, DeviceKind::cpu, {bytes}));
  return out;
}

// A table as wide as the row with the most adjustments; empty if there are none.
LogitAdjustments upload_adjustments(Context& context, std::span<const SamplingState> rows) {
  size_t width = 0;
  for (const SamplingState& row : rows) width = std::max(width, row.adjustments.size());
  if (width == 0) return {};
  std::vector<LogitAdjustment> adjustments(rows.size() * width);
  std::vector<RowPenalties> penalties;
  for (size_t r = 0; r < rows.size(); ++r) {
    std::copy(rows[r].adjustments.begin(), rows[r].adjustments.end(),
              adjustments.begin() + static_cast<std::ptrdiff_t>(r * width));
    penalties.push_back(rows[r].penalties);
  }
  return {upload_bytes(context, std::span<const LogitAdjustment>(adjustments)),
          upload_bytes(context, std::span<const RowPenalties>(penalties))};
}

SampledTokenBuffer allocate_output(Context& context, int64_t S, int64_t top) {
  return {context.scratch().take(DType::i32, {SampledTokenBuffer::size(S, top)}), S, top};
}

SampledTokens download_rows(Context& context, const SampledTokenBuffer& rows, int64_t count) {
  std::vector<int32_t> copy(static_cast<size_t>(rows.all().size()));
  context.copy(host_view(std::span(copy)), rows.all());
  return rows.read(copy.data(), count);
}

}  // namespace

SampledTokens SampledTokenBuffer::read(const int32_t* copy, int64_t count) const {
  for (int64_t i = 0; i < count; ++i)
    HONE_CHECK(copy[i] >= 0, "sampling: the logits of row ", i, " contain NaN or infinity, or are all -infinity");
  const auto floats = [&](int64_t column, int64_t first, int64_t amount) {
    std::vector<float> out(static_cast<size_t>(amount));
    std::memcpy(out.data(), copy + column * S_ + first, out.size() * sizeof(float));
    return out;
  };
  SampledTokens out{.ids = {copy, copy + count},
                    .logp = floats(1, 0, count),
                    .truncated_logp = floats(2, 0, count),
                    .raw_logp = floats(3, 0, count),
                    .top_logprobs = {}};
  if (top_ == 0) return out;
  for (int64_t i = 0; i < count; ++i) {
    const std::vector<float> logp = floats(4 + top_, i * top_, top_);
    auto& row = out.top_logprobs.emplace_back();
    for (int64_t n = 0; n < top_; ++n) row.push_back({copy[4 * S_ + i * top_ + n], logp[static_cast<size_t>(n)]});
  }
  return out;
}

void sample_tokens(Context& context, Model& model, const SampledTokenBuffer& out, Tensor hidden,
                   const SamplingTables& tables) {
  const bool adjusted = static_cast<bool>(tables.adjustments);
  for_each_row_range(context, model, hidden, 256, [&](int64_t first, Tensor logits) {
    const int64_t S = logits.dim(0);
    const auto slice = [&](Tensor column) { return column.rows(first, S); };
    const Tensor params = tables.params.rows(first * param_size, S * param_size);
    const LogitAdjustments adjustments = adjusted ? tables.adjustments.of(first, S, hidden.dim(0)) : LogitAdjustments();
    if (adjusted) apply_logit_processors(context, logits, adjustments);
    const bool masked = static_cast<bool>(tables.masks);
    const Tensor allowed = masked ? context.scratch().take(DType::f32, {S, logits.dim(1)}) : logits;
    if (masked)
      mask_logits(context,
                  {.out = allowed, .logits = logits, .masks = tables.masks, .rows = tables.mask_rows.rows(first, S)});
    sample_rows(context, {.ids = slice(out.ids()),
                          .logp = slice(out.logp()),
                          .truncated_logp = slice(out.truncated_logp()),
                          .raw_logp = slice(out.raw_logp()),
                          .logits = allowed,
                          .params = params});
    if (adjusted) restore_logits(context, logits, adjustments);
    if (adjusted || masked || out.top() > 0)
      logits_logprob(context, {.logp = slice(out.logp()),
                               .raw_logp = slice(out.raw_logp()),
                               .top_ids = slice(out.top_ids()),
                               .top_logp = slice(out.top_logp()),
                               .logits = logits,
                               .ids = slice(out.ids()),
                               .params = params});
  });
}

SampledTokens sample_and_wait(Context& context, Model& model, Tensor hidden, std::span<const SamplingState> rows,
                              const MaskTable* masks) {
  ScratchScope scratch(context);
  std::vector<RowSamplingParams> params;
  int64_t top = 0;
  for (const SamplingState& row : rows) {
    params.push_back(row.sample);
    top = std::max(top, row.top_logprobs);
  }
  SamplingTables tables{upload_bytes(context, std::span<const RowSamplingParams>(params)),
                        upload_adjustments(context, rows)};
  if (masks && !masks->empty()) {
    tables.masks = context.scratch().take(DType::i32, {masks->num_masks(), mask_words(model.shape().vocab_size)});
    context.copy(tables.masks, Tensor(const_cast<uint32_t*>(masks->bits().data()), DType::i32, DeviceKind::cpu,
                                      {masks->num_masks(), mask_words(model.shape().vocab_size)}));
    tables.mask_rows = upload(context, context.scratch(), masks->rows());
  }
  const SampledTokenBuffer out = allocate_output(context, std::ssize(params), std::min(top, model.shape().vocab_size));
  sample_tokens(context, model, out, hidden, tables);
  return download_rows(context, out, std::ssize(params));
}

PromptLogprobs prompt_logprobs(Context& context, Model& model, Tensor hidden, std::span<const int32_t> ids,
                               int64_t top_logprobs) {
  ScratchScope scratch(context);
  constexpr int64_t rows_at_once = 64;
  const int64_t count = std::ssize(ids);
  const std::vector<RowSamplingParams> plain(static_cast<size_t>(std::min(count, rows_at_once)));
  const Tensor params = upload_bytes(context, std::span(plain));
  const SampledTokenBuffer out = allocate_output(context, count, std::min(top_logprobs, model.shape().vocab_size));
  context.zero(out.all());  // truncated_logp stays 0
  context.copy(out.ids(), host_view(ids));
  for_each_row_range(context, model, hidden, rows_at_once, [&](int64_t first, Tensor logits) {
    const int64_t S = logits.dim(0);
    const auto slice = [&](Tensor column) { return column.rows(first, S); };
    logits_logprob(context, {.logp = slice(out.logp()),
                             .raw_logp = slice(out.raw_logp()),
                             .top_ids = slice(out.top_ids()),
                             .top_logp = slice(out.top_logp()),
                             .logits = logits,
                             .ids = slice(out.ids()),
                             .params = params.rows(0, S * param_size)});
  });
  SampledTokens result = download_rows(context, out, count);
  return {std::move(result.logp), std::move(result.top_logprobs)};
}

}  // namespace hone
