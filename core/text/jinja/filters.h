#pragma once
// The filters stand in two tables: filters of single values (filters.cpp), and filters of lists and dicts
// (list_filters.cpp).
#include "core/text/jinja/operators.h"
#include "core/text/jinja/routine.h"

namespace hone::jinja {

// Returns nullptr if there is no such filter.
const Routine* find_list_filter(std::string_view name);

}  // namespace hone::jinja
