#pragma once
// Rows by index: embedding lookup, and selection of rows.
#include "kernels/op.h"

namespace hone {

// y [T, D] = table[ids[t], :], written, or added to y if accumulate (learned positions). ids [T] i32, each in [0, rows
// of table).
inline constinit Op<void(Tensor y, Tensor table, Tensor ids, bool accumulate)> embedding_forward{"embedding_forward"};
// dtable[ids[t], :] += dy[t, :]. The rows of an id are summed from zero in ascending order of t, and the sum is added
// once (kernels/adds_once.h).
inline constinit Op<void(Tensor dtable, Tensor dy, Tensor ids)> embedding_backward{"embedding_backward"};

// y [R, D] = x[rows[r], :], written; rows [R] i32.
inline constinit Op<void(Tensor y, Tensor x, Tensor rows)> gather_rows{"gather_rows"};
// x [T, D] is written: x[rows[r], :] = y[r, :], and 0 in the other rows. rows are distinct.
inline constinit Op<void(Tensor x, Tensor y, Tensor rows)> scatter_rows{"scatter_rows"};

}  // namespace hone
