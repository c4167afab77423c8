#pragma once
// The first row of each file of a source, to check files and templates before a run.
#include <functional>

#include "data/dataset.h"

namespace hone {

// Calls check(source) with sources of one row: the first of each file, or the generator's first. Standard input is left
// out, since a check would take its rows. An empty file among others is left out, too, and so is a file without a row
// that `when` takes, unless all are.
void each_first_row(const RowSource& source, const std::function<void(const RowSource& one)>& check);

}  // namespace hone
