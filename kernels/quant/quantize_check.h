#pragma once
// What every body that takes a QuantizedMatrix checks of it.
#include "kernels/check_shape.h"
#include "kernels/quant/quantize.h"

namespace hone {

inline void check_quantized(const OpBase& op, const char* name, const QuantizedMatrix& w, int64_t N, int64_t K) {
  check_shape(op, name, w.values, {N, K}, DType::u8);
  check_shape(op, name, w.scales, {N});
}

}  // namespace hone
