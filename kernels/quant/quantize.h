#pragma once
// Matrices of one byte per number with one scale per row.
#include <cstdint>

#include "kernels/op.h"

namespace hone {

// int8: two's complement in [-127, 127]. fp8: e4m3 (kernels/cpu/float_formats.h). Both are exact in bf16.
enum class QuantFormat : uint8_t { int8, fp8 };

// Number i of row r is scales[r] * values[r, i].
struct QuantizedMatrix {
  Tensor values;  // [N, K] u8
  Tensor scales;  // [N] f32
  QuantFormat format = QuantFormat::int8;
  explicit operator bool() const { return static_cast<bool>(values); }
  // As the weight of a GEMM.
  static constexpr auto access = op_access(prefetched(&QuantizedMatrix::values, &QuantizedMatrix::scales));
};

// scales[r] = max |w[r, :]| / 127 for int8, / 448 for fp8; values[r, i] = w[r, i] / scales[r], rounded to nearest even.
// Both are written. w [N, K] is f32, or bf16 on a GPU. A row of zeros has the scale 0. A row that holds an infinity or
// a NaN has the scale NaN, so its products are NaN.
inline constinit Op<void(QuantizedMatrix to, Tensor w)> quantize_rows{"quantize_rows"};

}  // namespace hone
