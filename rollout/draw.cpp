#include "rollout/draw.h"

#include <algorithm>
#include <cstring>

#include "kernels/gemm.h"
#include "kernels/sample_score.h"

namespace hone {
namespace {

constexpr int64_t param_size = static_cast<int64_t>(sizeof(SampleParams)), edit_size = static_cast<int64_t>(sizeof(LogitEdit));

// Calls visit(first, logits of the rows from first) for at most rows_at_once rows of hidden, which bounds the logits' memory.
template <class Visit>
void for_each_block(Context& context, Model& model, Tensor hidden, int64_t rows_at_once, Visit visit) {
  for (int64_t first = 0; first < hidden.dim(0); first += rows_at_once) {
    const int64_t rows = std::min(rows_at_once, hidden.dim(0) - first);
    ScratchScope scope(context);
    const Tensor logits = context.scratch().take(DType::f32, {rows, model.shape().vocab_size});
    gemm_forward(context, logits, hidden.rows(first, rows), model.head().value, Tensor(), Tensor());
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

// Room on a device for the likeliest ids of S rows.
struct TopRows {
  Tensor ids, logp;  // [S, n]
  TopRows(Context& context, int64_t S, int64_t n)
      : ids(context.scratch().take(DType::i32, {S, n})), logp(context.scratch().take(DType::f32, {S, n})) {}
  std::vector<std::vector<TokenLogp>> download(Context& context) const {
    const int64_t S = ids.dim(0), n = ids.dim(1);
    if (n == 0) return {};
    std::vector<int32_t> host_ids(static_cast<size_t>(S * n));
    std::vector<float> host_logp(host_ids.size());
    context.copy(host_view(std::span(host_ids)), ids.view({S * n}));
    context.copy(host_view(std::span(host_logp)), logp.view({S * n}));
    std::vector<std::vector<TokenLogp>> out(static_cast<size_t>(S));
    for (size_t i = 0; i < host_ids.size(); ++i) out[i / static_cast<size_t>(n)].push_back({host_ids[i], host_logp[i]});
    return out;
  }
};

void draw_block(Context& context, DrawnRows out, int64_t first, Tensor logits, Tensor params) {
  const auto slice = [&](Tensor column) { return column.rows(first, logits.dim(0)); };
  sample_rows(context, slice(out.ids()), slice(out.column(1)), slice(out.column(2)), slice(out.column(3)), logits,
              params.rows(first * param_size, logits.dim(0) * param_size));
}

constexpr int64_t rows_scored_at_once = 64;

}  // namespace

void append_drawn(Drawn& out, const int32_t* rows, int64_t count, int64_t width) {
  const auto add = [&](std::vector<float>& column, int64_t row) {
    const size_t before = column.size();
    column.resize(before + static_cast<size_t>(count));
    std::memcpy(column.data() + before, rows + row * width, static_cast<size_t>(count) * sizeof(float));
  };
  for (int64_t i = 0; i < count; ++i)
    HONE_CHECK(rows[i] >= 0, "sampling: the logits of row ", i, " hold a NaN, an infinity, or nothing but -infinity");
  out.ids.insert(out.ids.end(), rows, rows + count);
  add(out.logp, 1);
  add(out.truncated_logp, 2);
  add(out.raw_logp, 3);
}

void draw_rows(Context& context, Model& model, DrawnRows out, Tensor hidden, Tensor params) {
  for_each_block(context, model, hidden, 256, [&](int64_t first, Tensor logits) { draw_block(context, out, first, logits, params); });
}

Drawn draw(Context& context, Model& model, Tensor hidden, std::span<const SampleParams> params, std::span<const LogitEdit> edits,
           int64_t top_logprobs) {
  ScratchScope scratch(context);
  const auto count = static_cast<int64_t>(params.size());
  const Tensor on_device = upload_bytes(context, params);
  const DrawnRows rows(context.scratch().take(DType::i32, {4, count}));
  const TopRows top(context, count, std::min(top_logprobs, model.shape().vocab_size));
  if (edits.empty() && top_logprobs == 0)
    draw_rows(context, model, rows, hidden, on_device);
  else
    for_each_block(context, model, hidden, rows_scored_at_once, [&](int64_t first, Tensor logits) {
      const int64_t S = logits.dim(0);
      std::vector<LogitEdit> own;
      for (const LogitEdit& edit : edits)
        if (edit.row >= first && edit.row < first + S) own.push_back(edit), own.back().row -= static_cast<int32_t>(first);
      Tensor drawn_from = logits;
      if (!own.empty()) {
        drawn_from = context.scratch().take(DType::f32, {S, logits.dim(1)});
        context.copy(drawn_from, logits);
        edit_logits(context, drawn_from, upload_bytes(context, std::span<const LogitEdit>(own)));
      }
      draw_block(context, rows, first, drawn_from, on_device);
      score_rows(context, rows.column(1).rows(first, S), rows.column(3).rows(first, S), top.ids.rows(first, S), top.logp.rows(first, S), logits,
                 rows.ids().rows(first, S), on_device.rows(first * param_size, S * param_size));
    });
  std::vector<int32_t> host(static_cast<size_t>(4 * count));
  context.copy(host_view(std::span(host)), rows.all.view({4 * count}));
  Drawn out;
  append_drawn(out, host.data(), count, count);
  out.top_logprobs = top.download(context);
  return out;
}

Scored score(Context& context, Model& model, Tensor hidden, std::span<const int32_t> ids, int64_t top_logprobs) {
  ScratchScope scratch(context);
  const auto count = static_cast<int64_t>(ids.size());
  const std::vector<SampleParams> plain(static_cast<size_t>(std::min(count, rows_scored_at_once)));
  const Tensor params = upload_bytes(context, std::span(plain)), on_device = upload(context, context.scratch(), ids);
  const Tensor logp = context.scratch().take(DType::f32, {count}), raw_logp = context.scratch().take(DType::f32, {count});
  const TopRows top(context, count, std::min(top_logprobs, model.shape().vocab_size));
  for_each_block(context, model, hidden, rows_scored_at_once, [&](int64_t first, Tensor logits) {
    const int64_t S = logits.dim(0);
    score_rows(context, logp.rows(first, S), raw_logp.rows(first, S), top.ids.rows(first, S), top.logp.rows(first, S), logits,
               on_device.rows(first, S), params.rows(0, S * param_size));
  });
  return {download(context, logp), top.download(context)};
}

}  // namespace hone
