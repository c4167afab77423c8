// GEMMs by cuBLASLt: the backward ops, and gemm_forward with fast numerics. The heuristic is queried once per problem
// and its choice is cached. Split-K partial sums are reduced in a workspace in a fixed order.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>

#include "core/device/cuda_check.h"
#include "core/device/cuda_facts.h"
#include "kernels/adds_once.h"
#include "kernels/check_shape.h"
#include "kernels/cuda/sanitizer.h"
#include "kernels/gemm/cublaslt_library.h"
#include "kernels/gemm/internal.h"

namespace hone {
namespace {

void check(cublasStatus_t status, const char* call) {
  HONE_CHECK(status == CUBLAS_STATUS_SUCCESS, "cuBLASLt: ", cublaslt().get_status_name(status), " in ", call);
}
#define HONE_CUBLAS_CHECK(call) check(call, #call)

cudaDataType_t type_of(DType dtype) { return dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F; }

// cuBLASLt's matrices are column-major: our [rows, columns] is its [columns, rows]. In our order, d [n, m] = op(b) .
// op(a) + c.
struct Matmul {
  Tensor a, b, c, d;
  bool transpose_a = false, transpose_b = false, add_c = false;
  Tensor bias{};
  int64_t m = 0, n = 0, k = 0;
};

using Key = std::array<int64_t, 15>;
struct Choice {
  cublasLtMatmulAlgo_t algorithm{};
  size_t workspace = 0;
};

// The largest power of two up to 256 that divides the address. The heuristic assumes 256 if it is not told otherwise.
int64_t alignment_of(const Tensor& x) {
  return int64_t{1} << std::min(std::countr_zero(reinterpret_cast<uintptr_t>(x.data)), 8);
}

cublasLtHandle_t handle() {
  static std::mutex mutex;
  static std::map<int, cublasLtHandle_t> handles;  // never destroyed: they live as long as the process
  int device = 0;
  HONE_CUDA_CHECK(cudaGetDevice(&device));
  const std::scoped_lock lock(mutex);
  cublasLtHandle_t& found = handles[device];
  if (!found) {
    const cublasStatus_t status = cublaslt().create(&found);
    HONE_CHECK(status == CUBLAS_STATUS_SUCCESS, "cuBLASLt: ", cublaslt().get_status_name(status), " in cublasLtCreate",
               forced_ptx_advice(std::getenv("CUDA_FORCE_PTX_JIT")));
  }
  return found;
}

struct Descriptors {
  cublasLtMatmulDescOpaque_t product{};
  cublasLtMatrixLayoutOpaque_t a{}, b{}, c{}, d{};

  explicit Descriptors(const Matmul& p) {
    HONE_CUBLAS_CHECK(cublaslt().matmul_desc_init(&product, sizeof product, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    set(CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (p.bias) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(p.bias.data));
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(p.bias.dtype));
    }
    layout(a, p.a);
    layout(b, p.b);
    layout(c, p.c);
    layout(d, p.d);
  }
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, T value) {
    HONE_CUBLAS_CHECK(cublaslt().set_matmul_desc(&product, attribute, &value, sizeof value));
  }
  static void layout(cublasLtMatrixLayoutOpaque_t& to, const Tensor& x) {
    HONE_CUBLAS_CHECK(cublaslt().matrix_layout_init(&to, sizeof to, type_of(x.dtype), static_cast<uint64_t>(x.dim(1)),
                                                    static_cast<uint64_t>(x.dim(0)), std::max(x.row_stride, x.dim(1))));
  }
};

std::optional<Choice> query_heuristic(const Matmul& p, Descriptors& of) {
  cublasLtMatmulPreferenceOpaque_t preference{};
  HONE_CUBLAS_CHECK(cublaslt().preference_init(&preference, sizeof preference));
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    HONE_CUBLAS_CHECK(cublaslt().set_preference(&preference, attribute, &value, sizeof value));
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{64} << 20);
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(alignment_of(p.a)));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(alignment_of(p.b)));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(alignment_of(p.c)));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(alignment_of(p.d)));
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  const cublasStatus_t status =
      cublaslt().get_heuristic(handle(), &of.product, &of.a, &of.b, &of.c, &of.d, &preference, 1, &result, &found);
  if (status != CUBLAS_STATUS_SUCCESS || found == 0) return std::nullopt;
  return Choice{result.algo, result.workspaceSize};
}

// Returns the cached choice for p, or nullopt if cuBLASLt does not support it. It does not depend on add_c: a product
// that writes a gradient has the bits of one that adds.
std::optional<Choice> choose(const Matmul& p, Descriptors& of) {
  static std::mutex mutex;
  static std::map<Key, std::optional<Choice>> choices;
  int device = 0;
  HONE_CUDA_CHECK(cudaGetDevice(&device));
  const auto kind = [](const Tensor& x) { return static_cast<int64_t>(x.dtype) * 512 + alignment_of(x); };
  const Key key{
      p.m,       p.n,       p.k,       p.a.row_stride, p.b.row_stride, p.c.row_stride, p.d.row_stride,
      kind(p.a), kind(p.b), kind(p.c), kind(p.d),      p.transpose_a,  p.transpose_b,  p.bias ? kind(p.bias) : -1,
      device};
  const std::scoped_lock lock(mutex);
  const auto place = choices.find(key);
  return place != choices.end() ? place->second : choices.emplace(key, query_heuristic(p, of)).first->second;
}

bool multiply(Context& context, const Matmul& p) {
  Descriptors of(p);
  const std::optional<Choice> choice = choose(p, of);
  if (!choice) return false;
  const ScratchScope scope(context);
  Tensor workspace;
  if (choice->workspace) workspace = context.scratch().take(DType::u8, {static_cast<int64_t>(choice->workspace)});
  mark_initialized(context, workspace);  // before the call: its second kernel reads the workspace
  const float one = 1, c_factor = p.add_c ? 1.0f : 0.0f;
  HONE_CUBLAS_CHECK(cublaslt().matmul(handle(), &of.product, &one, p.a.data, &of.a, p.b.data, &of.b, &c_factor,
                                      p.c.data, &of.c, p.d.data, &of.d, &choice->algorithm, workspace.data,
                                      choice->workspace, static_cast<cudaStream_t>(context.stream())));
  if (!p.add_c || p.c.data != p.d.data) mark_initialized(context, p.d);
  return true;
}

void check_dtype(const OpBase& op, DType dtype) {
  HONE_CHECK(dtype == DType::f32 || dtype == DType::bf16, op.name(), ": dtype is ", name_of(dtype),
             "; it must be f32 or bf16 on cuda");
}

void zero_rows(Context& context, const Tensor& x) {
  HONE_CUDA_CHECK(cudaMemset2DAsync(x.data, static_cast<size_t>(x.row_stride) * size_of(x.dtype), 0,
                                    static_cast<size_t>(x.row_size()) * size_of(x.dtype), static_cast<size_t>(x.dim(0)),
                                    static_cast<cudaStream_t>(context.stream())));
}

void backward_input(Context& context, Tensor dx, Tensor dy, Tensor w) {
  const int64_t M = dy.dim(0), N = w.dim(0), K = w.dim(1);
  const OpBase& op = gemm_backward_input;
  check_dtype(op, w.dtype);
  check_shape(op, "w", w, {N, K}, w.dtype);
  check_shape(op, "dy", dy, {M, N}, w.dtype);
  check_shape(op, "dx", dx, {M, K}, dx.dtype == DType::f32 ? DType::f32 : w.dtype);
  if (dx.size() == 0) return;
  if (N == 0) return zero_rows(context, dx);
  const bool done = multiply(context, {.a = w, .b = dy, .c = dx, .d = dx, .m = K, .n = M, .k = N});
  HONE_CHECK(done, op.name(), ": cuBLASLt has no GEMM of M = ", M, ", N = ", N, ", K = ", K,
             " for these dtypes and alignments");
}

void backward_weight(Context& context, GradTarget dw, Tensor dbias, Tensor dy, Tensor x) {
  const int64_t M = x.dim(0), N = dy.dim(1), K = x.dim(1);
  const OpBase& op = gemm_backward_weight;
  check_dtype(op, x.dtype);
  check_shape(op, "x", x, {M, K}, x.dtype);
  check_shape(op, "dy", dy, {M, N}, x.dtype);
  check_shape(op, "dw", dw.sum, {N, K});
  check_optional(op, "dbias", dbias, {N});
  if (M == 0) return dw.add_nothing(context);
  if (dbias) add_column_sums(context, op, dbias, dy);
  if (dw.sum.size() == 0) return;
  const bool done = multiply(
      context,
      {.a = x, .b = dy, .c = dw.sum, .d = dw.sum, .transpose_b = true, .add_c = dw.accumulate, .m = K, .n = N, .k = M});
  HONE_CHECK(done, op.name(), ": cuBLASLt has no GEMM of M = ", M, ", N = ", N, ", K = ", K,
             " for these dtypes and alignments");
}

[[maybe_unused]] const bool added = gemm_backward_input.add({"cublaslt", DeviceKind::cuda, backward_input}) &&
                                    gemm_backward_weight.add({"cublaslt", DeviceKind::cuda, backward_weight}) &&
                                    declare_adds_once(gemm_backward_weight, DeviceKind::cuda);

}  // namespace

void check_gemm_forward_cuda(const GemmForward& args) {
  const int64_t M = args.x.dim(0), N = args.w.dim(0), K = args.w.dim(1);
  const auto wide = [&](const Tensor& t) { return t.dtype == DType::f32 ? DType::f32 : DType::bf16; };
  check_dtype(gemm_forward, args.x.dtype);
  check_shape(gemm_forward, "w", args.w, {N, K}, args.x.dtype);
  check_shape(gemm_forward, "x", args.x, {M, K}, args.x.dtype);
  check_shape(gemm_forward, "y", args.y, {M, N}, args.y.dtype == DType::f32 ? DType::f32 : args.x.dtype);
  check_optional(gemm_forward, "bias", args.bias, {N}, wide(args.bias));
  check_optional(gemm_forward, "residual", args.residual, {M, N}, wide(args.residual));
}

bool run_gemm_forward_fast(Context& context, const GemmForward& args) {
  const int64_t M = args.x.dim(0), N = args.w.dim(0), K = args.w.dim(1);
  if (context.numerics() != Numerics::fast || K == 0 || args.y.size() == 0) return false;
  if ((args.bias && args.bias.dtype != args.y.dtype) || (args.residual && args.residual.dtype != args.y.dtype))
    return false;
  if (!cublaslt_if_present()) return false;
  return multiply(context, {.a = args.w,
                            .b = args.x,
                            .c = args.residual ? args.residual : args.y,
                            .d = args.y,
                            .transpose_a = true,
                            .add_c = static_cast<bool>(args.residual),
                            .bias = args.bias,
                            .m = N,
                            .n = M,
                            .k = K});
}

}  // namespace hone
