// CPU bodies of the row ops: embedding_forward, embedding_backward, gather_rows, scatter_rows.
#include "kernels/elementwise/embedding.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "core/base/parallel_for.h"
#include "kernels/adds_once.h"
#include "kernels/check_shape.h"

namespace hone {
namespace {

constexpr int64_t rows_per_piece = 64;

void forward(Context&, Tensor y, Tensor table, Tensor ids, bool accumulate) {
  const int64_t rows = y.dim(0), dim = y.dim(1);
  check_shape(embedding_forward, "y", y, {rows, dim});
  check_shape(embedding_forward, "table", table, {table.dim(0), dim});
  check_shape(embedding_forward, "ids", ids, {rows}, DType::i32);
  check_indices(embedding_forward, "ids", ids, table.dim(0));
  parallel_for(rows, rows_per_piece, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* from = table.row<float>(ids.ptr<int32_t>()[r]);
      float* to = y.row<float>(r);
      for (int64_t i = 0; i < dim; ++i) to[i] = accumulate ? to[i] + from[i] : from[i];
    }
  });
}

void backward(Context&, Tensor dtable, Tensor dy, Tensor ids) {
  const int64_t rows = dy.dim(0), dim = dy.dim(1);
  check_shape(embedding_backward, "dy", dy, {rows, dim});
  check_shape(embedding_backward, "dtable", dtable, {dtable.dim(0), dim});
  check_shape(embedding_backward, "ids", ids, {rows}, DType::i32);
  check_indices(embedding_backward, "ids", ids, dtable.dim(0));
  const int32_t* id = ids.ptr<int32_t>();
  std::vector<int64_t> order(static_cast<size_t>(rows));  // rows of the same id are adjacent, in ascending order
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](int64_t row) { return id[row]; });
  constexpr int64_t columns_per_piece = 64;
  parallel_for(dim, columns_per_piece, [&](int64_t begin, int64_t end) {
    std::array<float, columns_per_piece> sum;
    for (size_t at = 0; at < order.size();) {
      const int32_t table_row = id[order[at]];
      sum.fill(0);
      for (; at < order.size() && id[order[at]] == table_row; ++at) {
        const float* from = dy.row<float>(order[at]);
        for (int64_t i = begin; i < end; ++i) sum[static_cast<size_t>(i - begin)] += from[i];
      }
      float* to = dtable.row<float>(table_row);
      for (int64_t i = begin; i < end; ++i) to[i] += sum[static_cast<size_t>(i - begin)];
    }
  });
}

void gather(Context&, Tensor y, Tensor x, Tensor rows) {
  const int64_t count = y.dim(0), dim = y.dim(1);
  check_shape(gather_rows, "y", y, {count, dim});
  check_shape(gather_rows, "x", x, {x.dim(0), dim});
  check_shape(gather_rows, "rows", rows, {count}, DType::i32);
  check_indices(gather_rows, "rows", rows, x.dim(0));
  for (int64_t r = 0; r < count; ++r) std::copy_n(x.row<float>(rows.ptr<int32_t>()[r]), dim, y.row<float>(r));
}

void scatter(Context& context, Tensor x, Tensor y, Tensor rows) {
  const int64_t count = y.dim(0), dim = y.dim(1);
  check_shape(scatter_rows, "y", y, {count, dim});
  check_shape(scatter_rows, "x", x, {x.dim(0), dim});
  check_shape(scatter_rows, "rows", rows, {count}, DType::i32);
  check_indices(scatter_rows, "rows", rows, x.dim(0));
  context.zero(x);
  for (int64_t r = 0; r < count; ++r) std::copy_n(y.row<float>(r), dim, x.row<float>(rows.ptr<int32_t>()[r]));
}

[[maybe_unused]] const bool added = embedding_forward.add({"specification", DeviceKind::cpu, forward}) &&
                                    embedding_backward.add({"specification", DeviceKind::cpu, backward}) &&
                                    gather_rows.add({"specification", DeviceKind::cpu, gather}) &&
                                    scatter_rows.add({"specification", DeviceKind::cpu, scatter}) &&
                                    declare_adds_once(embedding_backward, DeviceKind::cpu);

}  // namespace
}  // namespace hone
