#pragma once
// The rows of a source before a run: the first of each file to check files and templates, all to find broken ones.
#include <functional>

#include "data/dataset.h"

namespace hone {

// Calls check(source) with sources of one row: the first of each file, or the generator's first. Standard input is left
// out, since a check would take its rows. An empty file among others is left out, too, and so is a file without a row
// that `when` takes, unless all are.
void each_first_row(const RowSource& source, const std::function<void(const RowSource& one)>& check);

// Reads all rows that a run reads from files. Throws the Error of the first row that is broken: not in its file's
// format, or a conversation that is none. Templates and tokens are not checked. Reads nothing of standard input and
// generators.
void check_all_rows(const RowSource& source);

}  // namespace hone
