#include "model/batch.h"

#include <algorithm>

namespace hone {
namespace {

template <class T>
Tensor upload_values(Context& context, Arena& arena, std::span<const T> values) {
  const Tensor out = arena.take(dtype_of<T>::value, {static_cast<int64_t>(values.size())});
  context.copy(out, host_view(values));
  return out;
}

}  // namespace

Tensor upload(Context& context, Arena& arena, std::span<const int32_t> values) {
  return upload_values(context, arena, values);
}
Tensor upload(Context& context, Arena& arena, std::span<const float> values) {
  return upload_values(context, arena, values);
}

std::vector<float> download(Context& context, Tensor values) {
  std::vector<float> out(static_cast<size_t>(values.size()));
  context.copy(host_view(std::span(out)), values);
  context.synchronize();
  return out;
}

std::vector<Tensor> upload(Context& context, Arena& arena, std::initializer_list<std::span<const int32_t>> columns) {
  constexpr size_t alignment = 64;  // elements
  std::vector<int32_t> together;
  std::vector<size_t> begins;
  for (const auto& column : columns) {
    together.resize((together.size() + alignment - 1) / alignment * alignment, 0);
    begins.push_back(together.size());
    together.insert(together.end(), column.begin(), column.end());
  }
  const Tensor all = upload(context, arena, std::span<const int32_t>(together));
  std::vector<Tensor> out;
  size_t i = 0;
  for (const auto& column : columns)
    out.push_back(all.rows(static_cast<int64_t>(begins[i++]), static_cast<int64_t>(column.size())));
  return out;
}

Batch pack_batch(Context& context, Arena& arena, std::span<const BatchPart> parts) {
  Batch batch{.num_sequences = static_cast<int64_t>(parts.size())};
  std::vector<int32_t> tokens, positions, offsets{0};
  for (const BatchPart& part : parts) {
    const auto length = static_cast<int32_t>(part.tokens.size());
    tokens.insert(tokens.end(), part.tokens.begin(), part.tokens.end());
    for (int32_t i = 0; i < length; ++i) positions.push_back(part.start + i);
    offsets.push_back(static_cast<int32_t>(tokens.size()));
    batch.max_length = std::max<int64_t>(batch.max_length, length);
    batch.num_positions = std::max<int64_t>(batch.num_positions, int64_t{part.start} + length);
  }
  batch.num_tokens = static_cast<int64_t>(tokens.size());
  const std::vector<Tensor> columns = upload(context, arena, {tokens, positions, offsets});
  batch.tokens = columns[0], batch.positions = columns[1], batch.offsets = columns[2];
  return batch;
}

}  // namespace hone
