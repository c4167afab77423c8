// CPU bodies of cast (every dtype) and add_into (f32, f64).
#include "kernels/elementwise/cast.h"

#include "core/base/parallel_for.h"
#include "kernels/cpu/float_formats.h"

namespace hone {
namespace {

constexpr int64_t per_piece = int64_t{1} << 14;

// Reads or writes an element of one stored type as double, which represents every f32, bf16 and f16 exactly.
template <class T>
double read(T x) {
  return static_cast<double>(to_float(x));
}
template <>
double read(float x) {
  return static_cast<double>(x);
}
template <>
double read(double x) {
  return x;
}

// f64 to 16 bits with one rounding: through a float rounded to odd, which keeps what the second rounding needs (Boldo
// and Melquiond 2008).
float round_to_odd(double x) {
  const float nearest = static_cast<float>(x);
  if (static_cast<double>(nearest) == x || !std::isfinite(nearest)) return nearest;
  const float toward_zero =
      std::fabs(static_cast<double>(nearest)) > std::fabs(x) ? std::nextafterf(nearest, 0.0f) : nearest;
  uint32_t bits;
  std::memcpy(&bits, &toward_zero, 4);
  bits |= 1u;
  float out;
  std::memcpy(&out, &bits, 4);
  return out;
}
template <class T>
T written(double x);
template <>
float written(double x) {
  return static_cast<float>(x);
}
template <>
double written(double x) {
  return x;
}
template <>
bf16 written(double x) {
  return to_bf16(round_to_odd(x));
}
template <>
f16 written(double x) {
  return to_f16(round_to_odd(x));
}

template <class To, class From>
void convert(Tensor y, Tensor x) {
  const int64_t columns = x.row_size();
  const auto convert_row = [&](int64_t r, int64_t begin, int64_t end) {
    const From* in = static_cast<const From*>(x.data) + r * x.row_stride;
    To* out = static_cast<To*>(y.data) + r * y.row_stride;
    for (int64_t i = begin; i < end; ++i) out[i] = written<To>(read(in[i]));
  };
  if (x.contiguous() && y.contiguous())
    return parallel_for(x.size(), per_piece, [&](int64_t begin, int64_t end) { convert_row(0, begin, end); });
  for (int64_t r = 0; r < x.dim(0); ++r) convert_row(r, 0, columns);
}

using Convert = void (*)(Tensor, Tensor);
template <class To>
Convert conversion_from(DType from) {
  switch (from) {
    case DType::f32:
      return convert<To, float>;
    case DType::bf16:
      return convert<To, bf16>;
    case DType::f16:
      return convert<To, f16>;
    case DType::f64:
      return convert<To, double>;
    default:
      fail("cast: from ", name_of(from), "; it takes f32, bf16, f16 and f64");
  }
}
Convert conversion(DType to, DType from) {
  switch (to) {
    case DType::f32:
      return conversion_from<float>(from);
    case DType::bf16:
      return conversion_from<bf16>(from);
    case DType::f16:
      return conversion_from<f16>(from);
    case DType::f64:
      return conversion_from<double>(from);
    default:
      fail("cast: to ", name_of(to), "; it makes f32, bf16, f16 and f64");
  }
}

void run_cast(Context&, Tensor y, Tensor x) {
  HONE_CHECK(y.size() == x.size() && y.rank == x.rank && (x.rank == 0 || y.dim(0) == x.dim(0)), "cast: x has ",
             x.size(), " elements, y has ", y.size(), "; their shapes must be equal");
  conversion(y.dtype, x.dtype)(y, x);
}

template <class T>
void add_all(Tensor y, Tensor x) {
  T* out = y.ptr<T>();
  const T* in = x.ptr<T>();
  parallel_for(x.size(), per_piece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[i] += in[i];
  });
}

void run_add(Context&, Tensor y, Tensor x) {
  HONE_CHECK(y.dtype == x.dtype && y.size() == x.size() && y.contiguous() && x.contiguous(), "add_into: x has ",
             x.size(), " elements of ", name_of(x.dtype), ", y has ", y.size(), " of ", name_of(y.dtype),
             "; they must be equal, and both contiguous");
  HONE_CHECK(x.dtype == DType::f32 || x.dtype == DType::f64, "add_into: dtype is ", name_of(x.dtype),
             "; it must be f32 or f64");
  (x.dtype == DType::f32 ? add_all<float> : add_all<double>)(y, x);
}

[[maybe_unused]] const bool added =
    cast.add({"specification", DeviceKind::cpu, run_cast}) && add_into.add({"specification", DeviceKind::cpu, run_add});

}  // namespace
}  // namespace hone
