#pragma once
// Samples for `hone data show`: what a stage makes of its first rows.
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/text/tokenizer/tokenizer.h"
#include "data/prompt.h"
#include "data/sample.h"

namespace hone {

struct ShowRequest {
  const Tokenizer& tokenizer;
  int64_t rows = 1;
  std::filesystem::path scratch = {};  // an empty folder for temporary files
};

struct ShownSample {
  std::string where;  // the row
  std::string part;   // of the row: "chosen", "rejected", "prompt", ...; "" if the row is one sample
  Sample sample;
  std::vector<TokenRole> roles;  // one for each token
  int64_t full_length = 0;       // tokens before truncation
  std::string left_out = {};     // why training leaves the row out; "" = it does not
  std::string note = {};         // what else is known of the row (a reference answer)
};

}  // namespace hone
