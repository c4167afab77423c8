#pragma once
// SharedPrefixLogprobs: log-probs of continuations for many texts that begin alike, such as the choices of a question
// and the questions behind the same few-shot examples. A token that several texts begin with is computed once: its
// keys and values are read from a paged KV cache, whose full blocks the prefix cache finds for later texts. Within a
// pass, texts also share hidden states, so that four choices of one token each cost one forward pass of their prompt.
// lm_head is computed for predicted tokens only.
//
// The log-probs have the bits of compute_logprobs() (model/token_logprobs.h): a token's arithmetic depends neither on
// its pass nor on where its keys and values come from (docs/explain/numerics.md).
#include <functional>
#include <memory>
#include <vector>

#include "model/model.h"
#include "rollout/kv/kv_cache.h"

namespace hone {

struct ContinuationLogprobs {
  std::vector<float> logp;  // of ids[first], ids[first + 1], ... given the tokens before each
  bool greedy = false;      // each of these tokens is the likeliest one; only with Options::greedy
};

// One thread. The weights must not change while it lives. After an exception it must not be used again.
class SharedPrefixLogprobs {
 public:
  struct Options {
    int64_t batch_tokens = 2048;  // computed tokens of a pass, and predicted tokens; does not change the results
    int64_t block_size = 16;      // tokens of a KV block
    bool greedy = false;          // fill ContinuationLogprobs::greedy
  };
  struct Stats {
    int64_t tokens = 0;           // inputs of all texts: what one pass a text would compute
    int64_t computed_tokens = 0;  // the tokens that passes computed
    int64_t predicted_tokens = 0;
    int64_t passes = 0;
    double seconds = 0;  // wall time of the passes, from the upload to the last log-prob
  };
  // index: the number of add() calls before the text's own. Called in this order, from add() or flush().
  using OnResult = std::function<void(size_t index, ContinuationLogprobs logprobs)>;

  // Context and model must outlive it.
  SharedPrefixLogprobs(Context& context, Model& model, const Options& options, OnResult on_result);

  // Adds a text of at least two ids, whose continuation begins at ids[first], first >= 1. It may have max_positions + 1
  // ids. Runs passes when enough tokens have come together. Add texts that begin alike next to each other.
  void add(std::vector<int32_t> ids, size_t first);
  // Computes what is left.
  void flush();

  const Stats& stats() const { return stats_; }
  // Bytes of keys and values: 2 * batch_tokens and the longest text, rounded up to a power of two.
  size_t cache_bytes() const { return cache_ ? cache_->storage().bytes() : 0; }

 private:
  // A text of the next pass. Of its inputs ids[0 .. size - 1), the pass computes [start, end).
  struct PlannedText {
    size_t index = 0;
    std::vector<int32_t> ids;
    size_t first = 0;
    int64_t start = 0, end = 0;
    int64_t first_row = 0;  // of token `start` in the pass
    // An earlier text of the pass, and the number of first tokens in common. Their rows are that text's.
    const PlannedText* overlap = nullptr;
    int64_t overlap_length = 0;
    BlockTables blocks;
    uint64_t prefix_id = 0;         // of the last block that is in the prefix cache
    int64_t num_cached_blocks = 0;  // blocks before the first that is not in the prefix cache
  };

  void check(const std::vector<int32_t>& ids, size_t first) const;
  void reserve_cache(int64_t inputs);
  bool plan(PlannedText& text);
  void find_overlap(PlannedText& text) const;
  void match_prefix(PlannedText& text, int64_t max_tokens);
  void cache_full_blocks(PlannedText& text);
  // Row of the pass that holds the hidden state of a token; -1 if no text of the pass computes it.
  static int64_t row_of(const PlannedText& text, int64_t position);
  void run_pass();
  Tensor compute_hidden(std::span<const int32_t> rows);
  std::vector<int32_t> likeliest_ids(Tensor hidden);
  void deliver(const std::vector<float>& logp, const std::vector<int32_t>& likeliest,
               const std::vector<int32_t>& targets);

  Context& context_;
  Model& model_;
  Options options_;
  OnResult on_result_;
  std::unique_ptr<KvCache> cache_;
  int64_t longest_ = 0;                             // inputs that cache_ is made for
  std::vector<std::unique_ptr<PlannedText>> pass_;  // overlaps point to them
  int64_t pass_tokens_ = 0, pass_predicted_ = 0;
  size_t num_added_ = 0;
  Stats stats_;
};

}  // namespace hone
