#include "kernels/optimizer.h"

#include "tests/gpu/gpu_check.h"

namespace hone::test {
namespace {

constexpr int64_t sizes[] = {0, 1, 33, 1023, 40000, 300001};

Floats magnitudes(int64_t count, uint64_t seed) {
  Floats out = normals({count}, seed);
  for (int64_t i = 0; i < count; ++i) out[i] *= out[i];
  return out;
}

// One f64 on the GPU.
class Sum {
 public:
  explicit Sum(double value) : bytes_(gpu()->device(), sizeof(double)) { gpu()->copy(*this, host_view(std::span(&value, 1))); }
  operator Tensor() const { return Tensor(bytes_.data(), DType::f64, DeviceKind::cuda, {1}); }
  double read() const {
    double out = 0;
    gpu()->copy(host_view(std::span(&out, 1)), *this);
    return out;
  }

 private:
  Buffer bytes_;
};

// Runs an update here and there, on whole ranges and on ranges that start off a 16-byte boundary: the bits are the specification's.
template <class... A, class Call>
void expect_equal_bits(const Op<void(A...)>&, std::vector<Floats> outputs, const Floats& grad, Call call) {
  for (const int64_t skip : {0, 1}) {
    if (grad.size() < skip) continue;
    const auto part = [&](Tensor x) { return x.rows(skip, grad.size() - skip); };
    std::vector<Floats> here = outputs;
    std::vector<OnGpu> there;
    std::vector<Tensor> here_parts, there_parts;
    there.reserve(outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      there.emplace_back(outputs[i]);
      here_parts.push_back(part(here[i])), there_parts.push_back(part(there[i]));
    }
    const OnGpu grad_there(grad), clip_there(Floats({1}, 0.7f));
    call(cpu(), here_parts, part(grad), Floats({1}, 0.7f).tensor());
    call(*gpu(), there_parts, part(grad_there), clip_there.tensor());
    for (size_t i = 0; i < outputs.size(); ++i) EXPECT_TRUE(close(there[i].read(), here[i], {0, 0})) << "output " << i << " of " << grad.size();
  }
}

}  // namespace

TEST(AdamwOnGpu, HasTheSpecificationsBits) {
  HONE_GPU_OR_SKIP();
  const AdamwStep step{
      .learning_rate = 1e-2f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f, .correction1 = 0.271f, .correction2 = 0.1426f};
  for (const int64_t n : sizes)
    expect_equal_bits(
        adamw_update, {normals({n}, 1), normals({n}, 2), magnitudes(n, 3)}, normals({n}, 4),
        [&](Context& context, const std::vector<Tensor>& x, Tensor grad, Tensor clip) { adamw_update(context, x[0], x[1], x[2], grad, clip, step); });
}

TEST(SgdOnGpu, HasTheSpecificationsBits) {
  HONE_GPU_OR_SKIP();
  for (const int64_t n : sizes)
    for (const SgdStep& step : {SgdStep{.learning_rate = 0.1f, .weight_decay = 0.1f},
                                SgdStep{.learning_rate = 0.1f, .momentum = 0.9f, .dampening = 0.2f, .weight_decay = 0.1f},
                                SgdStep{.learning_rate = 0.1f, .momentum = 0.9f, .weight_decay = 0.1f, .nesterov = true},
                                SgdStep{.learning_rate = 0.1f, .momentum = 0.9f, .first = true}})
      expect_equal_bits(
          sgd_update, {normals({n}, 1), normals({n}, 2)}, normals({n}, 4),
          [&](Context& context, const std::vector<Tensor>& x, Tensor grad, Tensor clip) { sgd_update(context, x[0], x[1], grad, clip, step); });
}

TEST(RmspropOnGpu, HasTheSpecificationsBits) {
  HONE_GPU_OR_SKIP();
  for (const int64_t n : sizes)
    expect_equal_bits(rmsprop_update, {normals({n}, 1), magnitudes(n, 2)}, normals({n}, 4),
                      [&](Context& context, const std::vector<Tensor>& x, Tensor grad, Tensor clip) {
                        rmsprop_update(context, x[0], x[1], grad, clip, {.learning_rate = 0.1f, .weight_decay = 0.1f});
                      });
}

TEST(SumSquaresOnGpu, AddsToWhatIsThereAndIsTheSameEachTime) {
  HONE_GPU_OR_SKIP();
  for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{33}, int64_t{32768}, int64_t{32769}, int64_t{3000001}}) {
    const Floats x = normals({n}, 1);
    const OnGpu there(x);
    double exact = 2;
    for (int64_t i = 0; i < n; ++i) exact += double{x[i]} * x[i];
    const Sum first(2), second(2);
    sum_squares(*gpu(), first, there);
    sum_squares(*gpu(), second, there);
    EXPECT_NEAR(first.read(), exact, 1e-12 * exact);
    EXPECT_EQ(first.read(), second.read());
    if (n == 0) continue;
    const Sum tail(0);
    sum_squares(*gpu(), tail, there.tensor().rows(1, n - 1));
    EXPECT_NEAR(tail.read(), exact - 2 - double{x[0]} * x[0], 1e-12 * exact);
  }
}

TEST(ClipFactorOnGpu, HasTheSpecificationsBits) {
  HONE_GPU_OR_SKIP();
  for (const double sum : {0.0, 0.25, 1.0, 16.0, 1e9, 1e300})
    for (const float max_norm : {0.0f, 1.0f, 3.7f}) {
      Floats clip = poisoned({1}), norm = poisoned({1});
      OnGpu clip_there(clip), norm_there(norm);
      double value = sum;
      clip_factor(cpu(), clip, norm, host_view(std::span(&value, 1)), max_norm);
      clip_factor(*gpu(), clip_there, norm_there, Sum(sum), max_norm);
      EXPECT_TRUE(close(clip_there.read(), clip, {0, 0})) << sum;
      EXPECT_TRUE(close(norm_there.read(), norm, {0, 0})) << sum;
    }
  OnGpu clip(Floats({1}, 1)), norm(Floats({1}, 1));
  clip_factor(*gpu(), clip, norm, Sum(std::nan("")), 1);
  EXPECT_TRUE(std::isnan(clip.read()[0]));
}

}  // namespace hone::test
