#pragma once
// A quantized matrix on the GPU, with a pattern in the gaps between rows and around them.
#include "tests/gpu/gpu_check.h"
#include "tests/kernels/quant/quantized.h"

namespace hone::test {

class QuantizedOnGpu {
 public:
  QuantizedOnGpu(QuantFormat format, int64_t N, int64_t K, int64_t gap = 0)
      : matrix_{Tensor(nullptr, DType::u8, DeviceKind::cuda, {N, K}), {}, format},
        bytes_(2 * margin + static_cast<size_t>(N * (K + gap)), pattern),
        memory_(gpu()->device(), bytes_.size()),
        scales_(OnGpu::poisoned({N})) {
    matrix_.values.row_stride = K + gap;
    matrix_.values.data = static_cast<char*>(memory_.data()) + margin;
    matrix_.scales = scales_;
    gpu()->device().copy(memory_.data(), bytes_.data(), bytes_.size(), gpu()->stream());
    gpu()->synchronize();
  }
  // Quantizes w on the GPU.
  QuantizedOnGpu(QuantFormat format, const OnGpu& w, int64_t gap = 0)
      : QuantizedOnGpu(format, w.tensor().dim(0), w.tensor().dim(1), gap) {
    quantize_rows(*gpu(), *this, w);
  }
  operator QuantizedMatrix() const { return matrix_; }
  // Copies back. Fails the test if memory outside of the rows was written.
  Quantized read() {
    const int64_t N = matrix_.values.dim(0), K = matrix_.values.dim(1), stride = matrix_.values.row_stride;
    gpu()->device().copy(bytes_.data(), memory_.data(), bytes_.size(), gpu()->stream());
    gpu()->synchronize();
    Quantized out(matrix_.format, N, K);
    for (size_t i = 0; i < bytes_.size(); ++i) {
      const int64_t at = static_cast<int64_t>(i) - static_cast<int64_t>(margin);
      if (at >= 0 && at / stride < N && at % stride < K)
        out.values[at / stride * K + at % stride] = static_cast<uint8_t>(bytes_[i]);
      else
        EXPECT_EQ(bytes_[i], pattern) << "memory outside the rows was written, byte " << at;
    }
    out.scales = scales_.read();
    return out;
  }

 private:
  static constexpr size_t margin = 256;
  static constexpr char pattern = '\x5A';
  QuantizedMatrix matrix_;
  std::vector<char> bytes_;
  Buffer memory_;
  OnGpu scales_;
};

}  // namespace hone::test
