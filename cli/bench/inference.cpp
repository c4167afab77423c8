// The benches "decode" (time of a decode pass) and "prefill" (time of one prompt).
#include <algorithm>

#include "cli/bench/model_bench.h"
#include "cli/bench/roofline.h"
#include "core/base/format.h"
#include "core/base/stopwatch.h"
#include "model/flops.h"

namespace hone {
namespace {

// An H200's limits as the figures of other programs use them, so that the shares compare.
constexpr MachineLimits common_limits{.flops = 790e12, .read_bandwidth = 4.3e12};

std::string decode(Context& context, Model& model, const ModelBenchOptions& options, const MachineLimits& limits,
                   Json& row) {
  const int64_t steps = context.kind() == DeviceKind::cuda ? 160 : 32, B = options.batch;
  const EngineConfig config = bench_engine(options, B, options.tokens + steps);
  HONE_CHECK(config.speculative.method == "none",
             "bench decode times passes of a token each; `hone bench rollout` has speculation");
  Engine engine(context, model, nullptr, config);
  for (int64_t b = 0; b < B; ++b)
    engine.submit({random_tokens(options.tokens, model.shape().vocab_size, static_cast<uint64_t>(b)),
                   1,
                   static_cast<uint64_t>(b),
                   {.max_tokens = steps, .ignore_eos = true, .stop = {}, .stop_ids = {}}},
                  [](uint64_t, const std::vector<CompletionOutput>&) {});
  while (engine.stats().generated_tokens < B) engine.step();
  std::vector<double> times;  // of passes that give each sequence one token
  for (bool more = true; more;) {
    const Stopwatch watch;
    const int64_t before = engine.stats().generated_tokens;
    more = engine.step();
    const int64_t num_sampled = engine.stats().generated_tokens - before;
    if (num_sampled > 0 && num_sampled % B == 0)
      times.push_back(watch.seconds() * static_cast<double>(B) / static_cast<double>(num_sampled));
  }
  HONE_CHECK(!times.empty(), "bench: no pass gave each of ", B,
             " sequences a token; max_num_seqs and kv_cache_tokens must hold them all");
  std::sort(times.begin(), times.end());
  const double seconds = times.at(times.size() / 2), rate = static_cast<double>(B) / seconds;
  const int64_t keys = options.tokens + steps / 2;
  Roofline common(model, common_limits, config);
  const double experts_read = measure_experts_read(context, model, B);
  common.set_experts_read(B, experts_read);
  const double bytes = common.decode_bytes(B, keys), floor = bytes / common_limits.read_bandwidth,
               parts = common.decode(B, keys);
  row.set("batch", B);
  row.set("tokens", options.tokens);
  row.set("seconds", seconds);
  row.set("tokens_per_second", rate);
  row.set("bytes_per_second", bytes / seconds);
  row.set("B", B);
  row.set("ctx", options.tokens);
  row.set("tok_s", rate);
  row.set("ms", seconds * 1e3);
  row.set("floor_ms", floor * 1e3);
  row.set("roofline", floor / seconds);
  row.set("experts_read", experts_read);
  row.set("parts_ms", parts * 1e3);
  row.set("parts_roofline", parts / seconds);
  row.set("peak_gb", peak_gigabytes(context));
  return format_text("batch %lld, %lld tokens: %.1f tokens/s, %.0f%% of the machine's measured read bandwidth",
                     static_cast<long long>(B), static_cast<long long>(options.tokens), rate,
                     100 * bytes / seconds / limits.read_bandwidth);
}

std::string prefill(Context& context, Model& model, const ModelBenchOptions& options, const MachineLimits& limits,
                    Json& row) {
  const std::vector<int32_t> prompt = random_tokens(options.tokens, model.shape().vocab_size, 0);
  Engine engine(context, model, nullptr, {.max_batch_tokens = options.tokens, .prefix_caching = false});
  const double seconds = median_seconds(options.repeats, [&] {
    engine.generate({{prompt, 1, 0, {.max_tokens = 1, .stop = {}, .stop_ids = {}}}});
  });
  const double rate = static_cast<double>(options.tokens) / seconds,
               flops = rate * count_flops(model, options.tokens).forward_flops_per_token;
  row.set("tokens", options.tokens);
  row.set("seconds", seconds);
  row.set("tokens_per_second", rate);
  row.set("flops_per_second", flops);
  return format_text("%lld tokens: %.1f tokens/s, %.0f%% of the machine's measured arithmetic peak",
                     static_cast<long long>(options.tokens), rate, 100 * flops / limits.flops);
}

[[maybe_unused]] const bool added = model_benches().add("decode", {.run = decode, .peers = {"decode"}}) &&
                                    model_benches().add("prefill", {.run = prefill});

}  // namespace
}  // namespace hone
