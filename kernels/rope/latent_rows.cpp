// CPU specification of latent_rows_forward and latent_rows_backward.
#include "kernels/rope/latent_rows.h"

#include <algorithm>
#include <vector>

#include "core/base/parallel_for.h"
#include "kernels/check_shape.h"

namespace hone {
namespace {

constexpr int64_t tokens_per_piece = 16;

// A pair of numbers of x: i and i + half, or 2 i and 2 i + 1.
struct PairPlace {
  int64_t first, second;
};
PairPlace place_of_pair(int64_t i, int64_t half, bool interleaved) {
  return interleaved ? PairPlace{2 * i, 2 * i + 1} : PairPlace{i, i + half};
}

void rotate(float* to, const float* from, const float* cos_sin, int64_t half, bool interleaved) {
  for (int64_t i = 0; i < half; ++i) {
    const PairPlace at = place_of_pair(i, half, interleaved);
    const float a = from[at.first], b = from[at.second], c = cos_sin[i], s = cos_sin[half + i];
    to[i] = a * c - b * s;
    to[half + i] = b * c + a * s;
  }
}

void rotate_back(float* to, const float* from, const float* cos_sin, int64_t half, bool interleaved) {
  for (int64_t i = 0; i < half; ++i) {
    const PairPlace at = place_of_pair(i, half, interleaved);
    const float a = from[i], b = from[half + i], c = cos_sin[i], s = cos_sin[half + i];
    to[at.first] = a * c + b * s;
    to[at.second] = b * c - a * s;
  }
}

// The last `count` numbers of head h, or of the row of token t.
float* end_of_head(const Tensor& x, int64_t t, int64_t h, int64_t count) {
  return x.row<float>(t) + (h + 1) * x.dim(2) - count;
}
float* end_of_row(const Tensor& x, int64_t t, int64_t count) { return x.row<float>(t) + x.dim(1) - count; }

void forward(Context&, const LatentRowsForward& args) {
  check_latent_rows(args, DType::f32);
  const int64_t P = args.cos_sin.dim(1);
  parallel_for(args.q.dim(0), tokens_per_piece, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const float* angles = args.cos_sin.row<float>(args.positions.ptr<int32_t>()[t]);
      for (int64_t h = 0; h < args.q.dim(1); ++h)
        rotate(end_of_head(args.q, t, h, P), end_of_head(args.q_in, t, h, P), angles, P / 2, args.interleaved);
      rotate(end_of_row(args.rows, t, P), end_of_row(args.row_in, t, P), angles, P / 2, args.interleaved);
      if (args.cache)
        std::copy_n(args.rows.row<float>(t), args.rows.dim(1), args.cache.row<float>(args.slots.ptr<int32_t>()[t]));
    }
  });
}

void backward(Context&, const LatentRowsBackward& args) {
  check_latent_rows(args, DType::f32);
  const int64_t P = args.cos_sin.dim(1);
  parallel_for(args.dq.dim(0), tokens_per_piece, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const float* angles = args.cos_sin.row<float>(args.positions.ptr<int32_t>()[t]);
      for (int64_t h = 0; h < args.dq.dim(1); ++h)
        rotate_back(end_of_head(args.dq_in, t, h, P), end_of_head(args.dq, t, h, P), angles, P / 2, args.interleaved);
      rotate_back(end_of_row(args.drow_in, t, P), end_of_row(args.drows, t, P), angles, P / 2, args.interleaved);
    }
  });
}

[[maybe_unused]] const bool added = latent_rows_forward.add({"specification", DeviceKind::cpu, forward}) &&
                                    latent_rows_backward.add({"specification", DeviceKind::cpu, backward});

// Checks what both ops share: q and rows in the latent space, q_in and row_in before it.
void check_common(const OpBase& op, const Tensor& q, const Tensor& rows, const Tensor& q_in, const Tensor& row_in,
                  const Tensor& positions, const Tensor& cos_sin, DType dtype) {
  HONE_CHECK(q.rank == 3 && q_in.rank == 3 && rows.rank == 2 && row_in.rank == 2 && cos_sin.rank == 2, op.name(),
             ": wants heads of 3 dims, and rows and cos_sin of 2");
  const int64_t T = q.dim(0), H = q.dim(1), W = q.dim(2), P = cos_sin.dim(1);
  HONE_CHECK(P > 0 && P % 2 == 0 && P <= W && P <= q_in.dim(2) && P <= row_in.dim(1), op.name(), ": cos_sin has ", P,
             " columns; it must have an even number, at most the ", W, " of a row, the ", q_in.dim(2),
             " of a head and the ", row_in.dim(1), " of the projected row");
  check_shape(op, "q", q, {T, H, W}, dtype);
  check_shape(op, "rows", rows, {T, W}, dtype);
  check_shape(op, "q_in", q_in, {T, H, q_in.dim(2)}, dtype);
  check_shape(op, "row_in", row_in, {T, row_in.dim(1)}, dtype);
  check_shape(op, "positions", positions, {T}, DType::i32);
  check_shape(op, "cos_sin", cos_sin, {cos_sin.dim(0), P});
  if (positions.device == DeviceKind::cpu) check_indices(op, "positions", positions, cos_sin.dim(0));
}

}  // namespace

void check_latent_rows(const LatentRowsForward& args, DType dtype) {
  const OpBase& op = latent_rows_forward;
  check_common(op, args.q, args.rows, args.q_in, args.row_in, args.positions, args.cos_sin, dtype);
  if (!args.cache) return;
  check_shape(op, "cache", args.cache, {args.cache.dim(0), args.rows.dim(1)}, dtype);
  check_shape(op, "slots", args.slots, {args.q.dim(0)}, DType::i32);
  if (args.slots.device == DeviceKind::cpu) check_indices(op, "slots", args.slots, args.cache.dim(0));
}

void check_latent_rows(const LatentRowsBackward& args, DType dtype) {
  check_common(latent_rows_backward, args.dq, args.drows, args.dq_in, args.drow_in, args.positions, args.cos_sin,
               dtype);
}

}  // namespace hone
