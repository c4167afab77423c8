#pragma once
// Quantized matrices for tests.
#include "kernels/quant/quant_format.h"
#include "tests/kernels/op_check.h"

namespace hone::test {

using Bytes = Numbers<uint8_t>;

inline constexpr QuantFormat all_quant_formats[] = {QuantFormat::int8, QuantFormat::fp8};

inline float decoded(QuantFormat format, uint8_t bits) {
  float out = 0;
  with_format(format, [&]<class Format>(Format) { out = Format::decode(bits); });
  return out;
}

// Owns a QuantizedMatrix, zero at first.
struct Quantized {
  QuantFormat format;
  Bytes values;
  Floats scales;
  Quantized(QuantFormat f, int64_t N, int64_t K, int64_t gap = 0)
      : format(f), values({N, K}, uint8_t{0}, gap), scales({N}) {}
  // Quantizes w by the specification.
  Quantized(QuantFormat f, const Floats& w, int64_t gap = 0) : Quantized(f, w.tensor().dim(0), w.tensor().dim(1), gap) {
    quantize_rows(cpu(), *this, w);
  }
  operator QuantizedMatrix() const { return {values, scales, format}; }
  // The numbers without the scales.
  Floats numbers() const {
    Floats out({values.tensor().dim(0), values.tensor().dim(1)});
    for (int64_t i = 0; i < out.size(); ++i) out[i] = decoded(format, values[i]);
    return out;
  }
};

}  // namespace hone::test
