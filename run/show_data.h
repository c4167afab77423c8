#pragma once
// hone data show: the samples that a recipe's stages train on, as text.
#include <span>
#include <string>
#include <vector>

#include "run/recipe/recipe.h"
#include "train/shown_sample.h"

namespace hone {

struct ShowOptions {
  int64_t rows = 3;            // of each stage
  std::string stage = {};      // a name; "" = all stages that train on rows
  std::string tokenizer = {};  // folder or file; "" = the recipe's
};

struct ShownStage {
  std::string name, kind;
  std::vector<ShownSample> samples;
};

// The first samples of the stages, and the tokenizer that they are made with. Loads no model. Throws Error if a stage's
// tokenizer is made by an earlier stage.
std::vector<ShownStage> show_data(const Recipe& recipe, const ShowOptions& options,
                                  std::optional<Tokenizer>& tokenizer);

struct ShowStyle {
  bool color = false;
  bool ids = false;  // each token with its id
};
// A heading with counts, then a line for each run of tokens with one role and mask.
std::string shown_text(const ShownSample& shown, const Tokenizer& tokenizer, const ShowStyle& style);
// {stage, where, part, ids, tokens, mask, roles, ...}.
Json shown_json(const std::string& stage, const ShownSample& shown, const Tokenizer& tokenizer);
// What the marks and colors mean.
std::string shown_legend(const ShowStyle& style);

}  // namespace hone
