#pragma once
// The filters in two tables: those of one value (jinja_filters.cpp) and those that walk lists and dicts (jinja_list_filters.cpp).
#include "core/jinja_operators.h"
#include "core/jinja_routine.h"

namespace hone::jinja {

const Routine* find_list_filter(std::string_view name);

}  // namespace hone::jinja
