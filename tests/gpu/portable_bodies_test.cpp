// The portable bodies have the bits of the Hopper bodies wherever numerics.md promises it, and launches that fit
// smaller GPUs have the bits of the others.
#include <cuda_runtime_api.h>

#include "core/base/build_info.h"
#include "core/device/cuda_check.h"
#include "kernels/attention/attention.h"
#include "kernels/cuda/launch_plan.h"
#include "kernels/gemm/gemm.h"
#include "kernels/lm_head/logprob.h"
#include "kernels/norm/layernorm.h"
#include "kernels/norm/rmsnorm.h"
#include "kernels/quant/gemm_quantized.h"
#include "rollout/engine.h"
#include "tests/gpu/gpu_model.h"
#include "tests/gpu/quantized_on_gpu.h"

namespace hone::test {
namespace {

class WithBodies {
 public:
  explicit WithBodies(CudaBodies bodies) : before_(cuda_bodies()) { set_cuda_bodies(bodies); }
  ~WithBodies() { set_cuda_bodies(before_); }
  WithBodies(const WithBodies&) = delete;
  WithBodies& operator=(const WithBodies&) = delete;

 private:
  CudaBodies before_;
};

// This GPU with the shared memory and the launches of capability 8.6.
DeviceLimits small_limits() {
  DeviceLimits out = device_limits();
  const DeviceLimits& small = DeviceLimits::of(86);
  out.shared_per_block = small.shared_per_block;
  out.shared_per_sm = small.shared_per_sm;
  out.num_sms = small.num_sms;
  out.cluster_launch = out.dependent_launch = out.hopper_code = false;
  return out;
}

using Outputs = std::vector<std::vector<float>>;
std::vector<float> list_of(const Floats& x) {
  std::vector<float> out;
  for (int64_t i = 0; i < x.size(); ++i) out.push_back(x[i]);
  return out;
}
void expect_equal_bits(const Outputs& actual, const Outputs& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t o = 0; o < actual.size(); ++o) {
    ASSERT_EQ(actual[o].size(), expected[o].size());
    int64_t wrong = 0;
    for (size_t i = 0; i < actual[o].size(); ++i) wrong += !same_bits(actual[o][i], expected[o][i]);
    EXPECT_EQ(wrong, 0) << "output " << o << " of " << actual[o].size() << " numbers";
  }
}
// work() returns what it has computed.
template <class Work>
void expect_bodies_agree_in_bits(Work work) {
  const Outputs hopper = work();
  const WithBodies portable(CudaBodies::portable);
  expect_equal_bits(work(), hopper);
}
template <class Work>
void expect_small_limits_change_no_bit(Work work) {
  const WithBodies portable(CudaBodies::portable);
  const Outputs usual = work();
  const DeviceLimits limits = small_limits();
  const DeviceLimitsScope small(limits);
  expect_equal_bits(work(), usual);
}

TEST(PortableBodies, ProductsHaveTheBitsOfTheHopperBodies) {
  HONE_HOPPER_OR_SKIP();
  for (const auto& [N, K] :
       {std::pair<int64_t, int64_t>{8, 520}, {896, 896}, {1536, 8960}, {4864, 896}, {264, 4104}, {3080, 1536}}) {
    const OnGpu w(normals({N, K}, 2, 0.05f), DType::bf16), bias(normals({N}, 3), DType::bf16);
    for (const int64_t M : {1, 3, 8, 9, 16, 33, 64, 65, 128, 200, 513, 1100})
      for (const DType out : {DType::bf16, DType::f32}) {
        if (!chosen()) continue;
        SCOPED_TRACE(concat(M, " x ", N, " x ", K, ", ", name_of(out)));
        const OnGpu x(normals({M, K}, 1), DType::bf16), residual(normals({M, N}, 4), out);
        expect_bodies_agree_in_bits([&]() -> Outputs {
          OnGpu y = OnGpu::poisoned({M, N}, out);
          gemm_forward(*gpu(), {.y = y, .x = x, .w = w, .bias = bias, .residual = residual});
          return {list_of(y.read())};
        });
      }
  }
}

TEST(PortableBodies, QuantizedProductsHaveTheBitsOfTheHopperBodies) {
  HONE_HOPPER_OR_SKIP();
  for (const QuantFormat format : all_quant_formats)
    for (const auto& [N, K] : {std::pair<int64_t, int64_t>{136, 528}, {896, 896}, {40, 14336}, {1536, 4864}}) {
      const QuantizedOnGpu w(format, OnGpu(normals({N, K}, 2)));
      for (const int64_t M : {1, 2, 7, 8, 9, 16, 40, 130}) {
        if (!chosen()) continue;
        SCOPED_TRACE(concat(M, " x ", N, " x ", K));
        const OnGpu x(normals({M, K}, 1), DType::bf16);
        const auto work = [&]() -> Outputs {
          OnGpu y = OnGpu::poisoned({M, N}, DType::bf16);
          gemm_quantized(*gpu(), {.y = y, .x = x, .w = w});
          return {list_of(y.read())};
        };
        expect_bodies_agree_in_bits(work);
        expect_small_limits_change_no_bit(work);
      }
    }
}

TEST(PortableBodies, LogProbsHaveTheBitsOfTheHopperBodies) {
  HONE_HOPPER_OR_SKIP();
  for (const auto& [R, V, D] :
       {std::array<int64_t, 3>{1, 300, 512}, {64, 8300, 512}, {200, 1000, 896}, {700, 5000, 256}})
    for (const bool with_entropy : {true, false}) {
      if (!chosen()) continue;
      SCOPED_TRACE(concat(R, " rows, vocabulary of ", V, ", width ", D));
      const OnGpu hidden(normals({R, D}, 1, 0.3f), DType::bf16), w(normals({V, D}, 2), DType::bf16),
          targets(random_ids(R, static_cast<int32_t>(V), 3));
      expect_bodies_agree_in_bits([&]() -> Outputs {
        OnGpu logp = OnGpu::poisoned({R}), lse = OnGpu::poisoned({R}), entropy = OnGpu::poisoned({R}),
              hit = OnGpu::poisoned({R});
        logprob_forward(*gpu(), {.logp = logp,
                                 .lse = lse,
                                 .entropy = with_entropy ? entropy.tensor() : Tensor(),
                                 .hit = hit,
                                 .hidden = hidden,
                                 .w = w,
                                 .targets = targets,
                                 .inv_temperature = 0.8f});
        Outputs out{list_of(logp.read()), list_of(lse.read()), list_of(hit.read())};
        if (with_entropy) out.push_back(list_of(entropy.read()));
        return out;
      });
    }
}

// A paged call on the last `tokens` tokens of each sequence; KV blocks are assigned in descending order.
struct PagedCase {
  std::vector<int32_t> lengths;
  int64_t heads, kv_heads, dim, block_size, tokens = 1, window = 0;
};
template <class Test>
void with_paged_call(const PagedCase& c, Test test) {
  const auto sequences = std::ssize(c.lengths);
  const int64_t longest = *std::ranges::max_element(c.lengths),
                blocks = (longest + c.block_size - 1) / c.block_size + 1, slots = blocks * sequences * c.block_size;
  Ids table({sequences, blocks}), lengths({sequences}), offsets({sequences + 1});
  for (int64_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(table.size() - 1 - i);
  for (int64_t s = 0; s < sequences; ++s) {
    lengths[s] = c.lengths[static_cast<size_t>(s)];
    offsets[s + 1] = offsets[s] + static_cast<int32_t>(std::min<int64_t>(c.tokens, lengths[s]));
  }
  const int64_t T = offsets[sequences];
  const OnGpu there(table), lengths_there(lengths), offsets_there(offsets);
  OnGpu out = OnGpu::poisoned({T, c.heads, c.dim}, DType::bf16);
  const OnGpu q(normals({T, c.heads, c.dim}, 1), DType::bf16);
  AttentionPaged args{
      .out = out,
      .q = q,
      .cache = {.k = {}, .v = {}, .block_table = there, .lengths = lengths_there, .block_size = c.block_size},
      .offsets = offsets_there,
      .shape = {.scale = 1 / std::sqrt(static_cast<float>(c.dim)), .window = c.window, .max_length = c.tokens}};
  test(args, slots, [&]() -> Outputs {
    Outputs outputs;
    for (const bool prefetchable : {false, true}) {
      args.cache.prefetchable = prefetchable;
      out.poison();
      attention_paged(*gpu(), args);
      outputs.push_back(list_of(out.read()));
    }
    return outputs;
  });
}
const PagedCase paged_cases[] = {{{1}, 14, 2, 64, 16},
                                 {{17, 130, 1, 1025}, 14, 2, 64, 16},
                                 {{1030, 3, 700, 2048}, 12, 2, 128, 16},
                                 {{2300, 1024}, 4, 4, 64, 5, 1, 300},
                                 {{1500, 40}, 8, 2, 96, 32, 2, 1100},
                                 {{333, 129}, 20, 1, 80, 1},
                                 {{1100, 128, 4000}, 3, 1, 256, 32, 3},
                                 {{3000, 64}, 16, 1, 256, 16},
                                 {{5, 70, 900}, 6, 2, 24, 7, 4},
                                 {{250, 300}, 14, 2, 64, 16, 100},
                                 {std::vector<int32_t>(300, 200), 14, 2, 64, 16},
                                 {std::vector<int32_t>(90, 1100), 28, 4, 128, 16}};

TEST(PortableBodies, PagedAttentionHasTheBitsOfTheHopperBodies) {
  HONE_HOPPER_OR_SKIP();
  for (const PagedCase& c : paged_cases) {
    if (!chosen()) continue;
    SCOPED_TRACE(concat(c.lengths.size(), " sequences, ", c.heads, "/", c.kv_heads, " heads of ", c.dim));
    with_paged_call(c, [&](AttentionPaged& args, int64_t slots, auto run) {
      const OnGpu k(normals({slots, c.kv_heads, c.dim}, 2), DType::bf16),
          v(normals({slots, c.kv_heads, c.dim}, 3), DType::bf16);
      args.cache.k = k;
      args.cache.v = v;
      expect_bodies_agree_in_bits(run);
      expect_small_limits_change_no_bit(run);
    });
  }
}

TEST(SmallLimits, AttentionOnAnFp8CacheHasTheSameBits) {
  HONE_GPU_OR_SKIP();
  for (const PagedCase& c : paged_cases) {
    if (c.dim % (c.dim > 128 ? 32 : 16) != 0 || !chosen()) continue;
    SCOPED_TRACE(concat(c.lengths.size(), " sequences, ", c.heads, "/", c.kv_heads, " heads of ", c.dim));
    with_paged_call(c, [&](AttentionPaged& args, int64_t slots, auto run) {
      const QuantizedOnGpu k(QuantFormat::fp8, OnGpu(normals({slots * c.kv_heads, c.dim}, 2))),
          v(QuantFormat::fp8, OnGpu(normals({slots * c.kv_heads, c.dim}, 3)));
      const auto numbers = [&](QuantizedMatrix x) { return x.values.view({slots, c.kv_heads, c.dim}); };
      const auto scales = [&](QuantizedMatrix x) { return x.scales.view({slots, c.kv_heads}); };
      args.cache.k = numbers(k);
      args.cache.v = numbers(v);
      args.cache.k_scale = scales(k);
      args.cache.v_scale = scales(v);
      expect_small_limits_change_no_bit(run);
    });
  }
}

TEST(SmallLimits, NormsHaveTheSameBits) {
  HONE_GPU_OR_SKIP();
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const auto& [rows, dim] :
         {std::pair<int64_t, int64_t>{3, 7}, {600, 896}, {300, 1024}, {1000, 4096}, {50, 6144}, {40, 12288}})
      for (const bool accumulate : {false, true}) {
        if (!chosen() || (dtype == DType::f32 && dim > 4096)) continue;
        SCOPED_TRACE(concat(rows, " x ", dim, " ", name_of(dtype), ", accumulate ", accumulate));
        const Floats before = normals({rows, dim}, 5), ones({rows}, 1), zeros({rows}, 0);
        const OnGpu x(normals({rows, dim}, 1), dtype), w(normals({dim}, 2), dtype), dy(normals({rows, dim}, 3), dtype),
            rstd(ones), mean(zeros);
        expect_small_limits_change_no_bit([&]() -> Outputs {
          OnGpu dx(before, dtype), dw(normals({dim}, 4)), db(normals({dim}, 6)), dw_rms(normals({dim}, 7)),
              dx_rms(before, dtype);
          if (dim <= 8192)
            layernorm_backward(*gpu(), {.dx = dx,
                                        .dw = dw,
                                        .db = db,
                                        .dy = dy,
                                        .x = x,
                                        .mean = mean,
                                        .rstd = rstd,
                                        .w = w,
                                        .accumulate = accumulate});
          rmsnorm_backward(
              *gpu(), {.dx = dx_rms, .dw = dw_rms, .dy = dy, .x = x, .rstd = rstd, .w = w, .accumulate = accumulate});
          return {list_of(dx.read()), list_of(dw.read()), list_of(db.read()), list_of(dx_rms.read()),
                  list_of(dw_rms.read())};
        });
      }
}

TEST(SmallLimits, PackedAttentionHasTheSameBits) {
  HONE_GPU_OR_SKIP();
  for (const int64_t dim : {64, 80, 128, 256}) {
    if (!chosen()) continue;
    SCOPED_TRACE(concat("heads of ", dim));
    const int64_t T = sized(1300, 150), heads = 4, kv_heads = 2;
    Ids offsets({3});
    offsets[1] = static_cast<int32_t>(T / 3);
    offsets[2] = static_cast<int32_t>(T);
    const OnGpu q(normals({T, heads, dim}, 1), DType::bf16), k(normals({T, kv_heads, dim}, 2), DType::bf16),
        v(normals({T, kv_heads, dim}, 3), DType::bf16), dout(normals({T, heads, dim}, 4), DType::bf16), at(offsets);
    const AttentionShape shape{.scale = 1 / std::sqrt(static_cast<float>(dim)), .max_length = T};
    expect_small_limits_change_no_bit([&]() -> Outputs {
      OnGpu out = OnGpu::poisoned({T, heads, dim}, DType::bf16), lse = OnGpu::poisoned({T, heads}),
            dq = OnGpu::poisoned({T, heads, dim}, DType::bf16), dk = OnGpu::poisoned({T, kv_heads, dim}, DType::bf16),
            dv = OnGpu::poisoned({T, kv_heads, dim}, DType::bf16);
      attention_forward(*gpu(), {.out = out, .lse = lse, .q = q, .k = k, .v = v, .offsets = at, .shape = shape});
      // Gradients run on the small device too; their order of sums may depend on it.
      attention_backward(*gpu(), {.dq = dq,
                                  .dk = dk,
                                  .dv = dv,
                                  .dout = dout,
                                  .out = out,
                                  .lse = lse,
                                  .q = q,
                                  .k = k,
                                  .v = v,
                                  .offsets = at,
                                  .shape = shape});
      for (const Floats& gradient : {dq.read(), dk.read(), dv.read()})
        for (int64_t i = 0; i < gradient.size(); ++i)
          if (!std::isfinite(gradient[i])) {
            ADD_FAILURE() << "gradient " << i << " is " << gradient[i];
            break;
          }
      return {list_of(out.read()), list_of(lse.read())};
    });
  }
}

// What a model computes: log-probs of given tokens, and sampled tokens with theirs.
Outputs outputs_of(Model& model, const std::vector<std::vector<int32_t>>& sequences) {
  Outputs out;
  for (const TokenLogprobs& one :
       compute_logprobs(*gpu(), model, sequences, {.temperature = 0.9, .entropy = true, .hit = true}))
    out.insert(out.end(), {one.logp, one.entropy, one.hit});
  Engine engine(*gpu(), model, nullptr, {.kv_cache_tokens = 8192, .max_batch_tokens = 512});
  std::vector<GenerationRequest> requests;
  for (const auto& prompt : sequences)
    requests.push_back(
        {prompt,
         2,
         0,
         {.temperature = 0.9, .max_tokens = sized(40, 5), .ignore_eos = true, .stop = {}, .stop_ids = {}}});
  for (const auto& replies : engine.generate(requests))
    for (const CompletionOutput& reply : replies) {
      EXPECT_FALSE(reply.failed) << reply.finish_reason;
      out.push_back(reply.logp);
      out.emplace_back(reply.ids.begin(), reply.ids.end());
    }
  return out;
}

TEST(PortableBodies, ModelsHaveTheBitsOfTheHopperBodies) {
  HONE_HOPPER_OR_SKIP();
  const auto sequences = gpu_sequences({70, 1, 133, 64});
  for (const std::string& family : families().names())
    for (const int64_t dim : {64, 128}) {
      if (!chosen()) continue;
      SCOPED_TRACE(concat(family, ", heads of ", dim));
      const Json config = gpu_config(family, dim);
      const auto model = gpu_model(config, *cpu_model(config, DType::bf16), DType::bf16);
      expect_bodies_agree_in_bits([&] { return outputs_of(*model, sequences); });
    }
}

TEST(SmallLimits, ModelsHaveTheSameBits) {
  HONE_GPU_OR_SKIP();
  const auto sequences = gpu_sequences({70, 1, 133, 64});
  for (const std::string& family : families().names()) {
    if (!chosen()) continue;
    SCOPED_TRACE(family);
    const Json config = gpu_config(family, 128);
    const auto model = gpu_model(config, *cpu_model(config, DType::bf16), DType::bf16);
    expect_small_limits_change_no_bit([&] { return outputs_of(*model, sequences); });
  }
}

TEST(DeviceLimitsOnGpu, AreThoseOfTheDevice) {
  HONE_GPU_OR_SKIP();
  gpu()->synchronize();  // the device is current
  const DeviceLimits& limits = device_limits();
  EXPECT_GE(limits.capability, 80);
  EXPECT_GE(limits.code, 80);
  EXPECT_LE(limits.code, limits.capability);
  EXPECT_GE(limits.shared_per_block, DeviceLimits::of(86).shared_per_block);
  EXPECT_GT(limits.num_sms, 0);
  EXPECT_GT(limits.l2_bytes, 0u);
  for (const int capability : cuda_capabilities())
    if (capability == limits.capability) {
      EXPECT_EQ(limits.shared_per_block, DeviceLimits::of(capability).shared_per_block);
      EXPECT_EQ(limits.shared_per_sm, DeviceLimits::of(capability).shared_per_sm);
      EXPECT_EQ(limits.threads_per_sm, DeviceLimits::of(capability).threads_per_sm);
    }
  if (build_cuda_architectures() == "80-virtual") {
    EXPECT_EQ(limits.code, 80);
    EXPECT_FALSE(limits.hopper_code) << "PTX of 8.0 has no Hopper bodies";
    EXPECT_FALSE(runs_hopper_bodies());
  }
  if (limits.code < 90) {
    EXPECT_FALSE(limits.dependent_launch);
  }
}

// The declared static shared memory is that of the machine code, and the registers of a block fit.
TEST(LaunchPlansOnGpu, FitTheCompiledKernels) {
  HONE_GPU_OR_SKIP();
  gpu()->synchronize();
  for (const std::string& name : launch_plans().names()) {
    LaunchPlans plans;
    launch_plans().at(name)(device_limits(), plans);
    for (const LaunchPlan& plan : plans.all()) {
      if (plan.threads == 0) continue;
      SCOPED_TRACE(concat(name, ": ", plan.name));
      cudaFuncAttributes attributes{};
      HONE_CUDA_CHECK(cudaFuncGetAttributes(&attributes, plan.kernel));
      // From 9.0 on the attribute may include what the driver reserves.
      EXPECT_LE(attributes.sharedSizeBytes, plan.static_bytes + device_limits().shared_reserved);
      EXPECT_LE(plan.threads, attributes.maxThreadsPerBlock);
      EXPECT_LE((attributes.numRegs + 7) / 8 * 8 * plan.threads, DeviceLimits::of(86).registers_per_sm);
    }
  }
}

}  // namespace
}  // namespace hone::test
