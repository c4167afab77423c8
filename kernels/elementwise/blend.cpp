// CPU body of blend.
#include "kernels/elementwise/blend.h"

#include <cmath>

#include "core/base/parallel_for.h"
#include "kernels/cpu/float_formats.h"

namespace hone {
namespace {

constexpr int64_t per_piece = int64_t{1} << 14;

float read(float x) { return x; }
float read(bf16 x) { return to_float(x); }
void write(float& to, float x) { to = x; }
void write(bf16& to, float x) { to = to_bf16(x); }

template <class T>
void blend_all(Tensor y, Tensor x, float kept, float added) {
  T* out = y.ptr<T>();
  const T* in = x.ptr<T>();
  parallel_for(x.size(), per_piece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) write(out[i], std::fma(added, read(in[i]), kept * read(out[i])));
  });
}

void run_blend(Context&, Tensor y, Tensor x, double alpha) {
  HONE_CHECK(y.dtype == x.dtype && y.size() == x.size() && y.contiguous() && x.contiguous(), "blend: x has ", x.size(),
             " elements of ", name_of(x.dtype), ", y has ", y.size(), " of ", name_of(y.dtype),
             "; they must be equal, and both contiguous");
  HONE_CHECK(x.dtype == DType::f32 || x.dtype == DType::bf16, "blend: dtype is ", name_of(x.dtype),
             "; it must be f32 or bf16");
  (x.dtype == DType::f32 ? blend_all<float> : blend_all<bf16>)(y, x, static_cast<float>(1 - alpha),
                                                               static_cast<float>(alpha));
}

[[maybe_unused]] const bool added = blend.add({"specification", DeviceKind::cpu, run_blend});

}  // namespace
}  // namespace hone
