#pragma once
// Figures of other programs on the same machine: JSON Lines, one object {bench, model, B, ..., tok_s} per figure.
#include <string>
#include <vector>

#include "core/io/json.h"

namespace hone {

// Finds the rows of the file that measured the same as `row`: their `bench` is one of `names`, and the size keys that
// both have (model, B, T, ctx, prompt, new, P, G) are equal. Adds them to the row as "peers", each with "ratio" (our
// tokens per second / theirs). Returns one line of text per peer. Throws Error if there is none.
std::string add_peers(Json& row, const std::vector<std::string>& names, const std::string& path);

}  // namespace hone
