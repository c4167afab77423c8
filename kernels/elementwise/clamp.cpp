// CPU specification of the clamp.
#include "kernels/elementwise/clamp.h"

#include <cmath>

#include "core/base/parallel_for.h"
#include "kernels/check_shape.h"

namespace hone {
namespace {

constexpr int64_t rows_per_piece = 16;

void check_limit(const OpBase& op, float limit) {
  HONE_CHECK(limit > 0, op.name(), ": limit is ", limit, "; it must be positive");
}

void forward(Context&, Tensor x, float limit) {
  check_shape(clamp_forward, "x", x, {x.dim(0), x.dim(1)});
  check_limit(clamp_forward, limit);
  parallel_for(x.dim(0), rows_per_piece, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      float* row = x.row<float>(r);
      for (int64_t i = 0; i < x.dim(1); ++i)
        if (std::fabs(row[i]) > limit) row[i] = std::copysign(limit, row[i]);
    }
  });
}

void backward(Context&, Tensor dx, Tensor x, float limit) {
  check_shape(clamp_backward, "dx", dx, {x.dim(0), x.dim(1)});
  check_shape(clamp_backward, "x", x, {x.dim(0), x.dim(1)});
  check_limit(clamp_backward, limit);
  parallel_for(x.dim(0), rows_per_piece, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      float* grad = dx.row<float>(r);
      const float* in = x.row<float>(r);
      for (int64_t i = 0; i < x.dim(1); ++i)
        if (std::fabs(in[i]) > limit) grad[i] = 0;
    }
  });
}

[[maybe_unused]] const bool added = clamp_forward.add({"specification", DeviceKind::cpu, forward}) &&
                                    clamp_backward.add({"specification", DeviceKind::cpu, backward});

}  // namespace
}  // namespace hone
