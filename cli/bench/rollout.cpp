#include "cli/bench/rollout.h"

#include <algorithm>
#include <optional>

#include "core/base/format.h"
#include "core/base/stopwatch.h"
#include "core/config/config.h"

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
  out.masks = engine.stats().mask_seconds - before.mask_seconds;
  out.masked_rows = engine.stats().masked_rows - before.masked_rows;
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

// Records whose fields end soon, so that random weights reach all parts of the schema.
constexpr const char* kRecords = R"({"type": "array", "minItems": 2000, "items": {"type": "object", "properties": {
  "id": {"type": "integer", "minimum": 0, "maximum": 999999}, "name": {"type": "string", "maxLength": 24},
  "kind": {"enum": ["article", "book", "thesis", "report"]}, "score": {"type": "number"},
  "tags": {"type": "array", "items": {"type": "string", "maxLength": 12}, "maxItems": 4}, "active": {"type": "boolean"}},
  "required": ["id", "name", "kind", "score", "tags", "active"]}})";

StructuredOutput bench_structure(const ModelBenchOptions& options) {
  StructuredOutput out{.json = options.json_schema.empty() ? kRecords : options.json_schema};
  check_settings([&](Fields& f) { out.fields(f); });
  return out;
}

// The run of the median time. A warm-up run before takes the memory and captures CUDA graphs.
RolloutTimes median_run(Engine& engine, const RolloutSize& size, int64_t vocabulary, int64_t repeats,
                        const StructuredOutput& structured) {
  std::vector<RolloutTimes> runs;
  for (int64_t round = 0; round <= repeats; ++round) {
    std::vector<GenerationRequest> requests = rollout_requests(size, vocabulary, static_cast<uint64_t>(round));
    for (GenerationRequest& request : requests) request.sampling.structured = structured;
    RolloutTimes times = time_rollout(engine, size, std::move(requests));
    if (round > 0) runs.push_back(std::move(times));
  }
  const auto middle = runs.begin() + std::ssize(runs) / 2;
  std::nth_element(runs.begin(), middle, runs.end(),
                   [](const RolloutTimes& a, const RolloutTimes& b) { return a.seconds < b.seconds; });
  return std::move(*middle);
}

// What structured output adds to a run of the same size without it.
std::string add_structured(Json& row, const RolloutTimes& masked, const RolloutTimes& plain) {
  const double micros = 1e6 * masked.masks / static_cast<double>(std::max<int64_t>(1, masked.masked_rows));
  row.set("structured_seconds", masked.seconds);
  row.set("structured_cost", masked.seconds / plain.seconds - 1);
  row.set("structured_decode_cost", masked.decode / plain.decode - 1);
  row.set("mask_s", masked.masks);
  row.set("mask_us", micros);
  return format_text("; structured output: %.2f s more than %.2f s (%+.1f%%), %.1f us of host time for a mask",
                     masked.seconds - plain.seconds, plain.seconds, 100 * (masked.seconds / plain.seconds - 1), micros);
}

std::string rollout(Context& context, Model& model, const ModelBenchOptions& options, const MachineLimits& limits,
                    Json& row) {
  const RolloutSize size{.prompts = options.prompts > 0 ? options.prompts : 256,
                         .num_generations = options.num_generations > 0 ? options.num_generations : 1,
                         .prompt_tokens = options.prompt_tokens,
                         .new_tokens = options.new_tokens};
  const EngineConfig config = bench_engine(options, size.completions(), size.length());
  std::optional<Tokenizer> tokenizer;
  if (!options.tokenizer.empty()) tokenizer = Tokenizer::load(options.tokenizer);
  HONE_CHECK(!tokenizer || tokenizer->vocab_size() <= model.shape().vocab_size, "bench: the tokenizer has ",
             tokenizer ? tokenizer->vocab_size() : 0, " ids, the model ", model.shape().vocab_size);
  Engine engine(context, model, tokenizer ? &*tokenizer : nullptr, config);
  const int64_t vocabulary = model.shape().vocab_size;
  const RolloutTimes times = median_run(engine, size, vocabulary, options.repeats, {});
  const double rate = static_cast<double>(size.completions() * size.new_tokens) / times.seconds;
  row.set("B", size.completions());
  row.set("prompt", size.prompt_tokens);
  row.set("new", size.new_tokens);
  row.set("num_generations", size.num_generations);
  row.set("kv_bytes_per_token", engine.stats().kv_bytes_per_token);
  row.set("kv_window_tokens", engine.stats().kv_window_tokens);
  row.set("seconds", times.seconds);
  row.set("tokens_per_second", rate);
  row.set("tok_s", rate);
  Roofline roofline(model, limits, config);
  const double experts_read = measure_experts_read(context, model, size.completions());
  roofline.set_experts_read(size.completions(), experts_read);
  row.set("experts_read", experts_read);
  const std::string shares = add_rollout(
      row, times, roofline.rollout(size.prompts, size.num_generations, size.prompt_tokens, size.new_tokens));
  std::string structured;
  if (tokenizer)
    structured =
        add_structured(row, median_run(engine, size, vocabulary, options.repeats, bench_structure(options)), times);
  row.set("share", row.at("roofline"));
  row.set("peak_gb", peak_gigabytes(context));
  return format_text("%lld completions, %lld + %lld tokens: %.1f tokens/s, ",
                     static_cast<long long>(size.completions()), static_cast<long long>(size.prompt_tokens),
                     static_cast<long long>(size.new_tokens), rate) +
         shares + structured;
}

[[maybe_unused]] const bool added =
    model_benches().add("rollout", {.run = rollout,
                                    .length = [](const ModelBenchOptions& o) { return o.prompt_tokens + o.new_tokens; },
                                    .peers = {"hf_generate", "hf_generate_batch"}});

}  // namespace
}  // namespace hone
