#include "data/row_condition.h"

#include <algorithm>

namespace hone {

void RowCondition::fields(Fields& f) {
  f("column", column, "column that selects rows; empty = every row");
  f("equals", equals, "rows whose column is this text (numbers and booleans as in JSON)");
  f("one_of", one_of, "or one of these texts; if both are empty, every row that has the column");
  f.require("column", !column.empty() || (equals.empty() && one_of.empty()),
            "equals and one_of need a column: set it (column = \"domain\")");
}

bool RowCondition::holds(const Json& row) const {
  if (column.empty()) return true;
  const Json* member = row.is_object() ? row.find(column) : nullptr;
  if (equals.empty() && one_of.empty()) return member && !member->is_null();
  if (!member) return false;
  const std::string value = member->is_string() ? member->as_string() : member->dump();
  return (!equals.empty() && value == equals) || std::ranges::find(one_of, value) != one_of.end();
}

}  // namespace hone
