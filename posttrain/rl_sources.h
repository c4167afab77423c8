#pragma once
// The sources of tasks of a stage that samples completions: each has rows, a prompt format and a reward.
#include <span>
#include <vector>

#include "data/dataset.h"
#include "data/mixture.h"
#include "data/prompt.h"
#include "data/sources.h"
#include "posttrain/rl/environments/environment.h"
#include "rewards/reward.h"
#include "train/shown_sample.h"
#include "train/stage.h"

namespace hone {

struct RlSource : TaskSource {
  PromptFormat format;
  RewardSpec reward;
  // The keys of a [[stage.source]].
  void source_fields(Fields& f);
};
using RlSources = std::span<const DataSource<RlSource>>;

// The tasks of all sources, source by source. An id begins with the name of its source, since two sources may read the
// same rows. parts: gets the number of tasks of each source.
std::vector<Task> load_rl_tasks(RlSources sources, std::vector<MixturePart>* parts = nullptr);
// Tokens of the longest prompt.
int64_t longest_prompt(RlSources sources, const Tokenizer& tokenizer);
// The prompts of the first tasks.
std::vector<ShownSample> show_prompts(RlSources sources, const ShowRequest& request);
// Adds the problems of files, templates, environment and rewards.
void check_rl_sources(const StageCheck& check, RlSources sources, const EnvironmentConfig& environment);

}  // namespace hone
