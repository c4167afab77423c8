// CUDA body of blend (kernel: kernels/cuda/elementwise.cuh).
#include "kernels/cuda/elementwise.cuh"
#include "kernels/elementwise/blend.h"

namespace hone {
namespace {

template <class T>
struct Blend {
  T* y;
  const T* x;
  float kept, added;
  template <int N>
  __device__ void run(int64_t, int64_t column) const {
    float mean[N], more[N];
    load_numbers(mean, y + column);
    load_numbers(more, x + column);
#pragma unroll
    for (int i = 0; i < N; ++i) mean[i] = __fmaf_rn(added, more[i], __fmul_rn(kept, mean[i]));
    store_numbers(y + column, mean);
  }
};

void run_blend(Context& context, Tensor y, Tensor x, double alpha) {
  HONE_CHECK(y.dtype == x.dtype && y.size() == x.size() && y.contiguous() && x.contiguous(), "op blend: x has ",
             x.size(), " elements of ", name_of(x.dtype), ", y has ", y.size(), " of ", name_of(y.dtype),
             "; they must be equal, and both contiguous");
  const Extent all{1, x.size()};
  with_storage(blend, y.dtype, [&](auto type) {
    using T = decltype(type);
    constexpr int N = vec_size<T>;
    launch_elementwise<N>(
        cuda_stream(context), all, packs_of(N, 1, y) && packs_of(N, 1, x),
        Blend<T>{numbers<T>(y), numbers<const T>(x), static_cast<float>(1 - alpha), static_cast<float>(alpha)});
  });
  check_launch(blend);
}

[[maybe_unused]] const bool added = blend.add({"elementwise", DeviceKind::cuda, run_blend});

}  // namespace
}  // namespace hone
