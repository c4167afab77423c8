#pragma once
// Helpers of op tests: tensors that detect writes outside of their elements, comparison of CPU bodies with the
// specification, and finite differences.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "core/base/rng.h"
#include "core/device/device.h"
#include "kernels/op.h"

namespace hone::test {

inline Context& cpu() {
  static const std::unique_ptr<Device> device = devices().at("cpu")(0);
  static Context context(*device);
  return context;
}

inline constexpr float nan_f32 = std::numeric_limits<float>::quiet_NaN();

// Owns a tensor of T with `gap` elements between its rows. The gaps and a margin after the last row hold a pattern;
// gaps_intact() checks it.
template <class T>
class Numbers {
 public:
  Numbers(std::initializer_list<int64_t> dims, T value = T{}, int64_t gap = 0)
      : tensor_(nullptr, dtype_of<T>::value, DeviceKind::cpu, dims), row_size_(tensor_.row_size()) {
    tensor_.row_stride = row_size_ + gap;
    data_.resize(static_cast<size_t>(tensor_.dim(0) * tensor_.row_stride + margin));
    std::memset(static_cast<void*>(data_.data()), pattern, data_.size() * sizeof(T));
    tensor_.data = data_.data();
    for (int64_t i = 0; i < size(); ++i) (*this)[i] = value;
  }
  Numbers(const Numbers& other) : data_(other.data_), tensor_(other.tensor_), row_size_(other.row_size_) {
    tensor_.data = data_.data();
  }
  Numbers& operator=(const Numbers& other) {
    data_ = other.data_, tensor_ = other.tensor_, row_size_ = other.row_size_;
    tensor_.data = data_.data();
    return *this;
  }

  operator Tensor() const { return tensor_; }
  Tensor tensor() const { return tensor_; }
  int64_t size() const { return tensor_.size(); }
  // Element i in row-major order, without the gaps.
  T& operator[](int64_t i) { return data_[place(i)]; }
  const T& operator[](int64_t i) const { return data_[place(i)]; }

  bool gaps_intact() const {
    const auto intact = [&](int64_t begin, int64_t end) {
      const auto* bytes = reinterpret_cast<const unsigned char*>(data_.data());
      return std::all_of(bytes + static_cast<size_t>(begin) * sizeof(T), bytes + static_cast<size_t>(end) * sizeof(T),
                         [](unsigned char byte) { return byte == pattern; });
    };
    const int64_t rows = tensor_.dim(0), stride = tensor_.row_stride;
    for (int64_t row = 0; row_size_ < stride && row < rows; ++row)
      if (!intact(row * stride + row_size_, (row + 1) * stride)) return false;
    return intact(rows * stride, std::ssize(data_));
  }

 private:
  static constexpr int64_t margin = 16;
  static constexpr unsigned char pattern = 0xA5;
  size_t place(int64_t i) const {
    if (tensor_.row_stride == row_size_) return static_cast<size_t>(i);
    return static_cast<size_t>(i / row_size_ * tensor_.row_stride + i % row_size_);
  }
  std::vector<T> data_;
  Tensor tensor_;
  int64_t row_size_;
};

using Floats = Numbers<float>;
using Ids = Numbers<int32_t>;

// Standard normal times `scale`, a function of the seed.
inline Floats normals(std::initializer_list<int64_t> dims, uint64_t seed, float scale = 1, int64_t gap = 0) {
  Floats out(dims, 0, gap);
  Rng rng(seed);
  const auto next = [&] { return scale * static_cast<float>(rng.normal()); };
  std::vector<float> some(size_t{1} << 16);
  if (out.size() <= 16 * std::ssize(some)) {
    for (int64_t i = 0; i < out.size(); ++i) out[i] = next();
    return out;
  }
  // A large tensor repeats some numbers in random order: drawing each would take most of a test's time.
  for (float& number : some) number = next();
  uint64_t bits = 0;
  for (int64_t i = 0; i < out.size(); ++i, bits >>= 16) {
    if (i % 4 == 0) bits = rng.next();
    out[i] = some[bits & 0xffff];
  }
  return out;
}
// All NaN: an op that writes its output must overwrite each element.
inline Floats poisoned(std::initializer_list<int64_t> dims, int64_t gap = 0) { return Floats(dims, nan_f32, gap); }
inline Ids random_ids(int64_t count, int32_t bound, uint64_t seed) {
  Ids out({count});
  Rng rng(seed);
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<int32_t>(rng.below(static_cast<uint64_t>(bound)));
  return out;
}

// |actual - expected| <= absolute + relative * |expected|; {0, 0} requires equal bits.
struct Tolerance {
  double relative = 1e-4, absolute = 1e-5;
};

inline bool same_bits(float a, float b) { return std::memcmp(&a, &b, sizeof a) == 0; }

// Expected: a type with operator[](int64_t) that returns numbers.
template <class Expected>
::testing::AssertionResult close(const Floats& actual, const Expected& expected, Tolerance tolerance = {}) {
  if (!actual.gaps_intact()) return ::testing::AssertionFailure() << "memory outside the rows was written";
  const bool exact = tolerance.relative == 0 && tolerance.absolute == 0;
  for (int64_t i = 0; i < actual.size(); ++i) {
    const double a = actual[i], e = static_cast<double>(expected[i]);
    const bool good = exact ? same_bits(actual[i], static_cast<float>(expected[i]))
                            : std::fabs(a - e) <= tolerance.absolute + tolerance.relative * std::fabs(e);
    if (!good)
      return ::testing::AssertionFailure()
             << "element " << i << " of " << actual.size() << " is " << a << ", expected " << e;
  }
  return ::testing::AssertionSuccess();
}

// Calls test(run, name) for each CPU body. run(arguments...) runs that body, or returns false if it does not support
// the arguments.
template <class... A, class Test>
void each_cpu_body(const Op<void(A...)>& op, Test test) {
  for (size_t i = 0; i < op.bodies().size(); ++i) {
    if (op.bodies()[i].device != DeviceKind::cpu) continue;
    const std::string name = op.bodies()[i].name;
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, std::string(op.name()) + ", body " + name);
    test(
        [&](std::type_identity_t<A>... arguments) {
          return op.supported(i, arguments...) && (op.run_body(i, cpu(), arguments...), true);
        },
        name);
  }
}

// For ops without an argument struct: runs each CPU body on the same arguments and compares `outputs` with those of the
// body named "specification". Before each run the outputs have their current values: NaN for written ones, numbers for
// added ones. Afterwards they hold the specification's results. kernels/op_contract.h has the same for argument
// structs.
template <class... A>
void expect_bodies_agree(const Op<void(A...)>& op, std::vector<Floats*> outputs, Tolerance tolerance,
                         std::type_identity_t<A>... arguments) {
  std::vector<Floats> initial, expected;
  for (const Floats* output : outputs) initial.push_back(*output);
  const auto run = [&](bool specification) {
    each_cpu_body(op, [&](auto body, const std::string& name) {
      if ((name == "specification") != specification) return;
      for (size_t i = 0; i < outputs.size(); ++i)
        for (int64_t j = 0; j < outputs[i]->size(); ++j) (*outputs[i])[j] = initial[i][j];
      if (!body(arguments...)) return;
      for (size_t i = 0; i < outputs.size(); ++i) {
        if (specification)
          expected.push_back(*outputs[i]);
        else
          EXPECT_TRUE(close(*outputs[i], expected[i], tolerance)) << "output " << i;
      }
    });
  };
  run(true);
  ASSERT_EQ(expected.size(), outputs.size()) << op.name() << " has no body named specification for these arguments";
  run(false);
  for (size_t i = 0; i < outputs.size(); ++i) {
    EXPECT_TRUE(expected[i].gaps_intact()) << "specification wrote outside output " << i;
    for (int64_t j = 0; j < outputs[i]->size(); ++j) (*outputs[i])[j] = expected[i][j];
  }
}

// Compares gradient with central differences of loss() by each element of x, or by `limit` evenly spread elements.
template <class Loss>
void expect_gradient(Loss loss, Floats& x, const Floats& gradient, Tolerance tolerance = {2e-2, 2e-3},
                     float step = 1e-2f, int64_t limit = 200) {
  ASSERT_EQ(x.size(), gradient.size());
  const int64_t stride = std::max<int64_t>(1, x.size() / limit);
  for (int64_t i = 0; i < x.size(); i += stride) {
    const float kept = x[i];
    x[i] = kept + step;
    const double above = loss();
    x[i] = kept - step;
    const double below = loss();
    x[i] = kept;
    const double expected = (above - below) / (static_cast<double>(kept + step) - static_cast<double>(kept - step));
    EXPECT_LE(std::fabs(static_cast<double>(gradient[i]) - expected),
              tolerance.absolute + tolerance.relative * std::fabs(expected))
        << "element " << i << ": gradient " << gradient[i] << ", difference " << expected;
  }
}

}  // namespace hone::test
