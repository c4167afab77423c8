#pragma once
// The filters in two tables: those of one value (filters.cpp) and those that walk lists and dicts (list_filters.cpp).
#include "core/text/jinja/operators.h"
#include "core/text/jinja/routine.h"

namespace hone::jinja {

const Routine* find_list_filter(std::string_view name);

}  // namespace hone::jinja
