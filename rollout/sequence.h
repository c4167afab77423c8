#pragma once
// A request on its way through the engine: plain data.
#include <map>
#include <memory>
#include <vector>

#include "rollout/engine.h"

namespace hone {

// One submit(): its replies gather here until the last is done.
struct RequestState {
  uint64_t number = 0;
  GenerationRequest request;
  Engine::OnFinish on_finish;
  Engine::OnToken on_token;
  std::vector<CompletionOutput> replies;
  int64_t unfinished = 0;
  bool cancelled = false;
  std::vector<int32_t> stop_ids;      // that end a reply, each once
  std::vector<int32_t> thinking_end;  // the request's, as ids
};

// One reply being written, or the prompt of all of a ticket's replies before they part.
struct Sequence {
  std::shared_ptr<RequestState> ticket;
  int64_t reply = 0;
  bool forked = false;          // false: the prompt, from which every reply's first token is drawn
  std::vector<int32_t> tokens;  // prompt, then what was drawn
  int64_t computed = 0;         // tokens whose keys and values are in the cache
  std::vector<int32_t> blocks;
  int64_t num_cached_blocks = 0;  // of its blocks, from the first, that the cache was told of
  uint64_t prefix_hash = 0;       // the name of the last of them
  bool thinking = false;          // under a budget, and thinking_end has not been written yet
  std::string tail;               // the last bytes of the text, where a stop string or thinking_end may end
  int64_t max_tokens = 0;         // of tokens.size() when the reply ends by length
  std::map<int32_t, int64_t>
      counts;  // where there are penalties: how often the reply holds each id; 0 of those that the prompt alone does

  int64_t written() const { return static_cast<int64_t>(tokens.size() - ticket->request.prompt.size()); }
  int64_t remaining() const { return static_cast<int64_t>(tokens.size()) - computed; }
  bool full() const { return static_cast<int64_t>(tokens.size()) >= max_tokens; }
  CompletionOutput& result() const { return ticket->replies[static_cast<size_t>(reply)]; }
};

}  // namespace hone
