#include "rollout/kv/kv_storage.h"

namespace hone {

KvStorage::KvStorage(Context& context, const ModelShape& shape, DType dtype, int64_t block_size, int64_t num_blocks)
    : context_(context), block_size_(block_size), pad_block_(static_cast<int32_t>(num_blocks)) {
  const int64_t slots = (num_blocks + 1) * block_size, heads = shape.num_kv_heads;
  const bool scaled = dtype == DType::u8;
  const size_t plane = static_cast<size_t>(slots * heads * shape.head_dim) * size_of(dtype),
               scales = scaled ? static_cast<size_t>(slots * heads) * size_of(DType::f32) : 0;
  bytes_ = Buffer(context.device(), 2 * (plane + scales) * static_cast<size_t>(shape.num_layers));
  size_t at = 0;
  const auto take = [&](DType type, std::initializer_list<int64_t> dims, size_t bytes) {
    const Tensor out(bytes_.data() ? static_cast<char*>(bytes_.data()) + at : nullptr, type, context.kind(), dims);
    at += bytes;
    return out;
  };
  for (int64_t i = 0; i < shape.num_layers; ++i)
    for (auto* tensors : {&k_, &v_}) tensors->push_back(take(dtype, {slots, heads, shape.head_dim}, plane));
  for (int64_t i = 0; scaled && i < shape.num_layers; ++i)
    for (auto* tensors : {&k_scale_, &v_scale_}) tensors->push_back(take(DType::f32, {slots, heads}, scales));
}

void KvStorage::copy(int32_t to, int32_t from, int64_t tokens) {
  for (const auto* tensors : {&k_, &v_, &k_scale_, &v_scale_})
    for (const Tensor& plane : *tensors)
      context_.copy(plane.rows(to * block_size_, tokens), plane.rows(from * block_size_, tokens));
}

KvView KvStorage::view() const {
  KvView out;
  out.k = k_;
  out.v = v_;
  out.k_scale = k_scale_;
  out.v_scale = v_scale_;
  out.block_size = block_size_;
  return out;
}

}  // namespace hone
