#include "cli/bench/rollout.h"

#include <algorithm>

#include "core/base/format.h"
#include "core/base/stopwatch.h"

namespace hone {

std::vector<GenerationRequest> rollout_requests(const RolloutSize& size, int64_t vocabulary, uint64_t round) {
  std::vector<GenerationRequest> out;
  for (int64_t i = 0; i < size.prompts; ++i) {
    const uint64_t id = round * static_cast<uint64_t>(size.prompts) + static_cast<uint64_t>(i);
    out.push_back({random_tokens(size.prompt_tokens, vocabulary, id),
                   size.num_generations,
                   id,
                   {.max_tokens = size.new_tokens, .ignore_eos = true, .stop = {}, .stop_ids = {}}});
  }
  return out;
}

RolloutTimes time_rollout(Engine& engine, const RolloutSize& size, std::vector<GenerationRequest> requests) {
  const EngineStats before = engine.stats();
  const Stopwatch watch;
  engine.set_policy_version(engine.version() + 1);
  RolloutTimes out{.completions = engine.generate(std::move(requests))};
  out.seconds = watch.seconds();
  out.prefill = engine.stats().prefill_seconds - before.prefill_seconds;
  out.decode = engine.stats().decode_seconds - before.decode_seconds;
  out.draft = engine.stats().draft_seconds - before.draft_seconds;
  out.drafts = engine.stats().drafts - before.drafts;
  out.accepted = engine.stats().accepted_tokens - before.accepted_tokens;
  for (const std::vector<CompletionOutput>& completions : out.completions)
    for (const CompletionOutput& completion : completions) {
      HONE_CHECK(!completion.failed, "bench: a completion failed: ", completion.finish_reason);
      HONE_CHECK(std::ssize(completion.ids) == size.new_tokens, "bench: a completion has ", completion.ids.size(),
                 " tokens, not ", size.new_tokens);
    }
  return out;
}

std::string add_rollout(Json& row, const RolloutTimes& times, const Roofline::Rollout& roofline) {
  const double host = std::max(0.0, times.seconds - times.prefill - times.decode - times.draft),
               least = roofline.prefill + roofline.decode;
  for (const auto& [name, seconds] :
       {std::pair{"prefill", times.prefill}, {"decode", times.decode}, {"draft", times.draft}, {"host", host}}) {
    row.set(concat(name, "_s"), seconds);
    row.set(concat(name, "_share"), seconds / times.seconds);
  }
  const double accepted = static_cast<double>(times.accepted) / static_cast<double>(std::max<int64_t>(1, times.drafts));
  if (times.drafts > 0) row.set("accepted_per_draft", accepted);
  row.set("roofline_s", least);
  row.set("roofline", least / times.seconds);
  row.set("prefill_roofline", roofline.prefill / times.prefill);
  row.set("decode_roofline", roofline.decode / times.decode);
  return format_text(
      "%.0f%% of the roofline (prefill %.0f%%, decode %.0f%%); time: prefill %.1f%%, decode %.1f%%, host %.1f%%",
      100 * least / times.seconds, 100 * roofline.prefill / times.prefill, 100 * roofline.decode / times.decode,
      100 * times.prefill / times.seconds, 100 * times.decode / times.seconds, 100 * host / times.seconds);
}

namespace {

std::string rollout(Context& context, Model& model, const ModelBenchOptions& options, const MachineLimits& limits,
                    Json& row) {
  const RolloutSize size{.prompts = options.prompts > 0 ? options.prompts : 256,
                         .num_generations = options.num_generations > 0 ? options.num_generations : 1,
                         .prompt_tokens = options.prompt_tokens,
                         .new_tokens = options.new_tokens};
  const EngineConfig config = bench_engine(options, size.completions(), size.length());
  Engine engine(context, model, nullptr, config);
  std::vector<RolloutTimes> runs;
  for (int64_t round = 0; round <= options.repeats;
       ++round) {  // round 0 is the warm-up: it takes the memory and captures CUDA graphs
    RolloutTimes times =
        time_rollout(engine, size, rollout_requests(size, model.shape().vocab_size, static_cast<uint64_t>(round)));
    if (round > 0) runs.push_back(std::move(times));
  }
  const auto middle = runs.begin() + std::ssize(runs) / 2;
  std::nth_element(runs.begin(), middle, runs.end(),
                   [](const RolloutTimes& a, const RolloutTimes& b) { return a.seconds < b.seconds; });
  const double rate = static_cast<double>(size.completions() * size.new_tokens) / middle->seconds;
  row.set("B", size.completions());
  row.set("prompt", size.prompt_tokens);
  row.set("new", size.new_tokens);
  row.set("num_generations", size.num_generations);
  row.set("seconds", middle->seconds);
  row.set("tokens_per_second", rate);
  row.set("tok_s", rate);
  const std::string shares = add_rollout(
      row, *middle,
      Roofline(model, limits, config).rollout(size.prompts, size.num_generations, size.prompt_tokens, size.new_tokens));
  row.set("share", row.at("roofline"));
  row.set("peak_gb", peak_gigabytes(context));
  return format_text("%lld completions, %lld + %lld tokens: %.1f tokens/s, ",
                     static_cast<long long>(size.completions()), static_cast<long long>(size.prompt_tokens),
                     static_cast<long long>(size.new_tokens), rate) +
         shares;
}

[[maybe_unused]] const bool added =
    model_benches().add("rollout", {.run = rollout,
                                    .length = [](const ModelBenchOptions& o) { return o.prompt_tokens + o.new_tokens; },
                                    .peers = {"hf_generate", "hf_generate_batch"}});

}  // namespace
}  // namespace hone
