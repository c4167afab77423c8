#pragma once
// Figures of other programs, measured beside ours: JSON Lines with a row a figure, {bench, model, B, ..., tok_s}.
#include <string>
#include <vector>

#include "core/io/json.h"

namespace hone {

// Finds the rows of the file that measured what `row` did: their `bench` is one of `names`, and whatever both name of
// the size (model, B, T, ctx, prompt, new, P, G) is equal. Adds them to the row as "peers", each with "ratio", our
// tokens a second over theirs, and returns a line for each. None is an Error.
std::string add_peers(Json& row, const std::vector<std::string>& names, const std::string& path);

}  // namespace hone
