// CPU specification of Muon's steps.
#include "kernels/optimizer/muon.h"

#include <algorithm>
#include <cmath>

#include "core/base/parallel_for.h"
#include "kernels/optimizer/internal.h"
#include "kernels/optimizer/matrix_checks.h"

namespace hone {
namespace {

constexpr int64_t per_piece = int64_t{1} << 14;

float read(const Tensor& x, int64_t i) { return read_moment(x, i); }
void write(const Tensor& x, int64_t i, float value) {
  if (x.dtype == DType::bf16)
    x.ptr<bf16>()[i] = to_bf16(value);
  else
    x.ptr<float>()[i] = value;
}

void momentum(Context&, const MuonMomentum& args) {
  check(args);
  const float rest = static_cast<float>(1 - double{args.step.momentum}), clip = *args.clip.ptr<float>();
  parallel_for(args.grad.dim(0), per_piece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float g = args.grad.ptr<float>()[i] * clip, old = read_moment(args.buffer, i);
      const float buffer = old + rest * (g - old);
      args.update.ptr<float>()[i] = args.step.nesterov ? buffer - (buffer - g) * rest : buffer;
      const uint32_t noise =
          args.buffer.dtype == DType::bf16 ? rounding_noise(args.step.seed, args.step.stream, args.first + i) : 0;
      write_moment(args.buffer, i, buffer, noise);
    }
  });
}

void normalize(Context&, const MuonNormalize& args) {
  check(args);
  const int64_t rows = args.update.dim(0), cols = args.update.dim(1);
  const float norm = std::max(static_cast<float>(std::sqrt(*args.squares.ptr<double>())), args.eps);
  parallel_for(rows, std::max<int64_t>(1, per_piece / cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      for (int64_t c = 0; c < cols; ++c)
        write(args.x, args.transposed ? c * rows + r : r * cols + c, args.update.ptr<float>()[r * cols + c] / norm);
  });
}

void sum(Context&, const ScaledSum& args) {
  check(args);
  parallel_for(args.y.dim(0), per_piece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) write(args.y, i, args.a * read(args.y, i) + args.b * read(args.x, i));
  });
}

void apply(Context&, const MuonApply& args) {
  check(args);
  // The matrix of the values is [rows, cols].
  const int64_t rows = args.direction.dim(args.transposed ? 1 : 0), cols = args.direction.dim(args.transposed ? 0 : 1);
  parallel_for(args.value.dim(0), per_piece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t at = args.first + i, row = at / cols, col = at % cols;
      float& x = args.value.ptr<float>()[i];
      x = x * args.keep - args.rate * read(args.direction, args.transposed ? col * rows + row : at);
      if (args.rounded) args.rounded.ptr<bf16>()[i] = to_bf16(x);
    }
  });
}

[[maybe_unused]] const bool added = muon_momentum.add({"specification", DeviceKind::cpu, momentum}) &&
                                    muon_normalize.add({"specification", DeviceKind::cpu, normalize}) &&
                                    scaled_sum.add({"specification", DeviceKind::cpu, sum}) &&
                                    muon_apply.add({"specification", DeviceKind::cpu, apply});

}  // namespace
}  // namespace hone
