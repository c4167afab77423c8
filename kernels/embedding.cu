// Indices lie on the device, where no body can refuse them: a row that a bad index asks for is NaN, a row that it sends is dropped.
#include <cub/device/device_radix_sort.cuh>

#include "kernels/check_shape.h"
#include "kernels/elementwise.cuh"
#include "kernels/embedding.h"

namespace hone {
namespace {

template <class T>
struct Gather {
  T* y;
  const T* x;
  const int32_t* rows;
  int64_t y_stride, x_stride, limit;
  bool accumulate;
  template <int N>
  __device__ void run(int64_t row, int64_t column) const {
    const int64_t from = rows[row];
    float value[N];
    if (from >= 0 && from < limit) {
      load_numbers(value, x + from * x_stride + column);
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i) value[i] = __int_as_float(0x7fffffff);
    }
    T* to = y + row * y_stride + column;
    if (accumulate) {
      float before[N];
      load_numbers(before, to);
#pragma unroll
      for (int i = 0; i < N; ++i) value[i] += before[i];
    }
    store_numbers(to, value);
  }
};

template <class T>
struct Scatter {
  T* x;
  const T* y;
  const int32_t* rows;
  int64_t x_stride, y_stride, limit;
  template <int N>
  __device__ void run(int64_t row, int64_t column) const {
    const int64_t to = rows[row];
    if (to < 0 || to >= limit) return;
    float value[N];
    load_numbers(value, y + row * y_stride + column);
    store_numbers(x + to * x_stride + column, value);
  }
};

void gather_into(Context& context, const OpBase& op, Tensor y, Tensor x, const char* x_name, Tensor rows, const char* rows_name, bool accumulate) {
  const int64_t count = y.dim(0), dim = y.dim(1);
  check_shape(op, "y", y, {count, dim}, y.dtype);
  check_shape(op, x_name, x, {x.dim(0), dim}, y.dtype);
  check_shape(op, rows_name, rows, {count}, DType::i32);
  with_storage(op, y.dtype, [&](auto type) {
    using T = decltype(type);
    constexpr int N = pack_size<T>;
    launch_elementwise<N>(
        cuda_stream(context), {count, dim}, packs_of(N, count, y) && packs_of(N, x.dim(0), x),
        Gather<T>{numbers<T>(y), numbers<const T>(x), numbers<const int32_t>(rows), y.row_stride, x.row_stride, x.dim(0), accumulate});
  });
  check_launch(op);
}
void forward(Context& context, Tensor y, Tensor table, Tensor ids, bool accumulate) {
  gather_into(context, embedding_forward, y, table, "table", ids, "ids", accumulate);
}
void gather(Context& context, Tensor y, Tensor x, Tensor rows) { gather_into(context, gather_rows, y, x, "x", rows, "rows", false); }

void scatter(Context& context, Tensor x, Tensor y, Tensor rows) {
  const int64_t count = y.dim(0), dim = y.dim(1);
  check_shape(scatter_rows, "y", y, {count, dim}, x.dtype);
  check_shape(scatter_rows, "x", x, {x.dim(0), dim}, x.dtype);
  check_shape(scatter_rows, "rows", rows, {count}, DType::i32);
  if (x.size() > 0)
    HONE_CUDA_CHECK(cudaMemset2DAsync(x.data, static_cast<size_t>(x.row_stride) * size_of(x.dtype), 0, static_cast<size_t>(dim) * size_of(x.dtype),
                                      static_cast<size_t>(x.dim(0)), cuda_stream(context)));
  with_storage(scatter_rows, x.dtype, [&](auto type) {
    using T = decltype(type);
    constexpr int N = pack_size<T>;
    launch_elementwise<N>(cuda_stream(context), {count, dim}, packs_of(N, count, y) && packs_of(N, x.dim(0), x),
                          Scatter<T>{numbers<T>(x), numbers<const T>(y), numbers<const int32_t>(rows), x.row_stride, y.row_stride, x.dim(0)});
  });
  check_launch(scatter_rows);
}

constexpr int threads = 128, rows_in_flight = 16;

// (id, t) as one number; ids outside the table come last.
__global__ void key_kernel(uint64_t* keys, const int32_t* ids, int64_t count, int64_t limit) {
  const int64_t t = int64_t{blockIdx.x} * threads + threadIdx.x;
  if (t >= count) return;
  const int64_t id = ids[t];
  keys[t] = static_cast<uint64_t>(id >= 0 && id < limit ? id : limit) << 32 | static_cast<uint64_t>(t);
}

// A block for each place in the sorted keys; the one where an id begins adds that id's rows one after another.
template <class T, int N>
__global__ void __launch_bounds__(threads) add_kernel(float* dtable, const T* dy, const uint64_t* keys, int64_t count, int64_t limit, int64_t dim,
                                                      int64_t dtable_stride, int64_t dy_stride) {
  const int64_t place = blockIdx.x, column = (int64_t{blockIdx.y} * threads + threadIdx.x) * N;
  const uint64_t id = keys[place] >> 32;
  if (id >= static_cast<uint64_t>(limit) || (place > 0 && keys[place - 1] >> 32 == id)) return;
  const bool live = column < dim;
  float* to = dtable + static_cast<int64_t>(id) * dtable_stride + column;
  float sum[N];
  if (live) load_numbers(sum, to);
  const int lane = threadIdx.x % 32;
  for (int64_t first = place;; first += rows_in_flight) {
    const uint64_t key = lane < rows_in_flight && first + lane < count ? keys[first + lane] : ~uint64_t{0};
    const int found = __popc(__ballot_sync(0xffffffffu, key >> 32 == id));
    Pack<T, N> pack[rows_in_flight];
#pragma unroll
    for (int r = 0; r < rows_in_flight; ++r) {
      const uint32_t t = __shfl_sync(0xffffffffu, static_cast<uint32_t>(key), r);
      if (live && r < found) pack[r] = *reinterpret_cast<const Pack<T, N>*>(dy + int64_t{t} * dy_stride + column);
    }
#pragma unroll
    for (int r = 0; r < rows_in_flight; ++r)
      if (live && r < found)
#pragma unroll
        for (int i = 0; i < N; ++i) sum[i] += to_f32(pack[r].value[i]);
    if (found < rows_in_flight) break;
  }
  if (live) store_numbers(to, sum);
}

void backward(Context& context, Tensor dtable, Tensor dy, Tensor ids) {
  const int64_t count = dy.dim(0), dim = dy.dim(1), limit = dtable.dim(0);
  check_shape(embedding_backward, "dy", dy, {count, dim}, dy.dtype);
  check_shape(embedding_backward, "dtable", dtable, {limit, dim});
  check_shape(embedding_backward, "ids", ids, {count}, DType::i32);
  if (count == 0 || dim == 0) return;
  const ScratchScope scope(context);
  const cudaStream_t stream = cuda_stream(context);
  const auto take_keys = [&] { return static_cast<uint64_t*>(context.scratch().take(DType::f64, {count}).data); };
  uint64_t *keys = take_keys(), *sorted = take_keys();
  key_kernel<<<static_cast<unsigned>((count + threads - 1) / threads), threads, 0, stream>>>(keys, numbers<const int32_t>(ids), count, limit);
  int bits = 1;
  while (limit >> bits) ++bits;
  const auto sort = [&](void* memory, size_t& bytes) {
    HONE_CUDA_CHECK(cub::DeviceRadixSort::SortKeys(memory, bytes, keys, sorted, count, 32, 32 + bits, stream));
  };
  size_t bytes = 0;
  sort(nullptr, bytes);
  sort(context.scratch().take(DType::f32, {static_cast<int64_t>(bytes / sizeof(float) + 1)}).data, bytes);
  with_storage(embedding_backward, dy.dtype, [&](auto type) {
    using T = decltype(type);
    const auto add = [&]<int N>() {
      const dim3 blocks(static_cast<unsigned>(count), static_cast<unsigned>((dim + threads * N - 1) / (threads * N)));
      add_kernel<T, N>
          <<<blocks, threads, 0, stream>>>(numbers<float>(dtable), numbers<const T>(dy), sorted, count, limit, dim, dtable.row_stride, dy.row_stride);
    };
    if (dim % 4 == 0 && packs_of(4, limit, dtable) && packs_of(4, count, dy))
      add.template operator()<4>();
    else
      add.template operator()<1>();
  });
  check_launch(embedding_backward);
}

[[maybe_unused]] const bool added = embedding_forward.add({"rows", DeviceKind::cuda, forward}) &&
                                    embedding_backward.add({"sorted", DeviceKind::cuda, backward}) &&
                                    gather_rows.add({"rows", DeviceKind::cuda, gather}) && scatter_rows.add({"rows", DeviceKind::cuda, scatter});

}  // namespace
}  // namespace hone
