#pragma once
// Engine: continuous batching over one model with a paged KV cache. Sampled tokens and log-probs of a request never
// depend on its neighbours, on chunking, on preemption or on what is cached. submit() may be called from any thread;
// step() belongs to one.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/config/fields.h"
#include "core/text/tokenizer/tokenizer.h"
#include "model/model.h"

namespace hone {

// Added to the logit of a token id.
struct LogitBias {
  int64_t id = 0;
  double bias = 0;  // in [-100, 100]
  void fields(Fields& f);
};

// How a reply is drawn. Logits are changed in this order (the formulas of vLLM): ids that would end a reply before
// min_tokens become -infinity; logit_bias is added; of ids in the prompt or the reply, a logit above 0 is divided by
// repetition_penalty and another one multiplied by it; of ids in the reply, frequency_penalty times their number and
// presence_penalty are taken off. Then temperature, top_k, top_p and min_p (kernels/sampling/sample.h).
struct SamplingParams {
  double temperature = 1, top_p = 1, min_p = 0;
  int64_t top_k = 0;         // 0 = all
  int64_t max_tokens = 256;  // in [1, 2^31); fewer where the model's positions end
  int64_t min_tokens = 0;    // no stop before: neither an id, which is not drawn, nor a string that is whole by then
  int64_t seed = 0;
  double repetition_penalty = 1;                       // in [0.01, 100]
  double presence_penalty = 0, frequency_penalty = 0;  // in [-2, 2]
  std::vector<LogitBias> logit_bias{};                 // of an id at most once
  bool ignore_eos = false;
  std::vector<std::string>
      stop;  // ends a reply once its text contains one; the text is cut before it, the ids are kept
  std::vector<int64_t> stop_ids;  // besides the tokenizer's
  // Where a reply of this many tokens does not hold thinking_end yet, its tokens follow by force, and drawing goes on
  // after them. 0 = no budget.
  int64_t thinking_budget = 0;
  std::string thinking_end = "</think>";
  void fields(Fields& f);
  // The settings, by name, that make the distribution drawn from another than softmax(logits / temperature):
  // Reply::truncated_logp is of it.
  std::vector<std::string> distribution_changes() const;
};

struct GenerationRequest {
  std::vector<int32_t> prompt;  // at least one token
  int64_t n = 1;                // replies; the prompt's cache is shared between them
  uint64_t id = 0;  // with the sampling seed and a reply's index it decides every draw; the same three, the same reply
  SamplingParams sampling;
  int64_t top_logprobs =
      0;  // of each token drawn, and of the prompt's where they are asked for: so many likeliest ids, at most 64
  bool prompt_logprobs = false;  // score the prompt, too; max_tokens may then be 0: nothing is drawn
};

struct TokenLogp {
  int32_t id = 0;
  float logp = 0;  // of log_softmax(logits)
};

// One reply. Of what was drawn, logp is of log_softmax(logits / temperature) before penalties, biases and truncation
// (what a learner computes), raw_logp of log_softmax(logits), truncated_logp of the distribution drawn from. Of what
// was forced all three are 0, as they would be of a prompt.
struct CompletionOutput {
  std::vector<int32_t> ids;  // the stop token included
  std::vector<float> logp, truncated_logp, raw_logp;
  std::vector<std::vector<TokenLogp>>
      top_logprobs;               // of each id the likeliest ones in its place, best first; none where it was forced
  std::vector<bool> forced;       // which ids were put there, not drawn; empty = none
  std::vector<int64_t> versions;  // of each id: of the weights that drew it (Engine::set_policy_version)
  // Of each prompt token, of log_softmax(logits) (a learner's at temperature 1); the first has 0 and none. Empty unless
  // asked for.
  std::vector<float> prompt_logp;
  std::vector<std::vector<TokenLogp>> prompt_top_logprobs;
  std::string text;           // special tokens and the stop string left out
  std::string finish_reason;  // stop | length | a sentence saying why it failed (the run goes on)
  bool failed = false;
  bool refused =
      false;  // failed, since the request asks for what the engine cannot serve; otherwise a failure is the engine's
};

// Tokens guessed ahead, which one pass then checks: a reply is the same, and there sooner where guesses are right
// (rollout/proposer.h). vLLM's names.
struct SpeculativeConfig {
  std::string method = "none";         // none | ngram | draft_model
  int64_t num_speculative_tokens = 4;  // guessed at most, of each reply before a pass
  int64_t prompt_lookup_min = 5,
          prompt_lookup_max = 5;  // ngram: tokens at the text's end that must have stood in it before
  std::string model{};            // draft_model: the folder of a smaller model with the same tokenizer
  void fields(Fields& f);
};

struct EngineConfig {
  int64_t kv_block_size = 16;       // tokens of one cache block
  int64_t kv_cache_tokens = 65536;  // in all; more requests than fit wait, or are preempted and computed again
  int64_t max_batch_tokens = 2048;  // of one step: prefill chunks and decodes
  int64_t max_sequences = 256;      // decoding at once
  bool prefix_caching = true;       // blocks of requests before serve those that begin with the same tokens
  SpeculativeConfig speculative{};
  // none | int8 | fp8: the numbers in which the blocks' matrices are multiplied (model/quantized_model.h), beside the
  // model's own weights, or, where the model is the engine's alone and never changes, in their place.
  std::string quantization = "none";
  bool owns_model = false;
  std::string kv_cache_dtype = "auto";  // auto: as the weights | fp8: e4m3 with a scale for each token and head
  void fields(Fields& f);
  // Whether the log-probs of replies are those that the model itself computes, bit for bit.
  bool exact() const { return quantization == "none" && kv_cache_dtype == "auto"; }
  // The same engine in the model's own arithmetic.
  EngineConfig as_exact() const;
  // Of keys and values, for a model of such numbers; u8 stands for e4m3.
  DType kv_dtype(DType model) const { return kv_cache_dtype == "fp8" ? DType::u8 : model; }
};

struct EngineStats {
  int64_t prompt_tokens = 0, generated_tokens = 0, forced_tokens = 0, steps = 0, preemptions = 0;
  int64_t shared_prompt_tokens = 0;  // that the replies of a request did not compute again
  double prefill_seconds = 0,
         decode_seconds = 0;   // the device's, in passes with prompts or special requests, and in recordings
  int64_t cached_tokens = 0;   // found in the cache when a request began, or one that was preempted began again
  int64_t kv_tokens_used = 0;  // now: room in the cache that requests hold
  // Guesses (one is several tokens of a reply), their tokens, and those of them that were drawn: 1 + accepted / drafts
  // tokens a guess.
  int64_t drafts = 0, draft_tokens = 0, accepted_tokens = 0;
  double draft_seconds = 0;  // the device's, in a draft model's recordings
};

class Engine {
 public:
  // Reads the model's weights where they are (a learner's update is seen by the next step: no copy;
  // set_policy_version() must be told). tokenizer may be null: then no stop strings, and text stays empty. A draft
  // model is loaded here, into memory of the engine's own.
  Engine(Context& context, Model& model, const Tokenizer* tokenizer, const EngineConfig& config);
  ~Engine();

  // `written` is the reply so far: what stands last in its columns is the new token's; it has no text and no
  // finish_reason yet.
  using OnToken = std::function<void(uint64_t request, int64_t reply, const CompletionOutput& written)>;
  using OnFinish = std::function<void(uint64_t request, std::vector<CompletionOutput>)>;
  // Queues it; the callbacks are called from step(). Returns a ticket for cancel(). What goes wrong with one request,
  // and what its on_token throws, fails its replies and touches no other request. What on_finish throws leaves step()
  // at its end.
  uint64_t submit(GenerationRequest request, OnFinish on_finish, OnToken on_token = {});
  void cancel(uint64_t ticket);
  // Between steps: the weights are this version from now on; before, they were version 0. What is cached of requests
  // before is of other weights and serves none that begins later; quantized weights are made again. Replies being
  // written go on from the keys and values they have; with recompute, these are computed again first.
  void set_policy_version(int64_t version, bool recompute = false);
  int64_t version() const;
  // One forward pass or, where every running reply is decoding, passes until an eighth of them has ended or something
  // arrives (32 at most); false when nothing is left to do. An Error where the model itself cannot be computed any more
  // (weights of NaN, a device that failed).
  bool step();
  // From any thread: a step under way returns after the pass that it is in.
  void end_step();
  // submit() and step() until all are done; replies in the requests' order.
  std::vector<std::vector<CompletionOutput>> generate(std::vector<GenerationRequest> requests,
                                                      const std::function<void(int64_t finished)>& progress = {});
  const EngineStats& stats() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hone
