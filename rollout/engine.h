#pragma once
// Engine: continuous batching over one model with a paged KV cache. The sampled tokens and log-probs of a request never
// depend on other requests, chunked prefill, preemption or the prefix cache. Any thread may call submit(), cancel() and
// end_step(); all other functions belong to the thread that calls step().
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/config/fields.h"
#include "core/text/grammar/structured_output.h"
#include "core/text/tokenizer/tokenizer.h"
#include "model/model.h"
#include "rollout/kv/kv_layout.h"

namespace hone {

// A bias that is added to the logit of a token id.
struct LogitBias {
  int64_t id = 0;
  double bias = 0;  // in [-100, 100]
  void fields(Fields& f);
};

// How a completion is sampled. Logits are adjusted in this order, with vLLM's formulas:
//   1. Before min_tokens, the logits of stop ids become -infinity.
//   2. logit_bias is added.
//   3. For ids of the prompt or the completion, a positive logit is divided by repetition_penalty, another one
//      multiplied by it.
//   4. For ids of the completion, frequency_penalty * count and presence_penalty are subtracted.
//   5. The logits of ids that `structured` does not allow next become -infinity (rollout/structured_state.h).
// Then come temperature, top_k, top_p and min_p (kernels/sampling/sample.h).
struct SamplingParams {
  double temperature = 1, top_p = 1, min_p = 0;
  int64_t top_k = 0;         // 0 = all
  int64_t max_tokens = 256;  // in [1, 2^31); the model's positions may end a completion earlier
  int64_t min_tokens = 0;    // up to here stop ids are not sampled, and stop strings do not end the completion
  int64_t seed = 0;
  double repetition_penalty = 1;                       // in [0.01, 100]
  double presence_penalty = 0, frequency_penalty = 0;  // in [-2, 2]
  std::vector<LogitBias> logit_bias{};                 // each id at most once
  bool ignore_eos = false;
  std::vector<std::string> stop;  // strings that end a completion; its text is cut before the string, its ids are not
  std::vector<int64_t> stop_ids;  // in addition to the tokenizer's
  // If a completion of this many tokens does not contain thinking_end, the tokens of thinking_end are forced, and
  // sampling continues after them. 0 = no budget.
  int64_t thinking_budget = 0;
  std::string thinking_end = "</think>";
  // What the text must look like. With a thinking_budget it begins after thinking_end. Stop ids are allowed only where
  // the text is complete; if it is complete and cannot go on, the completion ends in spite of min_tokens. Stop strings
  // and max_tokens may end it earlier.
  StructuredOutput structured{};
  void fields(Fields& f);
  // The names of the settings that change the sampled distribution from softmax(logits / temperature). It is the
  // distribution of CompletionOutput::truncated_logp.
  std::vector<std::string> distribution_changes() const;
};

struct GenerationRequest {
  std::vector<int32_t> prompt;  // at least one token
  int64_t n = 1;                // completions; they share the prompt's KV blocks
  // Every RNG draw is a function of id, sampling.seed, the completion index and the position.
  uint64_t id = 0;
  SamplingParams sampling;
  int64_t top_logprobs = 0;      // most likely ids to return for each sampled token, and with prompt_logprobs for each
                                 // prompt token; at most 64
  bool prompt_logprobs = false;  // return the prompt's log-probs as well; max_tokens may then be 0
  int64_t adapter = 0;           // an id of Engine::load_adapter(); 0 = the model itself
};

struct TokenLogp {
  int32_t id = 0;
  float logp = 0;  // log_softmax(logits)
};

// One completion. For a sampled token, logp is log_softmax(logits / temperature) before penalties, biases and
// truncation (what a learner computes), raw_logp is log_softmax(logits), and truncated_logp is of the sampled
// distribution. For a forced token all three are 0.
struct CompletionOutput {
  std::vector<int32_t> ids;  // with the stop token
  std::vector<float> logp, truncated_logp, raw_logp;
  std::vector<std::vector<TokenLogp>> top_logprobs;  // the most likely ids at each position, best first; none if forced
  std::vector<bool> forced;                          // which ids are forced tokens; empty = none
  std::vector<int64_t> versions;                     // policy version of each id (Engine::set_policy_version)
  // log_softmax(logits) of each prompt token (a learner's at temperature 1). The first token has 0, and no top
  // log-probs. Empty unless requested.
  std::vector<float> prompt_logp;
  std::vector<std::vector<TokenLogp>> prompt_top_logprobs;
  std::string text;           // without special tokens and the stop string
  std::string finish_reason;  // stop | length | why it failed, as a sentence; the run continues
  bool failed = false;
  bool rejected = false;  // failed because the engine cannot serve such a request; any other failure is the engine's
};

// Speculative decoding with vLLM's names (rollout/proposer.h): one pass checks several draft tokens. Completions stay
// the same.
struct SpeculativeConfig {
  std::string method = "none";         // none | ngram | draft_model | mtp
  int64_t num_speculative_tokens = 4;  // maximum draft tokens of a completion in a pass
  int64_t prompt_lookup_min = 5,
          prompt_lookup_max = 5;  // ngram: shortest and longest n-gram that must have come before
  std::string model{};            // draft_model: folder of a smaller model with the same tokenizer
  void fields(Fields& f);
  // True if the proposer has keys and values of its own under the block numbers of the KV cache.
  bool shares_kv_blocks() const { return method == "draft_model" || method == "mtp"; }
};

struct EngineConfig {
  int64_t kv_block_size = 16;       // tokens of a KV block
  int64_t kv_cache_tokens = 65536;  // of the KV cache; requests beyond it wait, or are preempted and recomputed
  int64_t max_batch_tokens = 2048;  // of one forward pass: prefill chunks and decodes
  int64_t max_sequences = 256;      // completions that run at the same time
  bool prefix_caching = true;       // reuse the KV blocks of earlier requests that begin with the same tokens
  SpeculativeConfig speculative{};
  // none | int8 | fp8: format of the matrices of the layers (model/quantized_model.h). The quantized matrices take
  // memory in addition to the model's weights, or replace them if owns_model is set.
  std::string quantization = "none";
  bool owns_model = false;              // only the engine uses the model, whose weights never change
  std::string kv_cache_dtype = "auto";  // auto: the weights' dtype | fp8: e4m3 with a scale for each token and head
  bool release_kv_blocks = true;        // layers with a window give their KV blocks back; false: for comparison only
  void fields(Fields& f);
  // True if the log-probs of completions equal the model's own, bit for bit.
  bool exact() const { return quantization == "none" && kv_cache_dtype == "auto"; }
  // The same config in the model's own arithmetic.
  EngineConfig as_exact() const;
  // The dtype of keys and values for a model of this dtype; u8 means e4m3.
  DType kv_dtype(DType model) const { return kv_cache_dtype == "fp8" ? DType::u8 : model; }
  // The layout of the KV cache for a model with these groups. If a proposer shares the block numbers, all layers share
  // one block table.
  KvLayout kv_layout(std::span<const KvGroupShape> groups) const;
};

struct EngineStats {
  int64_t prompt_tokens = 0, generated_tokens = 0, forced_tokens = 0, steps = 0, preemptions = 0;
  int64_t shared_prompt_tokens = 0;  // prompt tokens that completions share with the first of their request
  // Device seconds of mixed passes (with prompts, or with requests that a decode pass cannot serve), and of decode
  // passes.
  double prefill_seconds = 0, decode_seconds = 0;
  int64_t cached_tokens = 0;       // prefix cache hits when requests start, or start again after preemption
  int64_t kv_tokens_used = 0;      // token slots of the KV blocks that requests hold now, as a share of kv_cache_tokens
  int64_t kv_bytes_per_token = 0;  // of the KV cache (KvLayout::bytes_per_token)
  int64_t kv_window_tokens = 0;  // tokens that layers with a window keep of a decoding sequence at most; 0 = no windows
  // Drafts, their tokens, and the accepted ones of those: a draft yields 1 + accepted / drafts tokens on average.
  int64_t drafts = 0, draft_tokens = 0, accepted_tokens = 0;
  double draft_seconds = 0;  // device seconds of proposals by a model
  double mask_seconds = 0;   // host seconds of token masks (SamplingParams::structured), beside the device's passes
  int64_t masked_rows = 0;   // sampled rows with a token mask
};

class Engine {
 public:
  // Reads the model's weights in place: the next step sees a learner's update without a copy. The learner must then
  // call set_policy_version(). tokenizer may be null: stop strings are then impossible, and text stays empty. Loads the
  // draft model, if any, into the engine's own memory. Context, model and tokenizer must outlive the engine.
  Engine(Context& context, Model& model, const Tokenizer* tokenizer, const EngineConfig& config);
  ~Engine();

  // `request` is GenerationRequest::id. `completion` is the completion so far, without text and finish_reason; its last
  // entries belong to the new token.
  using OnToken = std::function<void(uint64_t request, int64_t completion_index, const CompletionOutput& completion)>;
  using OnFinish = std::function<void(uint64_t request, std::vector<CompletionOutput>)>;
  // Queues the request and returns a ticket for cancel(). step() makes the callbacks. A failure of one request, or an
  // exception of its on_token, fails the completions of that request only. step() rethrows an exception of on_finish at
  // its end.
  uint64_t submit(GenerationRequest request, OnFinish on_finish, OnToken on_token = {});
  void cancel(uint64_t ticket);
  // Declares, between two steps, that the weights are now `version`; the first weights are version 0. Invalidates the
  // prefix cache and quantizes the weights again. Running sequences keep their keys and values, or recompute them first
  // if `recompute` is set.
  void set_policy_version(int64_t version, bool recompute = false);
  int64_t version() const;
  // Loads a LoRA adapter of the model from a folder in PEFT's format, and returns its id for requests. The adapter
  // shares the model's weights. Call it between two steps. Throws an Error that says what does not fit.
  int64_t load_adapter(const std::filesystem::path& folder);
  // Requests with this adapter that step() has seen are finished, later ones are rejected. The memory is freed with the
  // last request. Call it between two steps. Returns false if there is no such adapter.
  bool unload_adapter(int64_t id);
  // Frees, between two steps, the memory that the engine does not need while nobody samples: the KV cache with
  // forks and cached prefixes, caches of drafts, quantized weights, tables of decode passes, and captured graphs, which
  // hold addresses. Weights of a draft model stay: reading its folder takes longer than a step. So does the scratch
  // memory of the context, which other work shares. The next step() with a request takes the memory again, wherever it
  // is, quantizes the weights, and captures graphs anew; completions are the same. While the engine rests, the model's
  // weights may change and move. Throws an Error if a request is in flight, an adapter is loaded, or owns_model is set
  // with a quantization: the weights exist once. Does nothing to a resting engine.
  void rest();
  bool resting() const;
  // Runs one forward pass for each adapter that has sequences. If all running sequences decode, runs up to 32 passes,
  // until an eighth of the completions has ended or a call arrives. Returns false when no request is left. Throws if
  // the model itself cannot be computed (weights of NaN, a device failure).
  bool step();
  // Makes a running step() return after its current pass.
  void end_step();
  // Calls submit() and step() until all requests are done. Returns their completions in the order of the requests.
  std::vector<std::vector<CompletionOutput>> generate(std::vector<GenerationRequest> requests,
                                                      const std::function<void(int64_t finished)>& progress = {});
  const EngineStats& stats() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hone
