// Weights that a copy on another stream completes right before an op reads them, as a gathered unit's do. Kernels read
// weights ahead of their turn (programmatic dependent launch), but never ahead of an event that their stream waits for.
#include "core/device/device_peers.h"
#include "kernels/gemm/gemm.h"
#include "kernels/norm/rmsnorm.h"
#include "tests/gpu/gpu_check.h"

namespace hone::test {
namespace {

// Runs `work` on weights that held NaN until just before, and expects its results on weights that lie there.
class ArrivingWeights {
 public:
  ArrivingWeights(const Floats& weights, DType dtype)
      : weights_(weights, dtype),
        poison_(weights, dtype),
        arriving_(weights, dtype),
        copies_(gpu()->device()),
        poisoned_(gpu()->device().make_event()),
        arrived_(gpu()->device().make_event()) {
    poison_.poison();
  }
  // work(y, w) writes y.
  template <class Work>
  void expect_same(OnGpu y, Work work, int turns = sized(20, 2)) {
    const DevicePeers& peers = *peers_of(DeviceKind::cuda);
    y.poison();
    work(y, weights_);
    const Floats expected = y.read();
    for (int turn = 0; turn < turns; ++turn) {
      gpu()->copy(arriving_, poison_);
      work(y, weights_);  // a kernel in whose last moments the next one may start
      poisoned_->record(gpu()->stream());
      peers.make_stream_wait(*poisoned_, copies_.stream());
      copies_.copy(arriving_, weights_);
      arrived_->record(copies_.stream());
      peers.make_stream_wait(*arrived_, gpu()->stream());
      work(y, arriving_);
      const Floats got = y.read();
      int64_t differing = 0;
      for (int64_t i = 0; i < expected.size(); ++i) differing += !same_bits(got[i], expected[i]);
      ASSERT_EQ(differing, 0) << "of " << expected.size() << " elements in turn " << turn;
    }
  }

 private:
  OnGpu weights_, poison_, arriving_;
  Context copies_;
  std::unique_ptr<Event> poisoned_, arrived_;
};

// From decoding to training; each takes another body of the product.
TEST(ArrivingWeightsOnGpu, AProductReadsThemWhole) {
  HONE_GPU_OR_SKIP();
  for (const DType dtype : {DType::bf16, DType::f32})
    for (const int64_t M : {1, 8, 64, 300, 2048}) {
      if (!chosen()) continue;
      SCOPED_TRACE(concat(M, " rows of ", name_of(dtype)));
      const int64_t N = 1152, K = sized<int64_t>(4864, 512);
      const OnGpu x(normals({M, K}, 1), dtype);
      ArrivingWeights weights(normals({N, K}, 2), dtype);
      weights.expect_same(OnGpu::poisoned({M, N}, dtype),
                          [&](const OnGpu& y, const OnGpu& w) { gemm_forward(*gpu(), {.y = y, .x = x, .w = w}); });
    }
}

TEST(ArrivingWeightsOnGpu, ANormReadsThemWhole) {
  HONE_GPU_OR_SKIP();
  const int64_t rows = 300, dim = 4096;
  const OnGpu x(normals({rows, dim}, 1), DType::bf16);
  ArrivingWeights weights(normals({dim}, 2), DType::bf16);
  weights.expect_same(OnGpu::poisoned({rows, dim}, DType::bf16),
                      [&](const OnGpu& y, const OnGpu& w) { rmsnorm_forward(*gpu(), y, Tensor(), x, w, 1e-6f, 0.0f); });
}

}  // namespace
}  // namespace hone::test
