#pragma once
// The numbers with positions of multi-head latent attention (kernels/attention/latent/latent_attention.h), and the
// write of latent rows into the KV cache. T tokens, H heads, W columns of a latent row, P of them rotated: the last.
#include "kernels/op.h"

namespace hone {

// Rotates the last P columns of each head of q_in and of each row of row_in into the last P columns of q and rows. The
// first W - P columns belong to others: head_gemm writes those of q, the norm of the latent those of rows.
struct LatentRowsForward {
  Tensor q;          // [T, H, W]; the last P columns are written
  Tensor rows;       // [T, W]; the last P columns are written, the first are read if there is a cache
  Tensor q_in;       // [T, H, at least P]
  Tensor row_in;     // [T, at least P]
  Tensor positions;  // [T] i32
  Tensor cos_sin;    // [positions, P] f32 (rope_table())
  // Pairs of numbers that rotate together: 2 i and 2 i + 1, or i and i + P / 2. In the result they are i and i + P / 2.
  bool interleaved = false;
  Tensor cache{};  // [num_slots, W]; whole rows are written at `slots`; or empty
  Tensor slots{};  // [T] i32
  static constexpr auto access =
      op_access(updated(&LatentRowsForward::q, &LatentRowsForward::rows),
                written_rows(&LatentRowsForward::slots, &LatentRowsForward::cache),
                read(&LatentRowsForward::q_in, &LatentRowsForward::row_in, &LatentRowsForward::positions,
                     &LatentRowsForward::cos_sin, &LatentRowsForward::slots));
};
inline constinit Op<LatentRowsForward> latent_rows_forward{"latent_rows_forward"};

// The transpose: the last P columns of dq_in and drow_in from those of dq and drows.
struct LatentRowsBackward {
  Tensor dq_in;      // [T, H, at least P]; the last P columns are written
  Tensor drow_in;    // [T, at least P]; the last P columns are written
  Tensor dq;         // [T, H, W]
  Tensor drows;      // [T, W]
  Tensor positions;  // [T] i32
  Tensor cos_sin;    // [positions, P] f32
  bool interleaved = false;
  static constexpr auto access = op_access(updated(&LatentRowsBackward::dq_in, &LatentRowsBackward::drow_in),
                                           read(&LatentRowsBackward::dq, &LatentRowsBackward::drows,
                                                &LatentRowsBackward::positions, &LatentRowsBackward::cos_sin));
};
inline constinit Op<LatentRowsBackward> latent_rows_backward{"latent_rows_backward"};

// Throw Error if shapes, dtypes or (on the host) indices do not fit: for the bodies.
void check_latent_rows(const LatentRowsForward& args, DType dtype);
void check_latent_rows(const LatentRowsBackward& args, DType dtype);

}  // namespace hone
