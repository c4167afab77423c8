// The settings of sampling, speculative decoding and the engine: help texts and bounds.
#include <algorithm>

#include "model/quantized_model.h"
#include "rollout/proposer.h"

namespace hone {

// Kernels compute in f32: with a smaller temperature the scaled logits may overflow, a smaller top_p may round to 0.
constexpr double min_temperature = 1e-6, min_top_p = 1e-30;

void LogitBias::fields(Fields& f) {
  f("id", id, "token id");
  f("bias", bias, "added to the token's logit, in [-100, 100]");
  f.require("id", id >= 0 && id <= INT32_MAX, concat("id must be in [0, ", INT32_MAX, "]"));
  f.require("bias", bias >= -100 && bias <= 100, "bias must be in [-100, 100]");
}

void SamplingParams::fields(Fields& f) {
  f("temperature", temperature, "softmax temperature; 0 = greedy");
  f("top_p", top_p,
    "sample from the smallest set of most probable tokens whose probabilities add up to this; 1 = all tokens");
  f("top_k", top_k, "sample from this many most probable tokens; 0 = all tokens");
  f("min_p", min_p,
    "sample from tokens whose probability is at least this fraction of the largest one; 0 = all tokens");
  f("max_tokens", max_tokens, "maximum length of a completion in tokens");
  f("min_tokens", min_tokens, "minimum length of a completion in tokens: nothing stops it before; 0 = none");
  f("seed", seed, "seed of sampling");
  f("repetition_penalty", repetition_penalty,
    "penalty for tokens of the prompt and the completion: divides a positive logit, multiplies a negative one; 1 = "
    "off");
  f("presence_penalty", presence_penalty,
    "subtracted from the logit of each token that the completion contains; 0 = off");
  f("frequency_penalty", frequency_penalty,
    "subtracted from a token's logit for each time that the completion contains it; 0 = off");
  f("logit_bias", logit_bias, "biases that are added to the logits of single tokens; empty = none");
  f("ignore_eos", ignore_eos, "do not stop at the end-of-sequence token");
  f("stop", stop, "strings that end a completion and are cut from its text; empty = none");
  f.alias("stop_ids", "stop_token_ids");
  f("stop_token_ids", stop_ids, "token ids that end a completion, in addition to the tokenizer's; empty = none");
  f("thinking_budget", thinking_budget,
    "thinking tokens after which thinking_end is forced, unless it came before; 0 = no budget");
  f("thinking_end", thinking_end, "text that ends the thinking; its forced tokens are not trained on");
  f("structured", structured, "what the text of a completion must look like; without keys = anything");
  f.require("temperature", temperature == 0 || (temperature >= min_temperature && temperature <= 1e6),
            concat("temperature must be 0 (greedy) or in [", min_temperature, ", 1e6]"));
  f.require("top_p", top_p >= min_top_p && top_p <= 1, concat("top_p must be in [", min_top_p, ", 1]"));
  f.require("top_k", top_k >= 0, "top_k must be 0 or more");
  f.require("min_p", min_p >= 0 && min_p <= 1, "min_p must be in [0, 1]");
  f.require("max_tokens", max_tokens > 0 && max_tokens <= INT32_MAX,
            concat("max_tokens must be in [1, ", INT32_MAX, "]"));
  f.require("min_tokens", min_tokens >= 0 && min_tokens <= max_tokens, "min_tokens must be in [0, max_tokens]");
  f.require("repetition_penalty", repetition_penalty >= 0.01 && repetition_penalty <= 100,
            "repetition_penalty must be in [0.01, 100]");
  f.require("presence_penalty", presence_penalty >= -2 && presence_penalty <= 2, "presence_penalty must be in [-2, 2]");
  f.require("frequency_penalty", frequency_penalty >= -2 && frequency_penalty <= 2,
            "frequency_penalty must be in [-2, 2]");
  f.require("thinking_budget", thinking_budget >= 0 && thinking_budget < max_tokens,
            "thinking_budget must be in [0, max_tokens)");
  f.require("thinking_end", thinking_budget == 0 || !thinking_end.empty(),
            "a thinking_budget needs a thinking_end: set the text that ends the thinking");
}

std::vector<std::string> SamplingParams::distribution_changes() const {
  const std::pair<const char*, bool> settings[] = {
      {"temperature = 0", temperature == 0},
      {"top_k", top_k > 0},
      {"top_p", top_p < 1},
      {"min_p", min_p > 0},
      {"min_tokens", min_tokens > 0},
      {"repetition_penalty", repetition_penalty != 1},
      {"presence_penalty", presence_penalty != 0},
      {"frequency_penalty", frequency_penalty != 0},
      {"logit_bias", std::ranges::any_of(logit_bias, [](const LogitBias& entry) { return entry.bias != 0; })},
      {"structured", structured.enabled()}};
  std::vector<std::string> out;
  for (const auto& [name, changes] : settings)
    if (changes) out.emplace_back(name);
  return out;
}

void SpeculativeConfig::fields(Fields& f) {
  f("method", method,
    "speculative decoding: none | ngram (drafts repeat what followed the same tokens before) | draft_model | mtp (the "
    "model's own modules of multi-token prediction); it changes the speed, never a completion");
  f("num_speculative_tokens", num_speculative_tokens, "maximum number of draft tokens of a completion in a pass");
  f("prompt_lookup_min", prompt_lookup_min,
    "ngram: fewest tokens at the end of the text (prompt and completion) that must have occurred before");
  f("prompt_lookup_max", prompt_lookup_max, "ngram: most tokens at the end of the text that are searched for");
  f("model", model, "draft_model: folder of a smaller model with the same tokenizer; empty with the other methods");
  f.require("method", proposers().contains(method), proposers().unknown(method));
  f.require("num_speculative_tokens", num_speculative_tokens > 0 && num_speculative_tokens <= 64,
            "num_speculative_tokens must be in [1, 64]");
  f.require("prompt_lookup_min", prompt_lookup_min > 0, "prompt_lookup_min must be positive");
  f.require("prompt_lookup_max", prompt_lookup_max >= prompt_lookup_min,
            "prompt_lookup_max must be prompt_lookup_min or more");
  f.require("model", (method == "draft_model") == !model.empty(),
            model.empty() ? "method draft_model needs the folder of a model (speculative.model, --speculative-model)"
                          : concat("a model is for method draft_model, not '", method, "'"));
}

void EngineConfig::fields(Fields& f) {
  f("kv_block_size", kv_block_size, "tokens of a KV block");
  f("kv_cache_tokens", kv_cache_tokens,
    "size of the KV cache in tokens; requests beyond it wait, or are preempted and recomputed");
  f.alias("max_batch_tokens", "max_num_batched_tokens");
  f("max_num_batched_tokens", max_batch_tokens,
    "maximum tokens of a forward pass, prefill chunks and decodes together");
  f.alias("max_sequences", "max_num_seqs");
  f("max_num_seqs", max_sequences, "maximum number of completions that run at the same time");
  f.alias("prefix_caching", "enable_prefix_caching");
  f("enable_prefix_caching", prefix_caching,
    "reuse the KV blocks of earlier requests for prompts that begin with the same tokens");
  f("speculative", speculative, "speculative decoding");
  f("quantization", quantization,
    "none | int8 | fp8: store the matrices of the layers in one byte per weight. Log-probs then differ from the "
    "learner's, and objectives correct for it");
  f("kv_cache_dtype", kv_cache_dtype,
    "dtype of the KV cache: auto (the weights' dtype) | fp8 (e4m3 with a scale for each token and head; log-probs then "
    "differ as with quantization)");
  f.require("kv_block_size", kv_block_size > 0, "kv_block_size must be positive");
  f.require("kv_cache_tokens", kv_cache_tokens >= kv_block_size && kv_cache_tokens <= INT32_MAX,
            concat("kv_cache_tokens must hold at least one block, and be at most ", INT32_MAX));
  f.require("max_num_batched_tokens", max_batch_tokens > 0 && max_batch_tokens <= INT32_MAX,
            concat("max_num_batched_tokens must be in [1, ", INT32_MAX, "]"));
  f.require("max_num_seqs", max_sequences > 0, "max_num_seqs must be positive");
  f.require("quantization", quantization == "none" || quant_formats().contains(quantization),
            concat(quant_formats().unknown(quantization), ", none"));
  f.require("kv_cache_dtype", kv_cache_dtype == "auto" || kv_cache_dtype == "fp8",
            concat("kv_cache_dtype must be auto or fp8, not '", kv_cache_dtype, "'"));
}

KvLayout EngineConfig::kv_layout(std::span<const KvGroupShape> groups) const {
  return speculative.shares_kv_blocks() || !release_kv_blocks ? one_table(groups) : tables_by_window(groups);
}

EngineConfig EngineConfig::as_exact() const {
  EngineConfig out = *this;
  out.quantization = "none";
  out.kv_cache_dtype = "auto";
  return out;
}

}  // namespace hone
