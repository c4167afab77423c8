// Argument checks of the CPU bodies of attention, and fp8 caches converted to f32.
#include "kernels/attention/args.h"

#include <cmath>

#include "core/base/parallel_for.h"
#include "kernels/check_shape.h"
#include "kernels/quant/quant_format.h"

namespace hone {
namespace {

void check_queries(const OpBase& op, const Tensor& out, const Tensor& q, const Tensor& k, const Tensor& v,
                   const Tensor& offsets) {
  const int64_t tokens = q.dim(0), heads = q.dim(1), dim = q.dim(2);
  HONE_CHECK(q.rank == 3 && k.rank == 3 && k.dim(1) > 0 && heads % k.dim(1) == 0 && dim > 0, op.name(), ": q has ",
             heads, " heads of dimension ", dim, " and k has ", k.dim(1),
             " KV heads; the heads must be a multiple of the KV heads");
  check_shape(op, "q", q, {tokens, heads, dim});
  check_shape(op, "out", out, {tokens, heads, dim});
  check_shape(op, "k", k, {k.dim(0), k.dim(1), dim});
  check_shape(op, "v", v, {k.dim(0), k.dim(1), dim});
  check_offsets(op, offsets, tokens);
}

void check_blocks(const OpBase& op, const PagedKv& cache, int64_t sequences) {
  HONE_CHECK(cache.block_size > 0, op.name(), ": block_size is ", cache.block_size, "; it must be positive");
  const int64_t max_blocks = cache.block_table.dim(1), blocks = cache.k.dim(0) / cache.block_size;
  check_shape(op, "block_table", cache.block_table, {sequences, max_blocks}, DType::i32);
  check_shape(op, "lengths", cache.lengths, {sequences}, DType::i32);
  for (int64_t s = 0; s < sequences; ++s) {
    const int64_t length = cache.lengths.ptr<int32_t>()[s];
    HONE_CHECK(length >= 0 && length <= max_blocks * cache.block_size, op.name(), ": sequence ", s, " has ", length,
               " keys; its block table holds at most ", max_blocks * cache.block_size);
    for (int64_t b = 0; b * cache.block_size < length; ++b) {
      const int32_t block = cache.block_table.row<int32_t>(s)[b];
      HONE_CHECK(block >= 0 && block < blocks, op.name(), ": block_table[", s, ", ", b, "] is ", block,
                 "; the cache has ", blocks, " blocks");
    }
  }
}

void unpack_token(float* to, const uint8_t* values, const float* scales, int64_t heads, int64_t dim) {
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t i = 0; i < dim; ++i) to[h * dim + i] = scales[h] * Fp8Numbers::decode(values[h * dim + i]);
}

}  // namespace

KeySource packed_keys(const OpBase& op, const Tensor& out, const Tensor& lse, const Tensor& q, const Tensor& k,
                      const Tensor& v, const Tensor& offsets) {
  check_queries(op, out, q, k, v, offsets);
  check_shape(op, "k", k, {q.dim(0), k.dim(1), q.dim(2)});
  check_optional(op, "lse", lse, {q.dim(0), q.dim(1)});
  KeySource keys{.k = k, .v = v, .offsets = offsets, .block_table = {}, .lengths = {}, .num_kv_heads = k.dim(1)};
  const int32_t* at = offsets.ptr<int32_t>();
  for (int64_t s = 0; s + 1 < offsets.dim(0); ++s)
    keys.max_length = std::max<int64_t>(keys.max_length, at[s + 1] - at[s]);
  return keys;
}

KeySource paged_keys(const OpBase& op, const Tensor& out, const Tensor& q, const PagedKv& cache,
                     const Tensor& offsets) {
  check_queries(op, out, q, cache.k, cache.v, offsets);
  const int64_t sequences = offsets.dim(0) - 1;
  check_blocks(op, cache, sequences);
  KeySource keys{.k = cache.k,
                 .v = cache.v,
                 .offsets = offsets,
                 .block_table = cache.block_table,
                 .lengths = cache.lengths,
                 .block_size = cache.block_size,
                 .num_kv_heads = cache.k.dim(1)};
  for (int64_t s = 0; s < sequences; ++s) {
    const int64_t length = cache.lengths.ptr<int32_t>()[s],
                  tokens = offsets.ptr<int32_t>()[s + 1] - offsets.ptr<int32_t>()[s];
    HONE_CHECK(length >= tokens, op.name(), ": sequence ", s, " has ", length, " keys, fewer than its ", tokens,
               " tokens of this call");
    keys.max_length = std::max(keys.max_length, length);
  }
  return keys;
}

PagedKv in_f32(Context& context, const OpBase& op, const PagedKv& cache, int64_t sequences) {
  if (!cache.k_scale) return cache;
  const int64_t slots = cache.k.dim(0), heads = cache.k.dim(1), dim = cache.k.dim(2), size = cache.block_size;
  check_shape(op, "k", cache.k, {slots, heads, dim}, DType::u8);
  check_shape(op, "v", cache.v, {slots, heads, dim}, DType::u8);
  check_shape(op, "k_scale", cache.k_scale, {slots, heads});
  check_shape(op, "v_scale", cache.v_scale, {slots, heads});
  check_blocks(op, cache, sequences);
  const int32_t* const lengths = cache.lengths.ptr<int32_t>();
  int64_t blocks = 0;
  for (int64_t s = 0; s < sequences; ++s) blocks += (lengths[s] + size - 1) / size;
  const auto take = [&](DType dtype, std::initializer_list<int64_t> dims) {
    return context.scratch().take(dtype, dims);
  };
  PagedKv out = cache;
  out.k = take(DType::f32, {blocks * size, heads, dim});
  out.v = take(DType::f32, {blocks * size, heads, dim});
  out.block_table = take(DType::i32, {sequences, cache.block_table.dim(1)});
  out.k_scale = out.v_scale = {};
  for (int64_t s = 0, next = 0; s < sequences; ++s)
    for (int64_t position = 0; position < lengths[s]; ++position) {
      const int64_t block = position / size;
      if (position % size == 0) out.block_table.row<int32_t>(s)[block] = static_cast<int32_t>(next++);
      const int64_t from = cache.block_table.row<int32_t>(s)[block] * size + position % size,
                    to = (next - 1) * size + position % size;
      unpack_token(out.k.row<float>(to), cache.k.row<uint8_t>(from), cache.k_scale.row<float>(from), heads, dim);
      unpack_token(out.v.row<float>(to), cache.v.row<uint8_t>(from), cache.v_scale.row<float>(from), heads, dim);
    }
  return out;
}

void check_gradients(const AttentionBackward& args) {
  const Tensor &q = args.q, &k = args.k;
  check_shape(attention_backward, "dq", args.dq, {q.dim(0), q.dim(1), q.dim(2)});
  check_shape(attention_backward, "dout", args.dout, {q.dim(0), q.dim(1), q.dim(2)});
  check_shape(attention_backward, "dk", args.dk, {k.dim(0), k.dim(1), k.dim(2)});
  check_shape(attention_backward, "dv", args.dv, {k.dim(0), k.dim(1), k.dim(2)});
  check_optional(attention_backward, "sinks", args.sinks, {q.dim(1)});
  check_optional(attention_backward, "dsinks", args.dsinks, {q.dim(1)});
  HONE_CHECK(!args.dsinks || args.sinks, "attention_backward: dsinks without sinks");
}

AttentionForward queries_of(const AttentionPaged& args) {
  return {.out = args.out,
          .q = args.q,
          .k = {},
          .v = {},
          .offsets = args.offsets,
          .shape = args.shape,
          .sinks = args.sinks};
}

void check_sinks(const AttentionForward& args) {
  check_optional(attention_forward, "sinks", args.sinks, {args.q.dim(1)});
}

void add_sink_gradients(const AttentionBackward& args, const Tensor& delta) {
  if (!args.dsinks) return;
  parallel_for(args.q.dim(1), 1, [&](int64_t begin, int64_t end) {
    for (int64_t h = begin; h < end; ++h) {
      const double sink = args.sinks.ptr<float>()[h];
      double sum = 0;
      for (int64_t t = 0; t < args.q.dim(0); ++t)
        sum -= std::exp(sink - args.lse.row<float>(t)[h]) * delta.row<float>(t)[h];
      args.dsinks.ptr<float>()[h] += static_cast<float>(sum);
    }
  });
}

}  // namespace hone
