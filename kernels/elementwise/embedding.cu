// CUDA bodies of the row ops: embedding_forward, gather_rows and scatter_rows (kernels/cuda/elementwise.cuh), and
// embedding_backward. Indices are on the device and cannot be checked on the host: a bad index reads a row of NaN and
// writes nothing.
//
// embedding_backward sorts (id, row) keys with CUB; then a warp adds the rows of one id.
//
// Use       embedding_backward, every dtype and shape.
// Tile      32 * N columns (N elements of 8 bytes in all, or 1 if unaligned) of one id per warp. few_kernel: ids with
//           up to 32 rows, one sorted position per warp. many_kernel: ids with more, 32 sorted positions per warp.
// Roles     4 warps per block, all alike. key_kernel: one row per thread.
// Pipeline  few_kernel: 8 rows in registers. many_kernel: a ring of 6 batches of 8 rows (cp.async).
// Smem      many_kernel: static, 6 * 8 * 128 vectors: 48 KB (8-byte vectors). Others: none.
// Numerics  f32; adds the rows of an id in ascending order, from zero, then adds the sum to dtable once.
// PDL       none.
// Limits    none.
#include <cub/device/device_radix_sort.cuh>

#include "kernels/adds_once.h"
#include "kernels/check_shape.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/elementwise/embedding.h"

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

void gather_into(Context& context, const OpBase& op, Tensor y, Tensor x, const char* x_name, Tensor rows,
                 const char* rows_name, bool accumulate) {
  const int64_t count = y.dim(0), dim = y.dim(1);
  check_shape(op, "y", y, {count, dim}, y.dtype);
  check_shape(op, x_name, x, {x.dim(0), dim}, y.dtype);
  check_shape(op, rows_name, rows, {count}, DType::i32);
  with_storage(op, y.dtype, [&](auto type) {
    using T = decltype(type);
    constexpr int N = vec_size<T>;
    launch_elementwise<N, true>(cuda_stream(context), {count, dim}, packs_of(N, count, y) && packs_of(N, x.dim(0), x),
                                Gather<T>{numbers<T>(y), numbers<const T>(x), numbers<const int32_t>(rows),
                                          y.row_stride, x.row_stride, x.dim(0), accumulate});
  });
  check_launch(op);
}
void forward(Context& context, Tensor y, Tensor table, Tensor ids, bool accumulate) {
  gather_into(context, embedding_forward, y, table, "table", ids, "ids", accumulate);
}
void gather(Context& context, Tensor y, Tensor x, Tensor rows) {
  gather_into(context, gather_rows, y, x, "x", rows, "rows", false);
}

void scatter(Context& context, Tensor x, Tensor y, Tensor rows) {
  const int64_t count = y.dim(0), dim = y.dim(1);
  check_shape(scatter_rows, "y", y, {count, dim}, x.dtype);
  check_shape(scatter_rows, "x", x, {x.dim(0), dim}, x.dtype);
  check_shape(scatter_rows, "rows", rows, {count}, DType::i32);
  if (x.size() > 0)
    HONE_CUDA_CHECK(cudaMemset2DAsync(x.data, static_cast<size_t>(x.row_stride) * size_of(x.dtype), 0,
                                      static_cast<size_t>(dim) * size_of(x.dtype), static_cast<size_t>(x.dim(0)),
                                      cuda_stream(context)));
  with_storage(scatter_rows, x.dtype, [&](auto type) {
    using T = decltype(type);
    constexpr int N = vec_size<T>;
    launch_elementwise<N, true>(cuda_stream(context), {count, dim}, packs_of(N, count, y) && packs_of(N, x.dim(0), x),
                                Scatter<T>{numbers<T>(x), numbers<const T>(y), numbers<const int32_t>(rows),
                                           x.row_stride, y.row_stride, x.dim(0)});
  });
  check_launch(scatter_rows);
}

constexpr int threads = 128, warps = threads / 32;
constexpr int64_t many = 32;  // ids with more rows than this are left to many_kernel

// Packs (id, t) into one key. Ids outside the table sort last.
__global__ void key_kernel(uint64_t* keys, const int32_t* ids, int64_t count, int64_t limit) {
  const int64_t t = int64_t{blockIdx.x} * threads + threadIdx.x;
  if (t >= count) return;
  const int64_t id = ids[t];
  keys[t] = static_cast<uint64_t>(id >= 0 && id < limit ? id : limit) << 32 | static_cast<uint64_t>(t);
}

// The sorted keys and the arrays of the reduction.
template <class T>
struct Sums {
  float* dtable;
  const T* dy;
  const uint64_t* keys;
  int64_t count, limit, dim, dtable_stride, dy_stride;
  __device__ uint64_t id(int64_t place) const { return place >= 0 && place < count ? keys[place] >> 32 : ~uint64_t{0}; }
  __device__ bool begins(int64_t place) const {
    return place < count && id(place) < static_cast<uint64_t>(limit) && id(place - 1) != id(place);
  }
  __device__ bool has_many(int64_t place) const { return id(place) == id(place + many); }
};

// to += sum
template <int N>
__device__ void add_numbers(float* to, const float (&sum)[N]) {
  float total[N];
  load_numbers(total, to);
#pragma unroll
  for (int i = 0; i < N; ++i) total[i] += sum[i];
  store_numbers(to, total);
}

// One warp per sorted position and 32 * N columns. It works if an id with at most `many` rows begins there.
template <int N, class T>
__global__ void __launch_bounds__(threads) few_kernel(Sums<T> s) {
  constexpr int R = 8;  // rows in flight
  const int lane = threadIdx.x % 32;
  const int64_t place = int64_t{blockIdx.x} * warps + threadIdx.x / 32, column = (int64_t{blockIdx.y} * 32 + lane) * N;
  if (!s.begins(place) || s.has_many(place)) return;
  // The id's rows are the sorted positions with the same id; each lane holds one key.
  const uint64_t key = place + lane < s.count ? s.keys[place + lane] : ~uint64_t{0},
                 id = __shfl_sync(0xffffffffu, key, 0) >> 32;
  const int rows = __popc(__ballot_sync(0xffffffffu, key >> 32 == id));
  const bool live = column < s.dim;
  float* const to = s.dtable + static_cast<int64_t>(id) * s.dtable_stride + column;
  float sum[N] = {};
  // Load R rows, then add them in order.
  for (int first = 0; first < rows; first += R) {
    Pack<T, N> pack[R];
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const uint32_t t = __shfl_sync(0xffffffffu, static_cast<uint32_t>(key), (first + r) % 32);
      if (live && first + r < rows)
        pack[r] = *reinterpret_cast<const Pack<T, N>*>(s.dy + int64_t{t} * s.dy_stride + column);
    }
#pragma unroll
    for (int r = 0; r < R; ++r)
      if (live && first + r < rows)
#pragma unroll
        for (int i = 0; i < N; ++i) sum[i] += to_f32(pack[r].value[i]);
  }
  if (live) add_numbers(to, sum);
}

// One warp per 32 sorted positions: at most one id with more than `many` rows begins there. Its rows pass through a
// ring in shared memory; each lane reads what it has copied itself. (Registers refilled one by one would wait for the
// latest load each time: six scoreboard barriers serve all loads of a warp.)
template <int N, class T>
__global__ void __launch_bounds__(threads) many_kernel(Sums<T> s) {
  constexpr int R = 8, batches = 6;
  __shared__ Pack<T, N> ring[batches * R][threads];
  const int lane = threadIdx.x % 32;
  const int64_t first = (int64_t{blockIdx.x} * warps + threadIdx.x / 32) * 32,
                column = (int64_t{blockIdx.y} * 32 + lane) * N;
  const unsigned found = __ballot_sync(0xffffffffu, s.begins(first + lane) && s.has_many(first + lane));
  if (!found) return;
  int64_t place = first + __ffs(found) - 1;
  const uint64_t id = s.id(place);
  const bool live = column < s.dim;
  const T* const from = s.dy + (live ? column : 0);
  Pack<T, N>* const own = &ring[0][threadIdx.x];
  const auto keys_from = [&](int64_t at) { return at + lane < s.count ? s.keys[at + lane] : ~uint64_t{0}; };
  const auto fetch_row = [&](Pack<T, N>* to, uint64_t key, int r) {
    const uint32_t t = __shfl_sync(0xffffffffu, static_cast<uint32_t>(key), r);
    if constexpr (sizeof(*to) == 8)
      asm volatile(
          "cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))),
          "l"(from + t * s.dy_stride)
          : "memory");
    else
      *to = *reinterpret_cast<const Pack<T, N>*>(from + t * s.dy_stride);
  };
  uint64_t key = 0, next_key = keys_from(place);
  int64_t ahead = 0;  // rows found and not yet fetched
  int window = 0, fetch_slot = 0, add_slot = 0;
  int64_t rows = 0;  // rows found and not yet added
  const auto fetch = [&] {
    if (window == 0) {
      key = next_key;
      next_key = keys_from(place += 32);
      const int more = __popc(__ballot_sync(0xffffffffu, key >> 32 == id));
      ahead += more;
      rows += more;
    }
    Pack<T, N>* const to = own + fetch_slot * R * threads;
    if (ahead >= R) {
#pragma unroll
      for (int r = 0; r < R; ++r) fetch_row(to + r * threads, key, window + r);
    } else {
      for (int r = 0; r < ahead; ++r) fetch_row(to + r * threads, key, window + r);
    }
    cp_async_commit();
    ahead = ahead > R ? ahead - R : 0;
    window = (window + R) % 32;
    fetch_slot = fetch_slot + 1 < batches ? fetch_slot + 1 : 0;
  };
  // Fill the ring.
  for (int batch = 0; batch < batches - 1; ++batch) fetch();
  float* const to = s.dtable + static_cast<int64_t>(id) * s.dtable_stride + column;
  float sum[N] = {};
  // Fetch a batch ahead, then add the oldest one in order.
  for (; rows > 0; rows -= R) {
    fetch();
    cp_async_wait<batches - 1>();
    const Pack<T, N>* const added = own + add_slot * R * threads;
    const auto add = [&](const Pack<T, N>& pack) {
#pragma unroll
      for (int i = 0; i < N; ++i) sum[i] += to_f32(pack.value[i]);
    };
    if (rows >= R) {
      Pack<T, N> pack[R];
#pragma unroll
      for (int r = 0; r < R; ++r) pack[r] = added[r * threads];
#pragma unroll
      for (int r = 0; r < R; ++r) add(pack[r]);
    } else {
      for (int r = 0; r < rows; ++r) add(added[r * threads]);
    }
    add_slot = add_slot + 1 < batches ? add_slot + 1 : 0;
  }
  if (live) add_numbers(to, sum);
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
  key_kernel<<<static_cast<unsigned>((count + threads - 1) / threads), threads, 0, stream>>>(
      keys, numbers<const int32_t>(ids), count, limit);
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
    const Sums<T> sums{numbers<float>(dtable), numbers<const T>(dy), sorted, count, limit, dim,
                       dtable.row_stride,      dy.row_stride};
    const auto add = [&]<int N>() {
      const auto blocks = [&](int64_t places) {
        return dim3(static_cast<unsigned>((count + places - 1) / places),
                    static_cast<unsigned>((dim + 32 * N - 1) / (32 * N)));
      };
      few_kernel<N><<<blocks(warps), threads, 0, stream>>>(sums);
      if (count > many) many_kernel<N><<<blocks(32 * warps), threads, 0, stream>>>(sums);
    };
    constexpr int N = 8 / sizeof(T);
    if (dim % N == 0 && packs_of(N, limit, dtable) && packs_of(N, count, dy))
      add.template operator()<N>();
    else
      add.template operator()<1>();
  });
  check_launch(embedding_backward);
}

[[maybe_unused]] const bool added = embedding_forward.add({"rows", DeviceKind::cuda, forward}) &&
                                    embedding_backward.add({"sorted", DeviceKind::cuda, backward}) &&
                                    gather_rows.add({"rows", DeviceKind::cuda, gather}) &&
                                    scatter_rows.add({"rows", DeviceKind::cuda, scatter}) &&
                                    declare_adds_once(embedding_backward, DeviceKind::cuda);

}  // namespace
}  // namespace hone
