#include "cli/bench/op_inputs.h"

#include "core/base/rng.h"

namespace hone {
namespace {

// Fills the first part from the host and copies it to the rest: tensors of GPU benchmarks are large.
void fill(Context& context, Tensor out, float scale) {
  const int64_t count =
      std::min<int64_t>(out.size(), context.kind() == DeviceKind::cpu ? out.size() : (int64_t{1} << 20));
  const auto value = [scale](int64_t i) { return scale * (unit_float(static_cast<uint32_t>(i) * 2654435769u) - 0.5f); };
  const Tensor flat = out.view({out.size()});
  if (out.dtype == DType::f32) {
    std::vector<float> host(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) host[static_cast<size_t>(i)] = value(i);
    context.copy(flat.rows(0, count), host_view(std::span(host)));
  } else {
    std::vector<bf16> host(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) host[static_cast<size_t>(i)] = to_bf16(value(i));
    context.copy(flat.rows(0, count), host_view(std::span(host)));
  }
  for (int64_t done = count; done < out.size(); done += std::min(done, out.size() - done))
    context.copy(flat.rows(done, std::min(done, out.size() - done)), flat.rows(0, std::min(done, out.size() - done)));
}

}  // namespace

Tensor bench_floats(Context& context, std::initializer_list<int64_t> dims, float scale) {
  const Tensor out = context.scratch().take(DType::f32, dims);
  fill(context, out, scale);
  return out;
}
Tensor bench_numbers(Context& context, Arena& arena, std::initializer_list<int64_t> dims, float scale) {
  const Tensor out = arena.take(bench_dtype(context), dims);
  fill(context, out, scale);
  return out;
}
Tensor bench_numbers(Context& context, std::initializer_list<int64_t> dims, float scale) {
  return bench_numbers(context, context.scratch(), dims, scale);
}

Tensor bench_values(Context& context, const std::vector<int32_t>& values) {
  const Tensor out = context.scratch().take(DType::i32, {static_cast<int64_t>(values.size())});
  context.copy(out, host_view(std::span(values)));
  return out;
}
Tensor bench_ids(Context& context, int64_t count, int64_t limit) {
  std::vector<int32_t> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = static_cast<int32_t>(i * 7919 % limit);
  return bench_values(context, values);
}
Tensor bench_offsets(Context& context, int64_t sequences, int64_t length) {
  std::vector<int32_t> values;
  for (int64_t s = 0; s <= sequences; ++s) values.push_back(static_cast<int32_t>(s * length));
  return bench_values(context, values);
}

}  // namespace hone
