#include "model/quantized_model.h"
#include "rollout/proposer.h"

namespace hone {

// Kernels compute with 32-bit floats: a smaller temperature may divide logits beyond their range, a smaller top_p may
// be 0.
constexpr double least_temperature = 1e-6, least_top_p = 1e-30;

void LogitBias::fields(Fields& f) {
  f("id", id, "token id");
  f("bias", bias, "what its logit has added");
  f.require("id", id >= 0 && id <= INT32_MAX, concat("id must be in [0, ", INT32_MAX, "]"));
  f.require("bias", bias >= -100 && bias <= 100, "bias must be in [-100, 100]");
}

void SamplingParams::fields(Fields& f) {
  f("temperature", temperature, "softmax temperature; 0 is greedy");
  f("top_p", top_p, "smallest set of tokens whose probability reaches this; 1 = all");
  f("top_k", top_k, "this many most probable tokens; 0 = all");
  f("min_p", min_p, "tokens at least this share of the most probable one's probability; 0 = all");
  f("max_tokens", max_tokens, "longest reply in tokens");
  f("min_tokens", min_tokens, "shortest reply in tokens: no stop before");
  f("seed", seed, "of every draw");
  f("repetition_penalty", repetition_penalty,
    "divides a positive logit of a token that the prompt or the reply holds, multiplies a negative one");
  f("presence_penalty", presence_penalty, "taken off the logit of a token that the reply holds");
  f("frequency_penalty", frequency_penalty, "taken off the logit of a token as often as the reply holds it");
  f("logit_bias", logit_bias, "added to the logits of some tokens");
  f("ignore_eos", ignore_eos, "go on past the end-of-sequence token");
  f("stop", stop, "strings that end a reply");
  f.alias("stop_ids", "stop_token_ids");
  f("stop_token_ids", stop_ids, "token ids that end a completion, besides the tokenizer's");
  f("thinking_budget", thinking_budget,
    "tokens of a reply after which thinking_end follows by force, unless it came before; 0 = no budget");
  f("thinking_end", thinking_end, "text that ends the thinking; forced tokens are not trained on");
  f.require("temperature", temperature == 0 || (temperature >= least_temperature && temperature <= 1e6),
            concat("temperature must be in [0, 1e6], and ", least_temperature, " at least where it is not 0 (greedy)"));
  f.require("top_p", top_p >= least_top_p && top_p <= 1,
            concat("top_p must be in (0, 1], and ", least_top_p, " at least"));
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
  f.require("thinking_end", thinking_budget == 0 || !thinking_end.empty(), "a thinking_budget needs a thinking_end");
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
      {"logit_bias", std::ranges::any_of(logit_bias, [](const LogitBias& of) { return of.bias != 0; })}};
  std::vector<std::string> out;
  for (const auto& [name, changes] : settings)
    if (changes) out.emplace_back(name);
  return out;
}

void SpeculativeConfig::fields(Fields& f) {
  f("method", method,
    "what guesses a reply's next tokens: none | ngram (what followed the same tokens before) | draft_model; replies "
    "stay the same");
  f("num_speculative_tokens", num_speculative_tokens, "tokens guessed before a pass, at most");
  f("prompt_lookup_min", prompt_lookup_min,
    "ngram: tokens at the end of the text, prompt and reply, that must have stood in it before, at least");
  f("prompt_lookup_max", prompt_lookup_max, "ngram: so many that are looked for first");
  f("model", model, "draft_model: folder of a smaller model with the same tokenizer");
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
  f("kv_block_size", kv_block_size, "tokens of one cache block");
  f("kv_cache_tokens", kv_cache_tokens,
    "tokens the KV cache holds; more requests than fit wait, or are computed again");
  f.alias("max_batch_tokens", "max_num_batched_tokens");
  f("max_num_batched_tokens", max_batch_tokens, "tokens of one forward pass: prefill chunks and decodes together");
  f.alias("max_sequences", "max_num_seqs");
  f("max_num_seqs", max_sequences, "sequences that decode at the same time");
  f.alias("prefix_caching", "enable_prefix_caching");
  f("enable_prefix_caching", prefix_caching,
    "keep the cache of requests before for those that begin with the same tokens");
  f("speculative", speculative, "tokens guessed ahead");
  f("quantization", quantization,
    "none | int8 | fp8: the blocks' matrices in one byte a number. Log-probs are then not the learner's: objectives "
    "correct for it");
  f("kv_cache_dtype", kv_cache_dtype,
    "auto (as the weights) | fp8 (e4m3 with a scale for each token and head; log-probs as with quantization)");
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

EngineConfig EngineConfig::as_exact() const {
  EngineConfig out = *this;
  out.quantization = "none";
  out.kv_cache_dtype = "auto";
  return out;
}

}  // namespace hone
