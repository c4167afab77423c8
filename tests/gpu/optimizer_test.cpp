#include "kernels/optimizer/optimizer.h"

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
  explicit Sum(double value) : bytes_(gpu()->device(), sizeof(double)) {
    gpu()->copy(*this, host_view(std::span(&value, 1)));
  }
  operator Tensor() const { return Tensor(bytes_.data(), DType::f64, DeviceKind::cuda, {1}); }
  double read() const {
    double out = 0;
    gpu()->copy(host_view(std::span(&out, 1)), *this);
    return out;
  }

 private:
  Buffer bytes_;
};

Floats moments(int64_t n, uint64_t seed, DType dtype) { return rounded(magnitudes(n, seed), dtype); }

// Runs an update on the CPU and on the GPU from the same numbers: call(context, range, states), states of `dtype`. It
// covers full ranges and ranges that do not start at a 16-byte boundary, with and without the optional tensors. The
// bits must equal the specification's.
template <class Call>
void expect_equal_bits(int64_t n, std::vector<Floats> states, DType dtype, Call call) {
  const Floats value = normals({n}, 1), grad = normals({n}, 4), clip({1}, 0.7f);
  for (const int64_t skip : {0, 1})
    for (const bool options : {false, true}) {
      if (n < skip) continue;
      SCOPED_TRACE(concat(n, " elements from ", skip, options ? ", rounded" : ""));
      const int64_t count = n - skip;
      const auto part = [&](const auto& x) { return Tensor(x).rows(skip, count); };
      std::vector<uint8_t> flags(static_cast<size_t>((count + 63) / 64));
      for (size_t b = 0; b < flags.size(); ++b) flags[b] = b % 3 != 1;
      const Buffer flag_bytes(gpu()->device(), flags.size());
      const Tensor flags_there(flag_bytes.data(), DType::u8, DeviceKind::cuda, {static_cast<int64_t>(flags.size())});
      gpu()->copy(flags_there, host_view(std::span(flags)));

      Floats value_here = value;
      Numbers<bf16> rounded_here({n});
      OnGpu value_there(value), grad_there(grad), clip_there(clip), rounded_there = OnGpu::poisoned({n}, DType::bf16);
      ParamRange here{part(value_here), {}, part(grad), {}, clip},
          there{part(value_there), {}, part(grad_there), {}, clip_there};
      if (options) {
        here.rounded = part(rounded_here), there.rounded = part(rounded_there);
        here.decays = host_view(std::span(flags)), there.decays = flags_there;
      }
      std::vector<Numbers<bf16>> small;
      std::vector<Floats> large = states;
      std::vector<OnGpu> states_there;
      states_there.reserve(states.size());
      std::vector<Tensor> parts_here, parts_there;
      small.reserve(states.size());
      for (size_t i = 0; i < states.size(); ++i) {
        small.emplace_back(std::initializer_list<int64_t>{n});
        for (int64_t j = 0; j < n; ++j) small[i][j] = to_bf16(states[i][j]);
        states_there.emplace_back(states[i], dtype);
        parts_here.push_back(dtype == DType::bf16 ? part(small[i]) : part(large[i])),
            parts_there.push_back(part(states_there[i]));
      }
      call(cpu(), here, parts_here);
      call(*gpu(), there, parts_there);
      EXPECT_TRUE(close(value_there.read(), value_here, {0, 0}));
      for (size_t i = 0; i < states.size(); ++i) {
        for (int64_t j = 0; dtype == DType::bf16 && j < n; ++j) large[i][j] = to_float(small[i][j]);
        EXPECT_TRUE(close(states_there[i].read(), large[i], {0, 0})) << "state " << i;
      }
      const Floats copy = rounded_there.read();
      for (int64_t i = 0; i < n; ++i)
        if (options && i >= skip)
          ASSERT_TRUE(same_bits(copy[i], to_float(rounded_here[i]))) << i;
        else
          ASSERT_TRUE(std::isnan(copy[i])) << i;
    }
}

}  // namespace

TEST(AdamwOnGpu, HasTheSpecificationsBits) {
  HONE_GPU_OR_SKIP();
  const AdamwStep step{.learning_rate = 1e-2f,
                       .beta1 = 0.9f,
                       .beta2 = 0.95f,
                       .eps = 1e-8f,
                       .weight_decay = 0.1f,
                       .correction1 = 0.271f,
                       .correction2 = 0.1426f,
                       .seed = 3,
                       .stream = 4};
  for (const int64_t n : sizes)
    for (const DType dtype : {DType::f32, DType::bf16})
      expect_equal_bits(n, {rounded(normals({n}, 2), dtype), moments(n, 3, dtype)}, dtype,
                        [&](Context& context, const ParamRange& range, const std::vector<Tensor>& states) {
                          adamw_update(context, {.range = range, .m = states[0], .v = states[1], .step = step});
                        });
}

// A shard of the parameters draws as the whole list does: the place of its first element decides.
TEST(AdamwOnGpu, APartDrawsAsTheWholeDoes) {
  HONE_GPU_OR_SKIP();
  const int64_t n = 3 * norm_piece + 40, half = norm_piece;
  const Floats value = normals({n}, 1), grad = normals({n}, 4), clip({1}, 0.7f), first = normals({n}, 2),
               second = magnitudes(n, 3);
  const AdamwStep step{.learning_rate = 1e-2f, .correction1 = 0.271f, .correction2 = 0.1426f, .seed = 3, .stream = 4};
  // Updates the elements from each of `begins` to the next.
  const auto update = [&](std::vector<int64_t> begins) {
    OnGpu x(value), g(grad), m(first, DType::bf16), v(second, DType::bf16), factor(clip);
    begins.push_back(n);
    for (size_t i = 0; i + 1 < begins.size(); ++i) {
      const int64_t begin = begins[i], count = begins[i + 1] - begin;
      const auto part = [&](const OnGpu& all) { return all.tensor().rows(begin, count); };
      adamw_update(*gpu(), {.range = {.value = part(x), .grad = part(g), .clip = factor, .first = begin},
                            .m = part(m),
                            .v = part(v),
                            .step = step});
    }
    return std::tuple{x.read(), m.read(), v.read()};
  };
  const auto [x, m, v] = update({0});
  for (const std::vector<int64_t>& begins :
       {std::vector<int64_t>{0, half}, {0, half, 2 * half, 3 * half}, {0, 4, 12, 3 * half + 36}}) {
    const auto [x_parts, m_parts, v_parts] = update(begins);
    EXPECT_TRUE(close(x_parts, x, {0, 0})) << begins.size() << " parts";
    EXPECT_TRUE(close(m_parts, m, {0, 0})) << begins.size() << " parts";
    EXPECT_TRUE(close(v_parts, v, {0, 0})) << begins.size() << " parts";
  }
}

TEST(SgdOnGpu, HasTheSpecificationsBits) {
  HONE_GPU_OR_SKIP();
  for (const int64_t n : sizes)
    for (const SgdStep& step :
         {SgdStep{.learning_rate = 0.1f, .weight_decay = 0.1f},
          SgdStep{.learning_rate = 0.1f, .momentum = 0.9f, .dampening = 0.2f, .weight_decay = 0.1f},
          SgdStep{.learning_rate = 0.1f, .momentum = 0.9f, .weight_decay = 0.1f, .nesterov = true},
          SgdStep{.learning_rate = 0.1f, .momentum = 0.9f, .first = true}})
      expect_equal_bits(n, {normals({n}, 2)}, DType::f32,
                        [&](Context& context, const ParamRange& range, const std::vector<Tensor>& states) {
                          sgd_update(context, {.range = range, .buffer = states[0], .step = step});
                        });
}

TEST(RmspropOnGpu, HasTheSpecificationsBits) {
  HONE_GPU_OR_SKIP();
  for (const int64_t n : sizes)
    expect_equal_bits(
        n, {magnitudes(n, 2)}, DType::f32,
        [&](Context& context, const ParamRange& range, const std::vector<Tensor>& states) {
          rmsprop_update(context,
                         {.range = range, .square = states[0], .step = {.learning_rate = 0.1f, .weight_decay = 0.1f}});
        });
}

TEST(AdagradOnGpu, HasTheSpecificationsBits) {
  HONE_GPU_OR_SKIP();
  for (const int64_t n : sizes)
    for (const bool first : {false, true})
      expect_equal_bits(n, {magnitudes(n, 2)}, DType::f32,
                        [&](Context& context, const ParamRange& range, const std::vector<Tensor>& states) {
                          adagrad_update(
                              context,
                              {.range = range,
                               .sum = states[0],
                               .step = {.learning_rate = 0.1f, .weight_decay = 0.1f, .initial = 0.5f, .first = first}});
                        });
}

TEST(LionOnGpu, HasTheSpecificationsBits) {
  HONE_GPU_OR_SKIP();
  for (const int64_t n : sizes)
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const int64_t place : {0, 6})  // a draw begins at a multiple of 4
        expect_equal_bits(
            n, {rounded(normals({n}, 2), dtype)}, dtype,
            [&](Context& context, ParamRange range, const std::vector<Tensor>& states) {
              range.first = place;
              lion_update(context, {.range = range,
                                    .m = states[0],
                                    .step = {.learning_rate = 0.1f, .weight_decay = 0.1f, .seed = 3, .stream = 4}});
            });
}

// `count` f64 numbers on the GPU.
class Pieces {
 public:
  explicit Pieces(int64_t count)
      : bytes_(gpu()->device(), static_cast<size_t>(count) * sizeof(double)), count_(count) {}
  operator Tensor() const { return Tensor(bytes_.data(), DType::f64, DeviceKind::cuda, {count_}); }
  std::vector<double> read() const {
    std::vector<double> out(static_cast<size_t>(count_));
    gpu()->copy(host_view(std::span(out)), *this);
    return out;
  }

 private:
  Buffer bytes_;
  int64_t count_;
};

TEST(SumSquaresOnGpu, AddsPiecesThatDoNotDependOnEachOther) {
  HONE_GPU_OR_SKIP();
  for (const int64_t n : {int64_t{1}, int64_t{33}, int64_t{4096}, int64_t{4097}, int64_t{3000001}}) {
    const Floats x = normals({n}, 1);
    const OnGpu there(x);
    const int64_t count = (n + norm_piece - 1) / norm_piece;
    const Pieces pieces(count), again(count);
    sum_squares(*gpu(), pieces, there, norm_piece);
    sum_squares(*gpu(), again, there, norm_piece);
    EXPECT_EQ(pieces.read(), again.read());
    double exact = 0;
    for (int64_t i = 0; i < n; ++i) exact += double{x[i]} * x[i];
    const Sum sum(-1);
    sum_pieces(*gpu(), sum, pieces);
    EXPECT_NEAR(sum.read(), exact, 1e-12 * exact);
    if (count < 2) continue;
    const Pieces rest(count - 1);
    sum_squares(*gpu(), rest, there.tensor().rows(norm_piece, n - norm_piece), norm_piece);
    const std::vector<double> all = pieces.read();
    EXPECT_TRUE(std::ranges::equal(rest.read(), std::span(all).subspan(1)));
  }
}

// Any alignment and any number of elements of a piece, also pieces shorter than a thread block.
TEST(SumSquaresOnGpu, PiecesOfAnySizeAndAlignment) {
  HONE_GPU_OR_SKIP();
  for (const int64_t size : {4, 64, 512, 4092, 40000})
    for (const int64_t skip : {0, 1, 2})
      for (const int64_t n : {1, 3, 5, 511, 513, 70001}) {
        const Floats x = normals({n + skip}, 1);
        const OnGpu there(x);
        const int64_t count = (n + size - 1) / size;
        const Pieces pieces(count);
        sum_squares(*gpu(), pieces, there.tensor().rows(skip, n), size);
        const std::vector<double> sums = pieces.read();
        for (int64_t p = 0; p < count; ++p) {
          double exact = 0;
          for (int64_t i = p * size; i < std::min(n, (p + 1) * size); ++i) exact += double{x[skip + i]} * x[skip + i];
          ASSERT_NEAR(sums[static_cast<size_t>(p)], exact, 1e-12 * exact) << size << ", " << skip << ", " << n;
        }
      }
}

TEST(SumPiecesOnGpu, NothingAddsUpToZeroAndNanStays) {
  HONE_GPU_OR_SKIP();
  const Sum sum(-1);
  sum_pieces(*gpu(), sum, Tensor(nullptr, DType::f64, DeviceKind::cuda, {0}));
  EXPECT_EQ(sum.read(), 0);
  sum_squares(*gpu(), Tensor(nullptr, DType::f64, DeviceKind::cuda, {0}),
              Tensor(nullptr, DType::f32, DeviceKind::cuda, {0}), norm_piece);
  const Pieces pieces(1);
  sum_squares(*gpu(), pieces, OnGpu(Floats({5}, std::nanf(""))), norm_piece);
  sum_pieces(*gpu(), sum, pieces);
  EXPECT_TRUE(std::isnan(sum.read()));
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
