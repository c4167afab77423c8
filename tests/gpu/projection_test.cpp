// The fused bodies have the bits of the sequence of ops, for any number of rows.
#include "kernels/decoder_layer/rmsnorm_gemm.h"
#include "kernels/rope/rope.h"
#include "tests/gpu/called_ops.h"
#include "tests/gpu/gpu_check.h"

namespace hone::test {
namespace {

constexpr int64_t rows_tried[] = {1, 2, 5, 8, 9, 16, 17, 33, 64, 65, 100, 129, 250, 256, 300, 513};

// Each CUDA body of op that the device runs and that supports the arguments writes the same `outputs` as the last one,
// which fuses nothing.
template <class... A>
void expect_bodies_have_the_same_bits(const Op<void(A...)>& op, std::vector<OnGpu*> outputs,
                                      std::type_identity_t<A>... arguments) {
  std::vector<std::vector<Floats>> left;
  for (size_t i = 0; i < op.bodies().size(); ++i) {
    if (op.bodies()[i].device != DeviceKind::cuda || !op.supported(i, arguments...)) continue;
    for (OnGpu* output : outputs) output->poison();
    op.run_body(i, *gpu(), arguments...);
    left.emplace_back();
    for (OnGpu* output : outputs) left.back().push_back(output->read());
  }
  ASSERT_GE(left.size(), 2u);
  for (size_t body = 0; body + 1 < left.size(); ++body)
    for (size_t o = 0; o < outputs.size(); ++o) {
      int64_t wrong = 0;
      for (int64_t i = 0; i < left[body][o].size(); ++i) wrong += !same_bits(left[body][o][i], left.back()[o][i]);
      EXPECT_EQ(wrong, 0) << op.name() << ", body " << body << ", output " << o << " of " << left[body][o].size()
                          << " numbers";
    }
}

}  // namespace

TEST(ProjectGatedOnGpu, BodiesHaveTheSameBits) {
  HONE_GPU_OR_SKIP();
  for (const auto& [F, K] : {std::pair<int64_t, int64_t>{8, 8},
                             {40, 520},
                             {136, 896},
                             {4864, 896},
                             {200, 1536},
                             {456, 4096},
                             {72, 5000},
                             {48, 8960},
                             {1536, 4104},
                             {2368, 4616},
                             {3648, 520},
                             {5184, 1536}})
    for (const bool extras : {true, false}) {
      const OnGpu w(normals({2 * F, K}, 2, 0.05f, extras ? 16 : 0), DType::bf16),
          bias(normals({2 * F}, 3), DType::bf16), weight(normals({K}, 4), DType::bf16);
      for (const int64_t M : rows_tried) {
        if (!chosen()) continue;
        SCOPED_TRACE(concat(M, " rows, ", F, " x ", K, ", extras ", extras));
        const OnGpu x(normals({M, K}, 1, 3, extras ? 8 : 0), DType::bf16);
        OnGpu y = OnGpu::poisoned({M, F}, DType::bf16, extras ? 8 : 0);
        expect_bodies_have_the_same_bits(gate_up_swiglu, {&y},
                                         {.y = y,
                                          .x = x,
                                          .norm = RmsNormWeights{extras ? weight.tensor() : Tensor(), 1e-6f},
                                          .gate_up = {w, extras ? bias.tensor() : Tensor()}});
      }
    }
}

TEST(GemmNormForwardOnGpu, BodiesHaveTheSameBits) {
  HONE_GPU_OR_SKIP();
  for (const auto& [N, K] : {std::pair<int64_t, int64_t>{8, 520},
                             {264, 1032},
                             {896, 896},
                             {896, 4864},
                             {1536, 8960},
                             {4096, 4096},
                             {2064, 1536},
                             {3080, 5128}}) {
    const OnGpu w(normals({N, K}, 2, 0.05f), DType::bf16), bias(normals({N}, 3), DType::bf16),
        weight(normals({N}, 4), DType::bf16);
    for (const int64_t M : rows_tried)
      for (const bool extras : {true, false}) {
        if (!chosen()) continue;
        SCOPED_TRACE(concat(M, " rows, ", N, " x ", K, ", extras ", extras));
        const int64_t gap = extras ? 8 : 0;
        const OnGpu x(normals({M, K}, 1), DType::bf16), residual(normals({M, N}, 5, 1, gap), DType::bf16);
        OnGpu y = OnGpu::poisoned({M, N}, DType::bf16, gap), normed = OnGpu::poisoned({M, N}, DType::bf16, gap);
        expect_bodies_have_the_same_bits(gemm_rmsnorm, {&y, &normed},
                                         {.y = y,
                                          .normed = normed,
                                          .x = x,
                                          .product = {w, extras ? bias.tensor() : Tensor()},
                                          .residual = extras ? residual.tensor() : Tensor(),
                                          .norm = RmsNormWeights{weight, 1e-6f}});
      }
  }
}

// As a router has it: f32 results.
TEST(NormedProductOnGpu, BodiesHaveTheSameBits) {
  HONE_GPU_OR_SKIP();
  for (const auto& [N, K] : {std::pair<int64_t, int64_t>{8, 520}, {128, 2048}, {61, 72}, {256, 6144}, {40, 7168}}) {
    const OnGpu w(normals({N, K}, 2, 0.05f), DType::bf16), bias(normals({N}, 3), DType::bf16),
        weight(normals({K}, 4), DType::bf16);
    for (const int64_t M : {1, 2, 5, 8, 9, 40})
      for (const bool extras : {true, false}) {
        if (!chosen()) continue;
        SCOPED_TRACE(concat(M, " rows, ", N, " x ", K, ", extras ", extras));
        const OnGpu x(normals({M, K}, 1, 1, extras ? 8 : 0), DType::bf16);
        OnGpu y = OnGpu::poisoned({M, N}, DType::f32, 1), normed = OnGpu::poisoned({M, K}, DType::bf16, extras ? 8 : 0);
        expect_bodies_have_the_same_bits(rmsnorm_gemm, {&y, &normed},
                                         {.y = y,
                                          .normed = normed,
                                          .x = x,
                                          .norm = RmsNormWeights{weight, 1e-6f},
                                          .product = {w, extras ? bias.tensor() : Tensor()}});
      }
  }
}

TEST(ProjectHeadsOnGpu, BodiesHaveTheSameBits) {
  HONE_GPU_OR_SKIP();
  struct Shape {
    int64_t heads, kv_heads, dim, K;
  };
  for (const Shape& s : {Shape{14, 2, 64, 896},
                         {12, 2, 128, 1536},
                         {3, 1, 64, 520},
                         {3, 3, 64, 72},
                         {8, 2, 128, 4096},
                         {2, 1, 128, 6152},
                         {20, 2, 128, 4104},
                         {34, 2, 128, 4616},
                         {160, 1, 64, 1536}}) {
    const int64_t N = (s.heads + 2 * s.kv_heads) * s.dim;
    const OnGpu w(normals({N, s.K}, 2, 0.05f), DType::bf16), bias(normals({N}, 3), DType::bf16),
        weight(normals({s.K}, 4), DType::bf16);
    for (const int64_t M : rows_tried)
      for (const bool extras : {true, false}) {
        if (!chosen()) continue;
        SCOPED_TRACE(
            concat(M, " rows, heads ", s.heads, "/", s.kv_heads, " of ", s.dim, ", K ", s.K, ", extras ", extras));
        const int64_t num_slots = 2 * M + 3, gap = extras ? 8 : 0;
        const QkvShape shape{.num_heads = s.heads,
                             .num_kv_heads = s.kv_heads,
                             .head_dim = s.dim,
                             .rotary_dim = s.dim,
                             .norm_eps = 1e-6f};
        const OnGpu x(normals({M, s.K}, 1, 3, gap), DType::bf16), positions(random_ids(M, 300, 5));
        Floats angles({300, s.dim});
        rope_table(angles, {.dim = s.dim, .theta = 10000});
        Ids places({M});
        for (int64_t t = 0; t < M; ++t) places[t] = static_cast<int32_t>((2 * t + 5) % num_slots);
        const OnGpu cos_sin(angles), slots(places);
        OnGpu q = OnGpu::poisoned({M, s.heads, s.dim}, DType::bf16, gap),
              k = OnGpu::poisoned({num_slots, s.kv_heads, s.dim}, DType::bf16, gap),
              v = OnGpu::poisoned({num_slots, s.kv_heads, s.dim}, DType::bf16, gap);
        const QkvProjection to{q,
                               {extras ? weight.tensor() : Tensor(), 1e-6f},
                               {w, extras ? bias.tensor() : Tensor()},
                               positions,
                               cos_sin,
                               {},
                               {},
                               shape,
                               {k, v, slots}};
        expect_bodies_have_the_same_bits(qkv_rope_cache, {&q, &k, &v}, {.x = x, .to = to});
      }
  }
}

namespace {

void run_named_body(const char* name, const DecoderLayerTail& args) {
  const auto body = std::ranges::find(decoder_layer_tail.bodies(), std::string_view(name),
                                      [](const auto& b) { return std::string_view(b.name); });
  decoder_layer_tail.run_body(static_cast<size_t>(body - decoder_layer_tail.bodies().begin()), *gpu(), args);
}

}  // namespace

TEST(ProjectBetweenOnGpu, BodiesHaveTheSameBits) {
  HONE_GPU_OR_SKIP();
  ASSERT_TRUE(gpu()->device().cooperative_barrier(gpu()->stream()).word);  // other contexts of this process are closed
  struct Shape {
    int64_t width, heads, kv_heads, dim, mlp;
  };
  enum Next { none, heads, normed_heads };
  for (const Shape& s : {Shape{72, 3, 3, 64, 8960},
                         {896, 14, 2, 64, 4864},
                         {520, 2, 1, 128, 1032},
                         {1536, 12, 2, 128, 8960},
                         {2048, 3, 1, 64, 14344},
                         {72, 3, 3, 64, 24}}) {
    const int64_t C = s.width, D = s.heads * s.dim, N = (s.heads + 2 * s.kv_heads) * s.dim;
    const auto matrix = [](int64_t rows, int64_t columns, uint64_t seed) {
      return OnGpu(normals({rows, columns}, seed, 0.05f, 8), DType::bf16);
    };
    const auto vector = [](int64_t size, uint64_t seed) { return OnGpu(normals({size}, seed), DType::bf16); };
    const OnGpu w_out = matrix(C, D, 1), w_up = matrix(2 * s.mlp, C, 2), w_down = matrix(C, s.mlp, 3),
                w_qkv = matrix(N, C, 4);
    const OnGpu b_out = vector(C, 5), b_up = vector(2 * s.mlp, 6), b_down = vector(C, 7), b_qkv = vector(N, 8);
    const OnGpu norm = vector(C, 9), norm_next = vector(C, 10), q_norm = vector(s.dim, 14), k_norm = vector(s.dim, 15);
    Floats angles({300, s.dim});
    rope_table(angles, {.dim = s.dim, .theta = 10000});
    const OnGpu cos_sin(angles);
    for (const int64_t M : {1, 2, 3, 5, 8, 9, 40})
      for (const Next after : {heads, none, normed_heads}) {
        if (!chosen()) continue;
        SCOPED_TRACE(concat(M, " rows, width ", C, ", MLP ", s.mlp, ", what is next: ", static_cast<int>(after)));
        const bool biased = after == heads;
        const int64_t gap = biased ? 8 : 0;
        const Floats before = normals({M, C}, 11, 3, gap);
        const OnGpu mixed(normals({M, D}, 12, 1, gap), DType::bf16), positions(random_ids(M, 300, 13));
        Ids places({M});
        for (int64_t t = 0; t < M; ++t) places[t] = static_cast<int32_t>(2 * t);
        const OnGpu slots(places);
        OnGpu q = OnGpu::poisoned({M, s.heads, s.dim}, DType::bf16, gap),
              k = OnGpu::poisoned({2 * M, s.kv_heads, s.dim}, DType::bf16, gap),
              v = OnGpu::poisoned({2 * M, s.kv_heads, s.dim}, DType::bf16, gap);
        const auto with = [&](const OnGpu& w, const OnGpu& bias) {
          return GemmWeights{w, biased ? bias.tensor() : Tensor()};
        };
        QkvProjection next;
        if (after != none)
          next = {q,
                  {norm_next, 1e-5f},
                  with(w_qkv, b_qkv),
                  positions,
                  cos_sin,
                  {},
                  {},
                  {s.heads, s.kv_heads, s.dim, s.dim, 1e-6f},
                  {k, v, slots}};
        if (after == normed_heads) next.q_norm = q_norm, next.k_norm = k_norm;
        std::vector<std::vector<Floats>> left;
        // The first body runs three times: its grid barrier is reset.
        for (const char* body : {"persistent", "persistent", "persistent", "steps"}) {
          OnGpu x(before, DType::bf16);
          for (OnGpu* output : {&q, &k, &v}) output->poison();
          const CalledOps called;
          run_named_body(body, {.x = x,
                                .mixed = mixed,
                                .output = with(w_out, b_out),
                                .mlp = {{norm, 1e-6f}, with(w_up, b_up), with(w_down, b_down)},
                                .next = next});
          const bool in_steps = M > 8 || body == std::string_view("steps"),
                     either = M > 2 && !in_steps;  // depends on the shared memory that the weight pipeline leaves
          EXPECT_TRUE(either || called.has("gate_up_swiglu") == in_steps) << body;
          left.push_back({x.read(), q.read(), k.read(), v.read()});
        }
        for (size_t run = 0; run < 3; ++run)
          for (size_t o = 0; o < 4; ++o) {
            int64_t wrong = 0;
            for (int64_t i = 0; i < left[run][o].size(); ++i) wrong += !same_bits(left[run][o][i], left[3][o][i]);
            EXPECT_EQ(wrong, 0) << "run " << run << ", output " << o << " of " << left[run][o].size() << " numbers";
          }
      }
  }
}

TEST(CooperativeBarrierOnGpu, IsOneStreamsForAsLongAsItLives) {
  HONE_GPU_OR_SKIP();
  Device& device = gpu()->device();
  const CooperativeBarrier own = device.cooperative_barrier(gpu()->stream());
  ASSERT_TRUE(own.word);
  EXPECT_GT(own.most_blocks, 0);
  EXPECT_EQ(device.cooperative_barrier(gpu()->stream()).word, own.word);
  const Context other(device);
  EXPECT_FALSE(device.cooperative_barrier(other.stream()).word);
  EXPECT_FALSE(devices().at("cuda")(0)->cooperative_barrier(other.stream()).word);
  EXPECT_FALSE(device.cooperative_barrier(nullptr).word);

  std::unique_ptr<Device> second;
  try {
    second = devices().at("cuda")(1);
  } catch (const Error&) {
    GTEST_SKIP() << "what happens when the stream ends: for want of a second GPU";
  }
  auto first = std::make_unique<Context>(*second);
  const Context next(*second);
  const uint32_t* const word = second->cooperative_barrier(first->stream()).word;
  EXPECT_TRUE(word);
  EXPECT_FALSE(second->cooperative_barrier(next.stream()).word);
  first.reset();
  EXPECT_EQ(second->cooperative_barrier(next.stream()).word, word);
}

}  // namespace hone::test
