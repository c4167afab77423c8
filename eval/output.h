#pragma once
// Writes the folder of an evaluation:
//   results.json        metrics with lm-evaluation-harness's fields: "results": {task: {"acc,none": ...,
//                       "acc_stderr,none": ...}}, "n-shot", ...
//   samples_TASK.jsonl  one row per problem: doc_id, doc_hash, prompt, target, completions or likelihoods, metrics
//   report.md, *.svg    a table and plots
//   report.html         the same in one file, with samples to browse
#include <filesystem>
#include <string>
#include <vector>

#include "core/io/json.h"
#include "eval/result.h"

namespace hone {

// config: the model and options of the results; written unchanged.
void write_evaluation(const std::filesystem::path& folder, const std::vector<EvalResult>& results, const Json& config);

// The contents of results.json.
Json results_json(const std::vector<EvalResult>& results, const Json& config);
// A Markdown table of all metrics, for a terminal and for report.md.
std::string results_table(const std::vector<EvalResult>& results);
// A Markdown table of problems, failed requests, seconds, tokens and cost of each task.
std::string usage_table(const std::vector<EvalResult>& results);

}  // namespace hone
