#pragma once
// A matrix of one byte per number with one scale per row.
#include <cstdint>

#include "kernels/access.h"

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

}  // namespace hone
