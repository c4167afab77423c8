#pragma once
// The folder of an evaluation:
//   results.json          figures, with lm-evaluation-harness's fields ("results": {task: {"acc,none": ...,
//   "acc_stderr,none": ...}}, "n-shot", ...) samples_TASK.jsonl    a row a problem: doc_id, doc_hash, prompt, target,
//   replies or likelihoods, metrics report.md, *.svg      a table and plots report.html           the same in one file,
//   with samples to browse
#include <filesystem>
#include <string>
#include <vector>

#include "core/io/json.h"
#include "eval/result.h"

namespace hone {

// config: what the results came from (model, options), written as it is.
void write_evaluation(const std::filesystem::path& folder, const std::vector<EvalResult>& results, const Json& config);

// results.json's contents.
Json results_json(const std::vector<EvalResult>& results, const Json& config);
// A table of every figure, for a terminal and for report.md (Markdown).
std::string results_table(const std::vector<EvalResult>& results);

}  // namespace hone
