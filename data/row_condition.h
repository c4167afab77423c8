#pragma once
// A condition on a row's columns: selects the rows of a source, or those that a part of a reward scores.
#include <string>
#include <vector>

#include "core/config/fields.h"
#include "core/io/json.h"

namespace hone {

struct RowCondition {
  std::string column;
  std::string equals;
  std::vector<std::string> one_of;

  void fields(Fields& f);
  // True if it compares nothing: every row fulfills it.
  bool empty() const { return column.empty(); }
  bool holds(const Json& row) const;
};

}  // namespace hone
