// Argument checks that the CPU and CUDA bodies of qkv_forward and qkv_backward share.
#include "kernels/rope/qkv_args.h"

#include "kernels/check_shape.h"

namespace hone {
namespace {

void check_read_indices(const OpBase& op, const char* name, const Tensor& indices, int64_t limit) {
  if (indices.device == DeviceKind::cpu) check_indices(op, name, indices, limit);
}

void check_common(const OpBase& op, const Tensor& qkv, const Tensor& positions, const Tensor& cos_sin,
                  const Tensor& q_norm, const Tensor& k_norm, const QkvShape& shape, DType dtype) {
  const int64_t heads = shape.num_heads, kv_heads = shape.num_kv_heads, dim = shape.head_dim;
  HONE_CHECK(heads > 0 && kv_heads >= 0 && (kv_heads == 0 || heads % kv_heads == 0) && dim > 0, op.name(),
             ": num_heads is ", heads, ", num_kv_heads ", kv_heads, ", head_dim ", dim,
             "; num_heads and head_dim must be positive, and num_heads a multiple of num_kv_heads");
  HONE_CHECK(shape.rotary_dim >= 0 && shape.rotary_dim <= dim && shape.rotary_dim % 2 == 0, op.name(),
             ": rotary_dim is ", shape.rotary_dim, "; it must be even and at most head_dim ", dim);
  HONE_CHECK(static_cast<bool>(k_norm) == (q_norm && kv_heads > 0), op.name(),
             ": q_norm and k_norm must be both set or both empty; k_norm is empty without KV heads");
  check_shape(op, "qkv", qkv, {qkv.dim(0), (heads + 2 * kv_heads) * dim}, dtype);
  check_optional(op, "q_norm", q_norm, {dim}, dtype);
  check_optional(op, "k_norm", k_norm, {dim}, dtype);
  if (shape.rotary_dim == 0) return;
  check_shape(op, "positions", positions, {qkv.dim(0)}, DType::i32);
  check_shape(op, "cos_sin", cos_sin, {cos_sin.dim(0), shape.rotary_dim});
  check_read_indices(op, "positions", positions, cos_sin.dim(0));
}

}  // namespace

void check_qkv_forward(const QkvForward& args, DType dtype) {
  const int64_t tokens = args.qkv.dim(0), heads = args.shape.num_heads, kv_heads = args.shape.num_kv_heads,
                dim = args.shape.head_dim;
  check_common(qkv_forward, args.qkv, args.positions, args.cos_sin, args.q_norm, args.k_norm, args.shape, dtype);
  check_shape(qkv_forward, "q", args.q, {tokens, heads, dim}, dtype);
  if (kv_heads > 0) check_shape(qkv_forward, "k", args.k, {tokens, kv_heads, dim}, dtype);
  check_optional(qkv_forward, "rstd", args.rstd, {tokens, heads + kv_heads});
  if (!args.cache.k) return;
  HONE_CHECK(kv_heads > 0, "qkv_forward: there are no KV heads to write to the cache");
  const DType stored = args.cache.k_scale ? DType::u8 : dtype;
  check_shape(qkv_forward, "cache.k", args.cache.k, {args.cache.k.dim(0), kv_heads, dim}, stored);
  check_shape(qkv_forward, "cache.v", args.cache.v, {args.cache.k.dim(0), kv_heads, dim}, stored);
  check_optional(qkv_forward, "cache.k_scale", args.cache.k_scale, {args.cache.k.dim(0), kv_heads});
  if (args.cache.k_scale)
    check_shape(qkv_forward, "cache.v_scale", args.cache.v_scale, {args.cache.k.dim(0), kv_heads});
  check_shape(qkv_forward, "cache.slots", args.cache.slots, {tokens}, DType::i32);
  check_read_indices(qkv_forward, "cache.slots", args.cache.slots, args.cache.k.dim(0));
}

void check_qkv_backward(const QkvBackward& args, DType dtype) {
  const int64_t tokens = args.qkv.dim(0), heads = args.shape.num_heads, kv_heads = args.shape.num_kv_heads,
                dim = args.shape.head_dim;
  check_common(qkv_backward, args.qkv, args.positions, args.cos_sin, args.q_norm, args.k_norm, args.shape, dtype);
  check_shape(qkv_backward, "dqkv", args.dqkv, {tokens, (heads + 2 * kv_heads) * dim}, dtype);
  check_shape(qkv_backward, "dq", args.dq, {tokens, heads, dim}, dtype);
  if (kv_heads > 0) check_shape(qkv_backward, "dk", args.dk, {tokens, kv_heads, dim}, dtype);
  check_optional(qkv_backward, "dq_norm", args.dq_norm, {dim});
  check_optional(qkv_backward, "dk_norm", args.dk_norm, {dim});
  if (args.q_norm) check_shape(qkv_backward, "rstd", args.rstd, {tokens, heads + kv_heads});
}

}  // namespace hone
