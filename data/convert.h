#pragma once
// Converts files of rows between containers (core/io/rows/) and conversations between their forms
// (data/conversation.h).
#include <string>
#include <vector>

#include "core/io/json.h"

namespace hone {

struct ConvertOptions {
  std::vector<std::string> inputs;  // as in `files` of a recipe
  std::string output;               // the name says the container
  std::string format;               // form of conversations; empty = rows as they are
  std::string split = "train";      // of dataset folders
  int64_t limit = 0;                // number of rows; 0 = all
};

// Returns the number of rows. The output replaces an earlier file once it is complete.
int64_t convert_rows(const ConvertOptions& options);

// The row with its conversation in another form: openai, sharegpt, alpaca or prompt_completion. Columns that do not
// belong to the conversation stay. What the form cannot hold is an Error that names the column.
Json convert_conversation(const Json& row, const std::string& format, const std::string& where);

}  // namespace hone
