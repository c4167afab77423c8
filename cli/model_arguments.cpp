#include "cli/model_arguments.h"

#include "core/io/file.h"
#include "model/io/adapter.h"

namespace hone {

void quantization_arguments(Arguments& a, EngineConfig& engine) {
  a.option("quantization", engine.quantization,
           "none | int8 | fp8: the blocks' matrices in one byte a number, in the place of the model's own");
  a.option("kv-cache-dtype", engine.kv_cache_dtype, "of keys and values: auto (as the weights) | fp8");
}

void sampling_arguments(Arguments& a, SamplingParams& sampling) {
  a.option("max-tokens", sampling.max_tokens, "longest reply in tokens");
  a.option("min-tokens", sampling.min_tokens, "shortest reply in tokens: no stop before");
  a.option("temperature", sampling.temperature, "0 is greedy");
  a.option("top-p", sampling.top_p, "smallest set of tokens whose probability reaches this");
  a.option("top-k", sampling.top_k, "this many most probable tokens; 0 = all");
  a.option("min-p", sampling.min_p, "tokens at least this share of the most probable one's probability; 0 = all");
  a.option("repetition-penalty", sampling.repetition_penalty,
           "divides positive logits of tokens that came before, multiplies negative ones");
  a.option("presence-penalty", sampling.presence_penalty, "taken off the logits of tokens that the reply holds");
  a.option("frequency-penalty", sampling.frequency_penalty, "the same, as often as the reply holds them");
  a.option("seed", sampling.seed, "of the draws");
  a.options("stop", sampling.stop, "string that ends a reply (may be repeated)");
  a.option("thinking-budget", sampling.thinking_budget,
           "tokens after which thinking-end follows by force; 0 = no budget");
  a.option("thinking-end", sampling.thinking_end, "text that ends the thinking");
}

void speculative_arguments(Arguments& a, SpeculativeConfig& speculative) {
  a.option("speculative-method", speculative.method,
           "what guesses the next tokens, to be faster: none | ngram | draft_model");
  a.option("num-speculative-tokens", speculative.num_speculative_tokens, "tokens guessed before a pass, at most");
  a.option("prompt-lookup-min", speculative.prompt_lookup_min,
           "ngram: last tokens that must have stood in the text before, at least");
  a.option("prompt-lookup-max", speculative.prompt_lookup_max, "ngram: so many that are looked for first");
  a.option("speculative-model", speculative.model, "draft_model: folder of a smaller model with the same tokenizer");
}

void ModelArguments::arguments(Arguments& a, bool required) {
  a.option("model", folder_, "model folder (config.json, safetensors, tokenizer), or a PEFT adapter's", required);
  a.option("device", device_name_, "cpu | cuda | auto");
  a.option("dtype", dtype_, "of weights and activations: f32 | bf16 | auto (bf16 on cuda, f32 on cpu)");
  a.option("numerics", numerics_, "exact | fast (a GPU's matrix products may depend on the number of rows)");
}

void ModelArguments::open() {
  require_usage(!folder_.empty(), "--model is required");
  const std::filesystem::path folder = expand_path(folder_);
  device_ = open_device(device_name_);
  context_ = std::make_unique<Context>(*device_);
  context_->set_numerics(numerics_of(numerics_));
  model_ = load_model(*context_, folder, {.dtype = model_dtype(dtype_, context_->kind())});
  if (const std::filesystem::path from = tokenizer_folder(folder); Tokenizer::is_in(from))
    tokenizer_ = Tokenizer::load(from);
  if (tokenizer_)
    HONE_CHECK(tokenizer_->vocab_size() <= model_->shape().vocab_size, folder.string(),
               ": the tokenizer has ids up to ", tokenizer_->vocab_size() - 1, ", the model's vocabulary is ",
               model_->shape().vocab_size);
}

const Tokenizer& ModelArguments::tokenizer() const {
  HONE_CHECK(tokenizer_, folder_,
             ": the folder has no tokenizer (tokenizer.json or tokenizer.model); give rows of ids instead");
  return *tokenizer_;
}

}  // namespace hone
