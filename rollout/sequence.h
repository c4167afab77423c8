#pragma once
// Sequence and RequestState: a request inside the engine, as plain data.
#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "rollout/engine.h"
#include "rollout/kv/kv_cache.h"
#include "rollout/structured_state.h"

namespace hone {

struct AdapterPasses;

// One Engine::submit(). It collects the completions until the last one ends.
struct RequestState {
  uint64_t number = 0;  // the ticket
  GenerationRequest request;
  std::shared_ptr<AdapterPasses> adapter;  // null: the model itself
  Engine::OnFinish on_finish;
  Engine::OnToken on_token;
  std::vector<CompletionOutput> completions;
  int64_t unfinished = 0;  // completions
  bool cancelled = false;
  std::vector<int32_t> stop_ids;                  // all ids that end a completion; sorted, unique
  std::vector<int32_t> thinking_end;              // the request's thinking_end as ids
  std::shared_ptr<StructuredGrammar> structured;  // null: completions have no structure
};

// One completion in progress, or the prompt before the request's completions fork from it.
struct Sequence {
  std::shared_ptr<RequestState> request_state;
  int64_t completion_index = 0;
  bool forked = false;          // false: the prompt, from which the first token of each completion is sampled
  std::vector<int32_t> tokens;  // the prompt, then the completion
  int64_t computed = 0;         // tokens whose keys and values are in the KV cache
  BlockTables blocks;
  int64_t num_cached_blocks = 0;  // leading blocks that are in the prefix cache
  uint64_t prefix_id = 0;         // the prefix cache's id of the last of them
  bool thinking = false;          // there is a thinking budget, and thinking_end has not come yet
  std::string tail;               // the last bytes of the text, in which a stop string or thinking_end may end
  int64_t max_tokens = 0;         // tokens.size() at which the completion ends by length
  StructuredPlace structured;     // the place in the request's grammar
  // Only if the request has penalties: how often the completion has each id; 0 for ids of the prompt alone.
  std::map<int32_t, int64_t> counts;

  int64_t written() const { return static_cast<int64_t>(tokens.size() - request_state->request.prompt.size()); }
  int64_t remaining() const { return static_cast<int64_t>(tokens.size()) - computed; }
  bool full() const { return static_cast<int64_t>(tokens.size()) >= max_tokens; }
  // How many tokens can be sampled before the completion ends by length or forced tokens are due.
  int64_t max_tokens_before_event() const {
    const int64_t to_end = max_tokens - static_cast<int64_t>(tokens.size());
    return thinking ? std::min(to_end, request_state->request.sampling.thinking_budget - written()) : to_end;
  }
  CompletionOutput& result() const { return request_state->completions[static_cast<size_t>(completion_index)]; }
};

}  // namespace hone
