#include "cli/model_arguments.h"

#include "core/io/file.h"
#include "model/io/adapter.h"
#include "model/io/model_folder.h"

namespace hone {

void quantization_arguments(Arguments& a, EngineConfig& engine) {
  a.option("quantization", engine.quantization,
           "none | int8 | fp8: store the matrices of the layers in one byte per weight");
  a.option("kv-cache-dtype", engine.kv_cache_dtype, "dtype of the KV cache: auto (the weights' dtype) | fp8");
}

void sampling_arguments(Arguments& a, SamplingParams& sampling) {
  a.option("max-tokens", sampling.max_tokens, "maximum length of a completion in tokens");
  a.option("min-tokens", sampling.min_tokens,
           "minimum length of a completion in tokens: nothing stops it before; 0 = none");
  a.option("temperature", sampling.temperature, "softmax temperature; 0 = greedy");
  a.option("top-p", sampling.top_p,
           "sample from the smallest set of most probable tokens whose probabilities add up to this; 1 = all tokens");
  a.option("top-k", sampling.top_k, "sample from this many most probable tokens; 0 = all tokens");
  a.option("min-p", sampling.min_p,
           "sample from tokens whose probability is at least this fraction of the largest one; 0 = all tokens");
  a.option("repetition-penalty", sampling.repetition_penalty,
           "penalty for tokens of the prompt and the completion: divides positive logits, multiplies negative ones; 1 "
           "= off");
  a.option("presence-penalty", sampling.presence_penalty,
           "subtracted from the logit of each token that the completion contains; 0 = off");
  a.option("frequency-penalty", sampling.frequency_penalty,
           "subtracted from a token's logit for each time that the completion contains it; 0 = off");
  a.option("seed", sampling.seed, "seed of sampling");
  a.options("stop", sampling.stop, "string that ends a completion and is cut from its text (may be repeated)");
  a.option("thinking-budget", sampling.thinking_budget,
           "thinking tokens after which thinking-end is forced, unless it came before; 0 = no budget");
  a.option("thinking-end", sampling.thinking_end, "text that ends the thinking");
}

void structured_arguments(Arguments& a, StructuredOutput& structured) {
  a.option("json-schema", structured.json,
           "JSON schema that the completion is valid under: a file, or the schema itself; empty = none");
  a.flag("json-object", structured.json_object, "the completion is a JSON object");
  a.option("regex", structured.regex, "regular expression that the entire completion matches; empty = none");
  a.options("choice", structured.choice, "text that the completion may be (may be repeated)");
  a.option("grammar", structured.grammar,
           "grammar of the completion in GBNF or Lark's dialect: a file, or the grammar itself; empty = none");
  a.option("structural-tag", structured.structural_tag,
           "literal parts, schemas and free text in a row: a JSON file, or the JSON itself; empty = none");
  a.option("begin-after", structured.begin_after,
           "text after which the structure begins, such as '</think>'; empty = at once");
}

void read_structured_files(StructuredOutput& structured) {
  for (std::string* text : {&structured.json, &structured.grammar, &structured.structural_tag}) {
    std::error_code ignored;  // a text is often no possible path
    if (!text->empty() && std::filesystem::is_regular_file(expand_path(*text), ignored))
      *text = read_file(expand_path(*text));
  }
}

void speculative_arguments(Arguments& a, SpeculativeConfig& speculative) {
  a.option("speculative-method", speculative.method,
           "speculative decoding, for speed: none | ngram (drafts repeat the text) | draft_model | mtp (the model's "
           "modules)");
  a.option("num-speculative-tokens", speculative.num_speculative_tokens,
           "maximum number of draft tokens of a completion in a pass");
  a.option("prompt-lookup-min", speculative.prompt_lookup_min,
           "ngram: fewest tokens at the end of the text that must have occurred before");
  a.option("prompt-lookup-max", speculative.prompt_lookup_max,
           "ngram: most tokens at the end of the text that are searched for");
  a.option(
      "speculative-model", speculative.model,
      "draft_model: folder or .gguf file of a smaller model with the same tokenizer; empty with the other methods");
}

void ModelArguments::arguments(Arguments& a, bool required) {
  a.option("model", folder_,
           "model folder (config.json, safetensors, tokenizer), .gguf file, or folder of a PEFT adapter", required);
  a.flag("use-long-rope", use_long_rope_,
         "RoPE of the type longrope (Phi-3): take long_factor for all positions, so that texts may have "
         "max_position_embeddings tokens");
  a.option("device", device_name_, "cpu | cuda | auto");
  a.option("dtype", dtype_, "dtype of weights and activations: f32 | bf16 | auto (bf16 on cuda, f32 on cpu)");
  a.option(
      "numerics", numerics_,
      "exact (a result never depends on the batch) | fast (on a GPU, GEMM results may depend on the number of rows)");
}

void ModelArguments::chat_arguments(Arguments& a) {
  a.option("chat-template", chat_template_,
           "chat template: a file, a name of the model's templates, a built-in name (hone list chat-templates), or the "
           "template itself; empty = the model's own");
  a.option("chat-template-kwargs", chat_template_kwargs_,
           "JSON object of variables of the chat template: '{\"enable_thinking\": false}'");
}

ChatSettings ModelArguments::chat_settings() const {
  ChatSettings out{.chat_template = chat_template_};
  if (chat_template_kwargs_.empty()) return out;
  try {
    out.chat_template_kwargs = parse_json(chat_template_kwargs_, "--chat-template-kwargs");
    check_chat_template_kwargs(out.chat_template_kwargs, "--chat-template-kwargs");
  } catch (const Error& error) {  // a wrong option is a wrong command line
    throw UsageError(error.what());
  }
  return out;
}

void ModelArguments::open() {
  require_usage(!folder_.empty(), "--model is missing: give a model folder or a .gguf file");
  const std::filesystem::path folder = expand_path(folder_);
  const ChatSettings chat = chat_settings();
  HONE_CHECK(device_kind(device_name_) != DeviceKind::meta,
             "device meta computes nothing: hone plan uses it; set --device to cpu, cuda or auto");
  device_ = open_device(device_name_);
  context_ = std::make_unique<Context>(*device_);
  context_->set_numerics(numerics_of(numerics_));
  JsonObject changes;
  if (use_long_rope_) changes.emplace_back("use_long_rope", true);
  model_ = load_changed_model(*context_, folder, {.dtype = model_dtype(dtype_, context_->kind())}, changes);
  if (const std::filesystem::path from = tokenizer_folder(folder); Tokenizer::is_in(from))
    tokenizer_ = chat.with_settings(Tokenizer::load(from));
  if (tokenizer_)
    HONE_CHECK(tokenizer_->vocab_size() <= model_->shape().vocab_size, folder.string(),
               ": the tokenizer has ids up to ", tokenizer_->vocab_size() - 1, ", but the model's vocabulary has only ",
               model_->shape().vocab_size, " ids; use the model's own tokenizer");
}

const Tokenizer& ModelArguments::tokenizer() const {
  HONE_CHECK(tokenizer_, folder_,
             ": the folder has no tokenizer (tokenizer.json or tokenizer.model); add one, or give token ids as input");
  return *tokenizer_;
}

}  // namespace hone
