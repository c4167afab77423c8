#pragma once
// Matrices of one byte a number, each row with a scale of its own.
#include <cstdint>

#include "kernels/op.h"

namespace hone {

// int8: two's complement in [-127, 127]. fp8: e4m3 (kernels/cpu/fp8.h). Both are exact in bf16.
enum class QuantFormat : uint8_t { int8, fp8 };

// Number i of row r is scales[r] * values[r, i].
struct QuantizedMatrix {
  Tensor values;  // [N, K] u8
  Tensor scales;  // [N] f32
  QuantFormat format = QuantFormat::int8;
  explicit operator bool() const { return static_cast<bool>(values); }
};

// scales[r] = max |w[r, :]| / 127 for int8, / 448 for fp8; values[r, i] = w[r, i] / scales[r], rounded to nearest even.
// w [N, K]: f32, or bf16 on a GPU. A row of zeros has the scale 0; of one that holds an infinity or a NaN the scale is
// NaN, and so is what is made with it.
inline constinit Op<void(QuantizedMatrix to, Tensor w)> quantize_rows{"quantize_rows"};

}  // namespace hone
