// CPU specification of dropout.
#include "kernels/elementwise/dropout.h"

#include "core/base/parallel_for.h"
#include "core/base/rng.h"
#include "kernels/check_shape.h"

namespace hone {
namespace {

void run(Context&, Tensor y, Tensor x, float factor, Dropout which) {
  const int64_t rows = x.dim(0), columns = x.dim(1), draws = (columns + 3) / 4;
  check_shape(dropout, "x", x, {rows, columns});
  check_shape(dropout, "y", y, {rows, columns});
  constexpr int64_t worth_sharing = 65536;
  parallel_for(
      rows, std::max<int64_t>(1, worth_sharing / std::max<int64_t>(columns, 1)), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          const float* from = x.row<float>(r);
          float* to = y.row<float>(r);
          Philox4 drawn{};
          for (int64_t c = 0; c < columns; ++c) {
            if (which.rate > 0 && c % 4 == 0)
              drawn = philox(which.seed, which.stream, static_cast<uint64_t>((which.first_row + r) * draws + c / 4));
            to[c] = which.rate == 0 || unit_float(drawn.word[c % 4]) >= which.rate ? factor * from[c] : 0;
          }
        }
      });
}

[[maybe_unused]] const bool added = dropout.add({"specification", DeviceKind::cpu, run});

}  // namespace
}  // namespace hone
