#pragma once
// A task's rows looked for in training files.
#include <span>
#include <string>
#include <string_view>

#include "core/text/tokenizer/tokenizer.h"
#include "eval/contamination.h"
#include "eval/task.h"

namespace hone {

// files: JSON Lines (a row is a document: the member text_key, or every string of a row without it), token files (their
// documents, decoded by the tokenizer, which may be null if there are none), and anything else as text (a file is a
// document); .gz but for token files. Read as streams, in memory that does not grow with them.
Contamination find_overlaps(const EvalTaskSpec& task, std::span<const std::string> files, std::string_view text_key,
                            const Tokenizer* tokenizer, int64_t ngram);

}  // namespace hone
