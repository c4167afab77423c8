#pragma once
// Settings of `hone collect`: which rows are sampled and judged, and which completions go into which file.
#include <string>
#include <vector>

#include "eval/endpoint.h"
#include "posttrain/rl/collector.h"
#include "rollout/remote/config.h"

namespace hone {

// The engine that samples completions: in this process, or in workers.
struct CollectEngine : EngineConfig {
  WorkerPoolConfig pool;
  void fields(Fields& f);
};

// Which completions become rows of which file. A change needs no new completion.
struct SelectionConfig {
  double threshold = 1;                          // a completion with at least this reward passes
  std::string sft = "accept";                    // accept | best_of_n
  int64_t sft_per_prompt = 0;                    // most rows of a prompt, best first; 0 = all
  bool accept_truncated = false;                 // take completions that reached a limit
  bool deduplicate = true;                       // identical completions of a prompt count once
  std::string sft_format = "prompt_completion";  // prompt_completion | messages
  double margin = 0;                             // the rewards of a pair differ by more than this
  int64_t pairs_per_prompt = 1;
  double min_pass_rate = 0, max_pass_rate = 1;
  std::vector<std::string> keep_columns;  // of the data row, copied to SFT rows and pairs
  void fields(Fields& f);
};

struct CollectConfig {
  TaskSource tasks;
  CollectorConfig actor;
  CollectEngine rollout;
  EndpointConfig endpoint;  // base_url is empty: a model samples
  SelectionConfig selection;
  int64_t shard_index = 0, num_shards = 1;

  void fields(Fields& f);
  bool has_endpoint() const { return !endpoint.base_url.empty(); }
  // Without a reward, completions have no scores: all of them are accepted, and there are no pairs and pass rates.
  bool has_scores() const { return actor.reward.reward || actor.environment; }
};

// Throws an Error if settings exclude each other, if the first row of a file has a problem, or if the reward or the
// environment cannot be used for it. Call it before a model is loaded.
void check_collect(const CollectConfig& config);

}  // namespace hone
