#pragma once
// Stored distributions of a teacher: rows with the log-probs of its most likely tokens at temperature 1.
//   ids       the token ids of the complete sample, as the stage makes them
//   top_ids   [[ids of the most likely tokens] a token]; null or empty where there are none: the first token
//   top_logp  their log-probs, nested alike
// `hone logprobs --top-logprobs` writes them.
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/io/json.h"
#include "data/sample.h"
#include "model/model.h"

namespace hone {

// For each token of a sequence ids and log-probs, most likely first; empty for the first token.
using TopLogprobs = std::vector<std::vector<std::pair<int32_t, float>>>;

// The `top` most likely tokens at each position of the sequences under a model.
std::vector<TopLogprobs> compute_top_logprobs(Context& context, Model& model,
                                              std::span<const std::vector<int32_t>> sequences, int64_t top);

// Adds these fields to a row.
void write_top_logprobs(Json& row, const TopLogprobs& top);

// Writes the columns teacher_top_ids and teacher_top_logp of a row's sample. An Error names `where` and the field: if
// the ids are not the sample's tokens, a trained token has no log-probs, an id is outside of the vocabulary or there
// twice, or the probabilities of a token exceed 1. A sample may be shorter than its row (overlong_rows = "truncate").
void read_top_logprobs(const Json& row, const std::string& where, int64_t vocab_size, Sample& sample);

}  // namespace hone
