#include "data/columns.h"

#include <algorithm>
#include <deque>

namespace hone {

static std::vector<Column>& columns_by_name() {
  static std::vector<Column> columns;
  return columns;
}

const std::vector<Column>& all_columns() { return columns_by_name(); }

const Column* find_column(std::string_view name) {
  const std::vector<Column>& all = all_columns();
  const auto found = std::ranges::lower_bound(all, name, {}, [](Column c) -> std::string_view { return c.name(); });
  return found != all.end() && found->name() == name ? &*found : nullptr;
}

Column register_column(std::string name, ColumnInfo info) {
  static std::deque<Column::Entry> entries;  // handles point into it
  HONE_CHECK(!find_column(name), "column '", name, "' is registered twice");
  HONE_CHECK(info.width > 0, "column '", name, "' has width ", info.width, "; it must be above 0");
  entries.push_back({std::move(name), std::move(info), entries.size()});
  const Column column(&entries.back());
  std::vector<Column>& all = columns_by_name();
  all.insert(std::ranges::upper_bound(all, column.name(), {}, &Column::name), column);
  return column;
}

void fail_absent(Column column) {
  fail("column ", column.name(), " (", column.info().doc, ") is absent: this run does not compute it");
}

void Columns::truncate(size_t num_tokens) {
  for (const Column column : all_columns())
    if (has(column) && !column.info().per_sequence)
      slot(column).resize(std::min(slot(column).size(), column.size(1, num_tokens)));
}

}  // namespace hone
