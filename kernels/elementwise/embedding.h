#pragma once
#include "kernels/op.h"

namespace hone {

// y [T, D] = table[ids[t], :], or added to y when accumulate (learned positions). ids [T] i32, each in [0, rows of
// table).
inline constinit Op<void(Tensor y, Tensor table, Tensor ids, bool accumulate)> embedding_forward{"embedding_forward"};
// dtable[ids[t], :] += dy[t, :], repeated ids in ascending order of t.
inline constinit Op<void(Tensor dtable, Tensor dy, Tensor ids)> embedding_backward{"embedding_backward"};

// y [R, D] = x[rows[r], :]; rows [R] i32.
inline constinit Op<void(Tensor y, Tensor x, Tensor rows)> gather_rows{"gather_rows"};
// x [T, D] is zero but for x[rows[r], :] = y[r, :]; rows are distinct.
inline constinit Op<void(Tensor x, Tensor y, Tensor rows)> scatter_rows{"scatter_rows"};

}  // namespace hone
