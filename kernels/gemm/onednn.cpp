// The backward GEMMs on the CPU by oneDNN's sgemm. Its bits depend on its number of threads, so it always runs with
// one: the outputs are cut into parts by their shape only, and our thread pool runs the parts.
#include <dnnl.h>

#include "core/base/parallel_for.h"
#include "kernels/gemm/internal.h"

extern "C" void omp_set_num_threads(int count);  // libgomp, the runtime of oneDNN

namespace hone {
namespace {

// out (+)= op(a) . b, all row-major. a is [rows, inner], or [inner, rows] if transposed.
struct Matmul {
  Tensor out, a, b;
  bool transposed = false, accumulate = false;
  int64_t inner = 0;
};

void run_piece(const Matmul& p, int64_t row, int64_t rows, int64_t column, int64_t columns) {
  thread_local const bool one_thread [[maybe_unused]] = (omp_set_num_threads(1), true);
  const float* a = p.transposed ? p.a.ptr<float>() + row : p.a.row<float>(row);
  const dnnl_status_t status =
      dnnl_sgemm(p.transposed ? 'T' : 'N', 'N', rows, columns, p.inner, 1, a, p.a.row_stride, p.b.ptr<float>() + column,
                 p.b.row_stride, p.accumulate ? 1.0f : 0.0f, p.out.row<float>(row) + column, p.out.row_stride);
  HONE_CHECK(status == dnnl_success, "oneDNN: sgemm of ", rows, " x ", columns, " x ", p.inner, " returned status ",
             static_cast<int>(status));
}

// Equal parts of at most 256 x 512, smaller if there are too few for the threads, as long as a part is worth waking a
// thread.
struct Pieces {
  int64_t rows = 256, columns = 512, down = 0, across = 0;
  Pieces(int64_t R, int64_t C, int64_t inner) {
    constexpr int64_t enough = 8, smallest = int64_t{1} << 20;
    fit(R, C);
    while (down * across < enough && rows * columns * inner > 2 * smallest && std::max(rows, columns) > 32) {
      (rows > columns ? rows : columns) /= 2;
      fit(R, C);
    }
  }

 private:
  void fit(int64_t R, int64_t C) {
    constexpr int64_t multiple = 16;
    const auto even = [](int64_t size, int64_t& piece) {
      const int64_t count = (size + piece - 1) / piece;
      piece = ((size + count - 1) / count + multiple - 1) / multiple * multiple;
      return (size + piece - 1) / piece;
    };
    down = even(R, rows);
    across = even(C, columns);
  }
};

void run(Context& context, const Matmul& p) {
  const int64_t R = p.out.dim(0), C = p.out.dim(1);
  if (R == 0 || C == 0) return;
  if (p.inner == 0) {
    if (!p.accumulate) context.zero(p.out);
    return;
  }
  const Pieces pieces(R, C, p.inner);
  parallel_for(pieces.down * pieces.across, 1, [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      const int64_t row = piece / pieces.across * pieces.rows, column = piece % pieces.across * pieces.columns;
      run_piece(p, row, std::min(pieces.rows, R - row), column, std::min(pieces.columns, C - column));
    }
  });
}

void backward_input(Context& context, Tensor dx, Tensor dy, Tensor w) {
  check_gemm_backward_input(dx, dy, w);
  run(context, {.out = dx, .a = dy, .b = w, .inner = w.dim(0)});
}

void backward_weight(Context& context, GradTarget dw, Tensor dbias, Tensor dy, Tensor x) {
  check_gemm_backward_weight(dw, dbias, dy, x);
  run(context, {.out = dw.sum, .a = dy, .b = x, .transposed = true, .accumulate = dw.accumulate, .inner = x.dim(0)});
  if (!dbias) return;
  constexpr int64_t columns_at_a_time = 256;
  parallel_for(dbias.dim(0), columns_at_a_time, [&](int64_t begin, int64_t end) {
    for (int64_t m = 0; m < dy.dim(0); ++m)
      for (int64_t n = begin; n < end; ++n) dbias.ptr<float>()[n] += dy.row<float>(m)[n];
  });
}

[[maybe_unused]] const bool added = gemm_backward_input.add({"onednn", DeviceKind::cpu, backward_input, 10}) &&
                                    gemm_backward_weight.add({"onednn", DeviceKind::cpu, backward_weight, 10});

}  // namespace
}  // namespace hone
