#include "cli/bench/model_bench.h"
#include "core/base/format.h"
#include "model/flops.h"

namespace hone {
namespace {

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

[[maybe_unused]] const bool added = model_benches().add("prefill", {.run = prefill});

}  // namespace
}  // namespace hone
