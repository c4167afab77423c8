#pragma once
// Finds a task's rows in training files.
#include <span>
#include <string>
#include <string_view>

#include "core/text/tokenizer/tokenizer.h"
#include "eval/contamination.h"
#include "eval/task.h"

namespace hone {

// files: of rows (each row is a document: its column text_key, or all strings of a row without it), token files
// (whose documents the tokenizer decodes; it may be null if there are none), and any other file as text (one document).
// All but token files may be .gz or .zst. Reads streams: memory does not grow with the files.
Contamination find_overlaps(const EvalTaskSpec& task, std::span<const std::string> files, std::string_view text_key,
                            const Tokenizer* tokenizer, int64_t ngram);

}  // namespace hone
