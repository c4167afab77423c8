// CPU specification of the soft-cap.
#include "kernels/elementwise/softcap.h"

#include <cmath>

#include "core/base/parallel_for.h"
#include "kernels/check_shape.h"

namespace hone {
namespace {

constexpr int64_t elements_per_piece = 4096;

void check_softcap(const OpBase& op, float softcap) {
  HONE_CHECK(softcap > 0, op.name(), ": softcap is ", softcap, "; it must be positive");
}

// Calls visit(row) for all rows, in parallel.
template <class Visit>
void for_each_row(const Tensor& x, Visit visit) {
  const int64_t dim = std::max<int64_t>(x.dim(1), 1);
  parallel_for(x.dim(0), std::max<int64_t>(1, elements_per_piece / dim), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) visit(r);
  });
}

void forward(Context&, Tensor x, float softcap) {
  check_shape(softcap_forward, "x", x, {x.dim(0), x.dim(1)});
  check_softcap(softcap_forward, softcap);
  for_each_row(x, [&](int64_t r) {
    float* row = x.row<float>(r);
    for (int64_t i = 0; i < x.dim(1); ++i)
      row[i] = static_cast<float>(softcap * std::tanh(double{row[i]} / double{softcap}));
  });
}

void backward(Context&, Tensor dx, Tensor y, float softcap) {
  check_shape(softcap_backward, "dx", dx, {y.dim(0), y.dim(1)});
  check_shape(softcap_backward, "y", y, {y.dim(0), y.dim(1)});
  check_softcap(softcap_backward, softcap);
  for_each_row(y, [&](int64_t r) {
    float* grad = dx.row<float>(r);
    const float* out = y.row<float>(r);
    for (int64_t i = 0; i < y.dim(1); ++i) {
      const double t = double{out[i]} / double{softcap};
      grad[i] = static_cast<float>(grad[i] * (1 - t * t));
    }
  });
}

[[maybe_unused]] const bool added = softcap_forward.add({"specification", DeviceKind::cpu, forward}) &&
                                    softcap_backward.add({"specification", DeviceKind::cpu, backward});

}  // namespace
}  // namespace hone
