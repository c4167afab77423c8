#pragma once
// Quantizes matrices to one byte per number with one scale per row.
#include "kernels/op.h"
#include "kernels/quant/quantized_matrix.h"

namespace hone {

// scales[r] = max |w[r, :]| / 127 for int8, / 448 for fp8; values[r, i] = w[r, i] / scales[r], rounded to nearest even.
// Both are written. w [N, K] is f32, or bf16 on a GPU. A row of zeros has the scale 0. A row that holds an infinity or
// a NaN has the scale NaN, so its products are NaN.
inline constinit Op<void(QuantizedMatrix to, Tensor w)> quantize_rows{"quantize_rows"};

}  // namespace hone
