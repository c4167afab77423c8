#include <cstring>

#include "kernels/sampling/logit_processors.h"
#include "tests/gpu/gpu_check.h"

namespace hone::test {
namespace {

// The same bytes on the host and on the GPU.
template <class T>
struct Both {
  explicit Both(std::vector<T> items) : host(std::move(items)), memory(gpu()->device(), host.size() * sizeof(T)) {
    gpu()->copy(on_gpu(), on_host());
  }
  Tensor on_host() {
    return Tensor(host.data(), DType::u8, DeviceKind::cpu, {static_cast<int64_t>(host.size() * sizeof(T))});
  }
  Tensor on_gpu() const {
    return Tensor(memory.data(), DType::u8, DeviceKind::cuda, {static_cast<int64_t>(host.size() * sizeof(T))});
  }
  bool same() {
    std::vector<T> back(host.size());
    gpu()->copy(Tensor(back.data(), DType::u8, DeviceKind::cpu, {static_cast<int64_t>(back.size() * sizeof(T))}),
                on_gpu());
    return std::memcmp(back.data(), host.data(), host.size() * sizeof(T)) == 0;
  }
  std::vector<T> host;
  Buffer memory;
};

TEST(EditLogitsOnGpu, HasTheSpecificationsBitsAndCounts) {
  HONE_GPU_OR_SKIP();
  const int64_t S = 5, V = 1001, E = 300;
  Floats logits = normals({S, V}, 1, 4, 3);
  const Floats before = logits;
  OnGpu there(logits);
  Rng rng(2);
  std::vector<RowPenalties> how;
  std::vector<LogitAdjustment> edits(static_cast<size_t>(S * E));
  for (int32_t r = 0; r < S; ++r) {
    how.push_back({.frequency_penalty = rng.normal(),
                   .presence_penalty = rng.normal(),
                   .repetition_penalty = 0.5f + static_cast<float>(rng.uniform()),
                   .counts = r % 4 != 1,
                   .stops_after = r});
    for (int32_t e = 0; e < E - 40; ++e)
      edits[static_cast<size_t>(r * E + e)] = {.id = (e * 3 + r) % static_cast<int32_t>(V),
                                               .times = static_cast<int32_t>(rng.below(5)) - 1,
                                               .bias = e % 7 == 0 ? 0 : static_cast<float>(rng.normal()),
                                               .stops = e % 11 == 0};
  }
  Both<RowPenalties> both_how(how);
  Both<LogitAdjustment> both_edits(edits);
  const LogitAdjustments on_host{both_edits.on_host(), both_how.on_host()},
      on_gpu{both_edits.on_gpu(), both_how.on_gpu()};
  for (int32_t pass = 0; pass < 4; ++pass) {
    apply_logit_processors(*gpu(), there, on_gpu), apply_logit_processors(cpu(), logits, on_host);
    EXPECT_TRUE(close(there.read(), logits, {0, 0}));
    restore_logits(*gpu(), there, on_gpu), restore_logits(cpu(), logits, on_host);
    EXPECT_TRUE(close(there.read(), before, {0, 0}));
    std::vector<int32_t> ids{pass, 2, pass % 2 == 0 ? -1 : 999, 1000, 4 + 3 * pass};
    const Buffer memory(gpu()->device(), ids.size() * sizeof(int32_t));
    const Tensor drawn(memory.data(), DType::i32, DeviceKind::cuda, {S});
    gpu()->copy(drawn, host_view(std::span(ids)));
    count_sampled_tokens(*gpu(), on_gpu, drawn), count_sampled_tokens(cpu(), on_host, host_view(std::span(ids)));
    gpu()->synchronize();
    EXPECT_TRUE(both_edits.same());
    EXPECT_TRUE(both_how.same());
  }
}

}  // namespace
}  // namespace hone::test
