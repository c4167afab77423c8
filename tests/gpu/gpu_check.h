#pragma once
// Helpers of GPU tests: the device or a visible skip, copies of host numbers on the device, and comparison with the CPU
// specification.
#include <algorithm>
#include <cstdlib>

#include "kernels/cuda/limits.h"
#include "tests/kernels/op_check.h"

namespace hone::test {

// Returns nullptr without a device.
inline Context* gpu() {
  static const std::unique_ptr<Device> device = []() -> std::unique_ptr<Device> {
    try {
      return devices().at("cuda")(0);
    } catch (const Error&) {
      return nullptr;
    }
  }();
  static const std::unique_ptr<Context> context = device ? std::make_unique<Context>(*device) : nullptr;
  return context.get();
}

// HONE_GPU_CASES=n, n > 1, makes tests short: under compute-sanitizer kernels take a hundred times as long.
inline int64_t one_case_of() {
  static const int64_t n = [] {
    const char* text = std::getenv("HONE_GPU_CASES");
    return std::max<int64_t>(1, text ? std::atoll(text) : 1);
  }();
  return n;
}
// True if the next case of a list is to run: each one, or the first of every n.
inline bool chosen() {
  static const void* test = nullptr;  // the first case of each test runs
  static int64_t turn = 0;
  if (const void* now = ::testing::UnitTest::GetInstance()->current_test_info(); now != test) test = now, turn = 0;
  return turn++ % one_case_of() == 0;
}
// A size, or a smaller one if tests are short.
template <class T>
T sized(T size, T small) {
  return one_case_of() > 1 ? small : size;
}

// Numbers rounded to `dtype`: the specification gets the same inputs as a bf16 body.
inline Floats rounded(Floats x, DType dtype) {
  if (dtype == DType::bf16)
    for (int64_t i = 0; i < x.size(); ++i) x[i] = to_float(to_bf16(x[i]));
  return x;
}

// A tensor on the GPU with the numbers and row gaps of a host tensor. The memory around the numbers holds a pattern.
class OnGpu {
 public:
  // The numbers as `dtype` (f32 or bf16) rounds them.
  OnGpu(const Floats& host, DType dtype = DType::f32) : OnGpu(host.tensor(), dtype) {
    for (int64_t i = 0; i < host.size(); ++i) put(i, host[i]);
    send();
  }
  OnGpu(const Ids& host) : OnGpu(host.tensor(), DType::i32) {
    for (int64_t i = 0; i < host.size(); ++i) std::memcpy(&bytes_[place(i)], &host[i], sizeof(int32_t));
    send();
  }
  // All NaN.
  static OnGpu poisoned(std::initializer_list<int64_t> dims, DType dtype = DType::f32, int64_t gap = 0) {
    return OnGpu(hone::test::poisoned(dims, gap), dtype);
  }

  operator Tensor() const { return tensor_; }
  Tensor tensor() const { return tensor_; }

  // Fills with NaN again.
  void poison() {
    for (int64_t i = 0; i < tensor_.size(); ++i) put(i, nan_f32);
    send();
  }
  // Copies back as f32 with the same gaps. Fails the test if memory outside of the rows was written.
  Floats read() {
    Floats out = shaped<float>();
    receive();
    for (int64_t i = 0; i < out.size(); ++i) {
      if (tensor_.dtype == DType::bf16) {
        bf16 x;
        std::memcpy(&x, &bytes_[place(i)], sizeof x);
        out[i] = to_float(x);
      } else {
        std::memcpy(&out[i], &bytes_[place(i)], sizeof(float));
      }
    }
    return out;
  }
  Ids read_ids() {
    Ids out = shaped<int32_t>();
    receive();
    for (int64_t i = 0; i < out.size(); ++i) std::memcpy(&out[i], &bytes_[place(i)], sizeof(int32_t));
    return out;
  }

 private:
  static constexpr size_t margin = 256;  // bytes on each side
  static constexpr char pattern = '\x5A';

  OnGpu(const Tensor& like, DType dtype) : tensor_(like), row_size_(like.row_size()) {
    tensor_.dtype = dtype, tensor_.device = DeviceKind::cuda;
    bytes_.assign(2 * margin + static_cast<size_t>(like.dim(0) * like.row_stride) * size_of(dtype), pattern);
    memory_ = Buffer(gpu()->device(), bytes_.size());
    tensor_.data = static_cast<char*>(memory_.data()) + margin;
  }
  template <class T>
  Numbers<T> shaped() const {
    const int64_t gap = tensor_.row_stride - tensor_.row_size();
    switch (tensor_.rank) {
      case 1:
        return Numbers<T>({tensor_.dim(0)}, T{}, gap);
      case 2:
        return Numbers<T>({tensor_.dim(0), tensor_.dim(1)}, T{}, gap);
      case 3:
        return Numbers<T>({tensor_.dim(0), tensor_.dim(1), tensor_.dim(2)}, T{}, gap);
      default:
        return Numbers<T>({tensor_.dim(0), tensor_.dim(1), tensor_.dim(2), tensor_.dim(3)}, T{}, gap);
    }
  }
  size_t place(int64_t i) const {
    const int64_t at = tensor_.row_stride == row_size_ ? i : i / row_size_ * tensor_.row_stride + i % row_size_;
    return margin + static_cast<size_t>(at) * size_of(tensor_.dtype);
  }
  void put(int64_t i, float value) {
    if (tensor_.dtype == DType::bf16) {
      const bf16 x = to_bf16(value);
      std::memcpy(&bytes_[place(i)], &x, sizeof x);
    } else {
      std::memcpy(&bytes_[place(i)], &value, sizeof value);
    }
  }
  void send() {
    gpu()->device().copy(memory_.data(), bytes_.data(), bytes_.size(), gpu()->stream());
    gpu()->synchronize();
  }
  void receive() {
    gpu()->device().copy(bytes_.data(), memory_.data(), bytes_.size(), gpu()->stream());
    gpu()->synchronize();
    const auto rows = static_cast<size_t>(tensor_.dim(0)), width = size_of(tensor_.dtype),
               stride = static_cast<size_t>(tensor_.row_stride) * width, row = static_cast<size_t>(row_size_) * width;
    check_pattern(0, margin);
    for (size_t r = 0; row < stride && r < rows; ++r)
      check_pattern(margin + r * stride + row, margin + (r + 1) * stride);
    check_pattern(margin + rows * stride, bytes_.size());
  }
  void check_pattern(size_t begin, size_t end) const {
    const auto first = bytes_.begin(), found = std::find_if(first + static_cast<std::ptrdiff_t>(begin),
                                                            first + static_cast<std::ptrdiff_t>(end),
                                                            [](char byte) { return byte != pattern; });
    if (found != first + static_cast<std::ptrdiff_t>(end))
      ADD_FAILURE() << "memory outside the rows was written, byte "
                    << (found - first) - static_cast<std::ptrdiff_t>(margin);
  }

  Buffer memory_;
  std::vector<char> bytes_;
  Tensor tensor_;
  int64_t row_size_;
};

// Root mean square, the scale of the error bound of bf16 outputs.
inline double rms(const Floats& x) {
  double sum = 0;
  for (int64_t i = 0; i < x.size(); ++i) sum += static_cast<double>(x[i]) * x[i];
  return std::sqrt(sum / static_cast<double>(std::max<int64_t>(x.size(), 1)));
}
// |a - e| <= t * (|e| + rms(e)), with t by the storage dtype; NaN never passes.
inline ::testing::AssertionResult agrees(const Floats& actual, const Floats& expected, DType dtype, double factor = 1) {
  const double t = factor * (dtype == DType::bf16 ? 1e-2 : 2e-5);
  return close(actual, expected, {t, t * rms(expected) + 1e-30});
}

// agrees() per head, with the head's own scale if it is larger: a query that sees few keys has larger outputs. `least`
// is the scale of numbers that cancel: a query with one key has no gradient.
inline ::testing::AssertionResult heads_agree(const Floats& actual, const Floats& expected, DType dtype,
                                              double factor = 1, double least = 0) {
  if (!actual.gaps_intact()) return ::testing::AssertionFailure() << "memory outside the rows was written";
  const double t = factor * (dtype == DType::bf16 ? 1e-2 : 2e-5), all = std::max(least, rms(expected));
  const int64_t dim = actual.tensor().dim(2);
  for (int64_t i = 0; i < actual.size(); i += dim) {
    double sum = 0;
    for (int64_t d = 0; d < dim; ++d) sum += static_cast<double>(expected[i + d]) * expected[i + d];
    const double size = std::max(all, std::sqrt(sum / static_cast<double>(dim)));
    for (int64_t j = i; j < i + dim; ++j) {
      const double a = actual[j], e = expected[j];
      if (!(std::fabs(a - e) <= t * (std::fabs(e) + size)))
        return ::testing::AssertionFailure()
               << "element " << j << " of " << actual.size() << " is " << a << ", expected " << e << " among " << size;
    }
  }
  return ::testing::AssertionSuccess();
}

// The first line of each GPU test.
#define HONE_GPU_OR_SKIP() \
  if (!::hone::test::gpu()) GTEST_SKIP() << "no CUDA device"
// The first line of tests of the Hopper bodies.
#define HONE_HOPPER_OR_SKIP() \
  HONE_GPU_OR_SKIP();         \
  if (!::hone::runs_hopper_bodies()) GTEST_SKIP() << "the bodies named sm90 do not run here; see hone list ops"

}  // namespace hone::test
