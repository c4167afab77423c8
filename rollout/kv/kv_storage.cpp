#include "rollout/kv/kv_storage.h"

namespace hone {
namespace {

// Visits the tensors of one plane with `slots` slots: f(member of LayerKv, dtype, dims).
template <class F>
void for_each_tensor(const KvGroupShape& shape, DType dtype, int64_t slots, F f) {
  const bool scaled = dtype == DType::u8, has_v = shape.value_dim > 0;
  const int64_t heads = shape.num_kv_heads;
  f(&LayerKv::k, dtype, {slots, heads, shape.key_dim});
  if (has_v) f(&LayerKv::v, dtype, {slots, heads, shape.value_dim});
  if (scaled) f(&LayerKv::k_scale, DType::f32, {slots, heads});
  if (scaled && has_v) f(&LayerKv::v_scale, DType::f32, {slots, heads});
}

}  // namespace

KvStorage::KvStorage(Context& context, KvLayout layout, DType dtype, int64_t block_size, int64_t num_blocks)
    : context_(context),
      layout_(std::move(layout)),
      block_size_(block_size),
      pad_block_(static_cast<int32_t>(num_blocks)) {
  const int64_t slots = (num_blocks + 1) * block_size;
  HONE_CHECK(slots <= INT32_MAX, "kv cache: ", num_blocks, " blocks of ", block_size,
             " tokens are more slots than an i32 counts: lower kv_cache_tokens");
  for (const KvGroupShape& shape : layout_.planes) {
    HONE_CHECK(
        dtype != DType::u8 || shape.value_dim > 0,
        "KV cache: latents of multi-head latent attention are not stored as fp8; set kv_cache_dtype to \"auto\"");
    LayerKv& plane = planes_.emplace_back();
    for_each_tensor(shape, dtype, slots, [&](Tensor LayerKv::*to, DType type, std::initializer_list<int64_t> dims) {
      plane.*to = Tensor(nullptr, type, context.kind(), dims);
    });
  }
  size_ = kv_storage_bytes(layout_, dtype, block_size, num_blocks);
  allocate_memory();
}

void KvStorage::allocate_memory() {
  if (bytes_.size() > 0) return;
  bytes_ = Buffer(context_.device(), size_);
  // The numbers of all planes, then the scales.
  size_t at = 0;
  const auto place = [&](Tensor LayerKv::*member) {
    for (LayerKv& plane : planes_) {
      Tensor& tensor = plane.*member;
      if (tensor && bytes_.data()) tensor.data = static_cast<char*>(bytes_.data()) + at;
      at += tensor.bytes();
    }
  };
  place(&LayerKv::k);
  place(&LayerKv::v);
  at = (at + 15) / 16 * 16;
  place(&LayerKv::k_scale);
  place(&LayerKv::v_scale);
  HONE_CHECK(at <= size_, "kv cache: its tensors take ", at, " bytes of ", size_);
}

void KvStorage::free_memory() {
  for (LayerKv& plane : planes_)
    for (Tensor* tensor : {&plane.k, &plane.v, &plane.k_scale, &plane.v_scale}) tensor->data = nullptr;
  bytes_ = Buffer();
}

void KvStorage::copy(int32_t to, int32_t from, int64_t tokens) {
  for (const LayerKv& plane : planes_)
    for (const Tensor& tensor : {plane.k, plane.v, plane.k_scale, plane.v_scale})
      if (tensor) context_.copy(tensor.rows(to * block_size_, tokens), tensor.rows(from * block_size_, tokens));
}

KvView KvStorage::view() const {
  KvView out;
  for (const KvLayout::Place& place : layout_.layers) {
    out.layers.push_back(planes_[place.plane]);
    out.layers.back().group = place.table;
  }
  out.block_size = block_size_;
  return out;
}

}  // namespace hone
