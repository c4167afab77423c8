#pragma once
// Rows of text as token sequences, for measures of a model on text.
#include <cstdint>
#include <string>
#include <vector>

#include "core/text/tokenizer/tokenizer.h"

namespace hone {

struct CalibrationRows {
  std::string data;           // file, or dataset folder with its split (core/io/rows/rows.h)
  int64_t limit = 128;        // rows to read; 0 = all
  int64_t max_length = 1024;  // first tokens of a row to use
  int64_t vocab_size = 0;     // of the model, for ids
};
// Rows have `ids`, `text`, or a conversation in any form of data/conversation.h. Rows of one token are left out. An
// Error if none has two. tokenizer: null if there is none.
std::vector<std::vector<int32_t>> read_calibration_text(const CalibrationRows& rows, const Tokenizer* tokenizer);

}  // namespace hone
