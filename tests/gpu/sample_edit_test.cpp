#include "kernels/sample_edit.h"

#include "tests/gpu/gpu_check.h"

namespace hone::test {
namespace {

TEST(EditLogitsOnGpu, HasTheSpecificationsBits) {
  HONE_GPU_OR_SKIP();
  const int64_t S = 5, V = 1001;
  Floats logits = normals({S, V}, 1, 4, 3);
  OnGpu there(logits);
  std::vector<LogitEdit> edits;
  Rng rng(2);
  for (int64_t i = 0; i < S * V; i += 3)
    edits.push_back({.row = static_cast<int32_t>(i / V),
                     .id = static_cast<int32_t>(i % V),
                     .bias = i % 7 == 0 ? -std::numeric_limits<float>::infinity() : static_cast<float>(rng.normal()),
                     .repetition = 0.5f + static_cast<float>(rng.uniform()),
                     .minus = static_cast<float>(rng.normal())});
  const auto bytes = static_cast<int64_t>(edits.size() * sizeof(LogitEdit));
  const Tensor on_host(edits.data(), DType::u8, DeviceKind::cpu, {bytes});
  const Buffer memory(gpu()->device(), static_cast<size_t>(bytes));
  const Tensor on_device(memory.data(), DType::u8, DeviceKind::cuda, {bytes});
  gpu()->copy(on_device, on_host);
  edit_logits(*gpu(), there, on_device);
  edit_logits(cpu(), logits, on_host);
  EXPECT_TRUE(close(there.read(), logits, {0, 0}));
}

}  // namespace
}  // namespace hone::test
