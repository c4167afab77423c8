#pragma once
// The recipe's evaluation tasks on the model as it is.
#include "run/run.h"

namespace hone {

// Runs every [[eval]] task and logs their metrics as one row of `step`.
std::vector<EvalResult> evaluate(Run& run, int64_t step);

}  // namespace hone
