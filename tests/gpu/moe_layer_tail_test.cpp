// The layer with experts in one kernel: equal bits of the persistent kernel and of the separate ops.
#include "kernels/decoder_layer/moe_layer_tail.h"

#include "kernels/rope/rope.h"
#include "tests/gpu/called_ops.h"
#include "tests/gpu/gpu_check.h"
#include "tests/support/errors.h"

namespace hone::test {
namespace {

size_t body_named(std::string_view name) {
  const auto& bodies = moe_layer_tail.bodies();
  for (size_t i = 0; i < bodies.size(); ++i)
    if (bodies[i].device == DeviceKind::cuda && bodies[i].name == name) return i;
  fail("no body ", name);
}

struct TailCase {
  int64_t width, heads, kv_heads, dim, experts, choices, inner;
};
// K chunks that are not full, inner sizes that are no multiple of a tile, numbers of experts that are no multiple of 8,
// choices whose chunks are more than the warps of a block, many experts, and the widths of Qwen3-30B-A3B, OLMoE and
// gpt-oss.
constexpr TailCase tail_cases[] = {{72, 3, 3, 64, 4, 2, 24},      {520, 2, 1, 128, 40, 6, 80},
                                   {2048, 32, 4, 128, 9, 8, 768}, {2048, 16, 16, 128, 10, 8, 256},
                                   {520, 3, 1, 64, 300, 3, 72},   {2880, 64, 8, 64, 5, 4, 712},
                                   {896, 14, 2, 64, 16, 16, 136}};

enum class Next { none, rotated, normed };
enum class Form {
  qwen3,     // softmax over all experts, normalized
  gpt_oss,   // biases, clamped activations, scores of the chosen experts alone
  deepseek,  // sigmoids, groups of experts if the choices fit one, scaled weights; gaps between rows
};
const char* name_of(Form form) {
  return form == Form::qwen3 ? "as Qwen3" : form == Form::gpt_oss ? "as gpt-oss" : "as DeepSeek-V3";
}

// Large layers are tested in the form of the family that has them: random weights take most of the time.
bool is_tested(const TailCase& c, Form form) {
  if (c.width == 2048) return form == Form::qwen3;
  if (c.width == 2880) return form == Form::gpt_oss;
  return c.experts < 100 || form == Form::deepseek;
}

// What a layer reads, on the GPU.
struct TailOnGpu {
  TailCase sizes;
  Form form;
  OnGpu w_out, router, gate_up, down, w_qkv, b_out, b_router, b_gate_up, b_down, b_qkv, norm, next_norm, q_norm, k_norm,
      cos_sin;

  static OnGpu matrix(int64_t rows, int64_t columns, uint64_t seed, int64_t gap = 0) {
    return OnGpu(normals({rows, columns}, seed, 0.05f, gap), DType::bf16);
  }
  static OnGpu vectors(int64_t rows, int64_t columns, uint64_t seed) {
    return OnGpu(normals({rows, columns}, seed), DType::bf16);
  }
  static OnGpu vector(int64_t size, uint64_t seed) { return OnGpu(normals({size}, seed), DType::bf16); }
  static OnGpu table(int64_t dim) {
    Floats angles({300, dim});
    rope_table(angles, {.dim = dim, .theta = 10000});
    return OnGpu(angles);
  }
  int64_t gap() const { return form == Form::deepseek ? 8 : 0; }
  TailOnGpu(const TailCase& c, Form as)
      : sizes(c),
        form(as),
        w_out(matrix(c.width, c.heads * c.dim, 1, gap())),
        router(matrix(c.experts, c.width, 2, gap())),
        gate_up(matrix(c.experts * 2 * c.inner, c.width, 3)),
        down(matrix(c.experts * c.width, c.inner, 4)),
        w_qkv(matrix((c.heads + 2 * c.kv_heads) * c.dim, c.width, 5, gap())),
        b_out(vector(c.width, 6)),
        b_router(vector(c.experts, 7)),
        b_gate_up(vectors(c.experts, 2 * c.inner, 8)),
        b_down(vectors(c.experts, c.width, 9)),
        b_qkv(vector((c.heads + 2 * c.kv_heads) * c.dim, 10)),
        norm(vector(c.width, 11)),
        next_norm(vector(c.width, 12)),
        q_norm(vector(c.dim, 13)),
        k_norm(vector(c.dim, 14)),
        cos_sin(table(c.dim)) {}

  MoeLayerTail arguments(const OnGpu& x, const OnGpu& mixed, const QkvProjection& next) const {
    const int64_t E = sizes.experts;
    MoeLayerTail out{.x = x,
                     .mixed = mixed,
                     .output = {w_out, {}},
                     .norm = {norm, 1e-5f},
                     .router = {router, {}},
                     .gate_up = {.w = gate_up.tensor().view({E, 2 * sizes.inner, sizes.width})},
                     .down = {.w = down.tensor().view({E, sizes.width, sizes.inner})},
                     .rule = {.normalize = true},
                     .num_choices = sizes.choices,
                     .next = next};
    if (form == Form::deepseek) {
      const bool grouped = E % 2 == 0 && sizes.choices <= E / 2;
      out.rule = {.scores = RouterScores::sigmoid,
                  .normalize = true,
                  .scale = 2.5f,
                  .num_groups = grouped ? 2 : 1,
                  .top_groups = 1};
    }
    if (form == Form::gpt_oss) {
      out.output.bias = b_out;
      out.router.bias = b_router;
      out.gate_up.bias = b_gate_up;
      out.down.bias = b_down;
      out.rule = {.scores = RouterScores::softmax_of_top};
      out.clamped = ClampedGlu{.limit = 1};
    }
    return out;
  }
};

TEST(MoeLayerTailOnGpu, OneKernelHasTheBitsOfTheSteps) {
  HONE_GPU_OR_SKIP();
  ASSERT_TRUE(gpu()->device().cooperative_barrier(gpu()->stream()).word);  // other contexts of this process are closed
  const size_t persistent = body_named("persistent"), steps = body_named("steps");
  for (const TailCase& c : tail_cases)
    for (const Form form : {Form::qwen3, Form::gpt_oss, Form::deepseek}) {
      if (!is_tested(c, form) || !chosen()) continue;
      const TailOnGpu layer(c, form);
      for (const Next after : {Next::normed, Next::rotated, Next::none})
        for (const int64_t rows : {1, 3}) {
          SCOPED_TRACE(concat(rows, " rows, width ", c.width, ", ", c.experts, " experts of ", c.inner, ", ",
                              name_of(form), ", what is next: ", static_cast<int>(after)));
          const Floats before = normals({rows, c.width}, 21, 3, layer.gap());
          const OnGpu mixed(normals({rows, c.heads * c.dim}, 22 + static_cast<uint64_t>(after), 1, layer.gap()),
                            DType::bf16),
              positions(random_ids(rows, 300, 23));
          Ids places({rows});
          for (int64_t t = 0; t < rows; ++t) places[t] = static_cast<int32_t>(2 * t);
          const OnGpu slots(places);
          OnGpu q = OnGpu::poisoned({rows, c.heads, c.dim}, DType::bf16),
                k = OnGpu::poisoned({2 * rows, c.kv_heads, c.dim}, DType::bf16),
                v = OnGpu::poisoned({2 * rows, c.kv_heads, c.dim}, DType::bf16);
          QkvProjection next;
          if (after != Next::none)
            next = {q,
                    {layer.next_norm, 1e-5f},
                    {layer.w_qkv, form == Form::gpt_oss ? layer.b_qkv.tensor() : Tensor()},
                    positions,
                    layer.cos_sin,
                    {},
                    {},
                    {c.heads, c.kv_heads, c.dim, c.dim, 1e-6f},
                    {k, v, slots}};
          if (after == Next::normed) {
            next.q_norm = layer.q_norm;
            next.k_norm = layer.k_norm;
          }
          std::vector<std::vector<Floats>> left;
          // The kernel runs three times: its grid barrier is reset.
          for (const size_t body : {persistent, persistent, persistent, steps}) {
            OnGpu x(before, DType::bf16);
            for (OnGpu* output : {&q, &k, &v}) output->poison();
            const MoeLayerTail args = layer.arguments(x, mixed, next);
            ASSERT_TRUE(moe_layer_tail.supported(body, args));
            const CalledOps called;
            moe_layer_tail.run_body(body, *gpu(), args);
            EXPECT_EQ(called.has("routed_experts"), rows > 1 || body == steps) << "body " << body;
            left.push_back({x.read(), q.read(), k.read(), v.read()});
          }
          for (size_t run = 0; run < 3; ++run)
            for (size_t o = 0; o < 4; ++o)
              EXPECT_TRUE(close(left[run][o], left[3][o], {0, 0})) << "run " << run << ", output " << o;
        }
    }
}

TEST(MoeLayerTailOnGpu, RefusesANextLayerWithoutACache) {
  HONE_GPU_OR_SKIP();
  const TailOnGpu layer(tail_cases[0], Form::qwen3);
  const TailCase& c = layer.sizes;
  OnGpu x(normals({1, c.width}, 21), DType::bf16), q = OnGpu::poisoned({1, c.heads, c.dim}, DType::bf16);
  const OnGpu mixed(normals({1, c.heads * c.dim}, 22), DType::bf16), positions(random_ids(1, 300, 23));
  QkvProjection next;
  next.q = q;
  next.norm = {layer.next_norm, 1e-5f};
  next.qkv = {layer.w_qkv, {}};
  next.positions = positions;
  next.cos_sin = layer.cos_sin;
  next.q_norm = layer.q_norm;
  next.k_norm = layer.k_norm;
  next.shape = {c.heads, c.kv_heads, c.dim, c.dim, 1e-6f};
  EXPECT_EQ(
      error_of([&] { moe_layer_tail.run_body(body_named("persistent"), *gpu(), layer.arguments(x, mixed, next)); }),
      "moe_layer_tail: cache.k, cache.v and cache.slots must be set");
}

}  // namespace
}  // namespace hone::test
