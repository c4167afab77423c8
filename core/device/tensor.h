#pragma once
// Tensor: a view of device memory with dtype and shape. It owns nothing and goes by value; a Buffer or an Arena owns
// the bytes (core/device/device.h).
#include <array>
#include <initializer_list>
#include <span>

#include "core/base/check.h"
#include "core/device/dtype.h"

namespace hone {

// meta stores and computes nothing: a training step on it measures memory (a dry run; train/memory_plan.h).
enum class DeviceKind : uint8_t { cpu, cuda, meta };
constexpr std::string_view name_of(DeviceKind kind) {
  constexpr std::string_view names[] = {"cpu", "cuda", "meta"};
  return names[static_cast<size_t>(kind)];
}

// Row-major, up to four dims. Inner dims are contiguous. Successive indices of dim 0 are row_stride elements apart, so
// a range of columns is a view too. A default-constructed tensor is empty: an optional argument that is absent.
struct Tensor {
  void* data = nullptr;
  DType dtype = DType::f32;
  DeviceKind device = DeviceKind::cpu;
  int rank = 0;
  std::array<int64_t, 4> shape{};
  int64_t row_stride = 0;

  Tensor() = default;
  Tensor(void* bytes, DType type, DeviceKind kind, std::span<const int64_t> dims)
      : data(bytes), dtype(type), device(kind), rank(static_cast<int>(dims.size())) {
    HONE_CHECK(dims.size() <= 4, "tensor: ", dims.size(), " dims, at most 4");
    row_stride = rank > 0 ? 1 : 0;
    for (int i = 0; i < rank; ++i) {
      shape[static_cast<size_t>(i)] = dims[static_cast<size_t>(i)];
      if (i > 0) row_stride *= shape[static_cast<size_t>(i)];
    }
  }
  Tensor(void* bytes, DType type, DeviceKind kind, std::initializer_list<int64_t> dims)
      : Tensor(bytes, type, kind, std::span<const int64_t>(dims.begin(), dims.size())) {}

  explicit operator bool() const { return rank > 0; }
  // Negative dims count from the end.
  int64_t dim(int i) const { return shape[static_cast<size_t>(i < 0 ? rank + i : i)]; }
  int64_t size() const {
    int64_t n = rank > 0 ? 1 : 0;
    for (int i = 0; i < rank; ++i) n *= shape[static_cast<size_t>(i)];
    return n;
  }
  // Elements per index of dim 0.
  int64_t row_size() const {
    int64_t n = 1;
    for (int i = 1; i < rank; ++i) n *= shape[static_cast<size_t>(i)];
    return n;
  }
  bool contiguous() const { return row_stride == row_size() || (rank > 0 && shape[0] <= 1); }
  size_t bytes() const { return static_cast<size_t>(size()) * size_of(dtype); }
  std::span<const int64_t> dims() const { return {shape.data(), static_cast<size_t>(rank)}; }

  // T must be the dtype's type (checked in debug builds).
  template <class T>
  T* ptr() const {
    HONE_DCHECK(dtype_of<T>::value == dtype, "tensor: its dtype is ", name_of(dtype), ", accessed as ",
                name_of(dtype_of<T>::value));
    return static_cast<T*>(data);
  }
  template <class T>
  T* row(int64_t r) const {
    return ptr<T>() + r * row_stride;
  }
  template <class T>
  std::span<T> as() const {
    HONE_DCHECK(contiguous(), "tensor: a span needs contiguous rows");
    return {ptr<T>(), static_cast<size_t>(size())};
  }

  // Rows [begin, begin + count) of dim 0.
  Tensor rows(int64_t begin, int64_t count) const {
    HONE_DCHECK(begin >= 0 && count >= 0 && begin + count <= shape[0], "tensor: rows ", begin, "+", count, " of ",
                shape[0]);
    Tensor out = *this;
    out.shape[0] = count;
    if (data) out.data = static_cast<char*>(data) + static_cast<size_t>(begin * row_stride) * size_of(dtype);
    return out;
  }
  // Columns [begin, begin + count) of a two-dimensional tensor.
  Tensor columns(int64_t begin, int64_t count) const {
    HONE_DCHECK(rank == 2 && begin >= 0 && count >= 0 && begin + count <= shape[1], "tensor: columns ", begin, "+",
                count, " of ", shape[1]);
    Tensor out = *this;
    out.shape[1] = count;
    if (data) out.data = static_cast<char*>(data) + static_cast<size_t>(begin) * size_of(dtype);
    return out;
  }
  // The same memory with other dims. Without contiguous rows, dim 0 must stay.
  Tensor view(std::initializer_list<int64_t> dims) const {
    Tensor out(data, dtype, device, dims);
    HONE_CHECK(out.size() == size(), "tensor: a view of ", out.size(), " elements on ", size());
    if (!contiguous()) {
      HONE_CHECK(out.rank > 0 && out.shape[0] == shape[0], "tensor: a view of non-contiguous rows must keep dim 0");
      out.row_stride = row_stride;
    }
    return out;
  }
};

// A view of host memory that the caller keeps alive.
template <class T>
Tensor host_view(std::span<T> values) {
  return Tensor(const_cast<std::remove_const_t<T>*>(values.data()), dtype_of<std::remove_const_t<T>>::value,
                DeviceKind::cpu, {static_cast<int64_t>(values.size())});
}

}  // namespace hone
