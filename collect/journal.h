#pragma once
// CollectJournal: completions.jsonl of a collection, one line per data row. A row is appended when its completions have
// their scores, so that a process that is killed loses only the rows in progress. At the end the lines are sorted by
// row, so that the file's bytes do not depend on the order in which rows were finished.
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>

#include "collect/row.h"
#include "core/io/file.h"

namespace hone {

// One thread.
class CollectJournal {
 public:
  // Opens or creates the file. Cuts an incomplete last line, which a killed process leaves. Any other line that cannot
  // be read is an Error with file and line. on_row: each row of the file, in its order; of several lines with one
  // row, the last counts.
  CollectJournal(std::filesystem::path file, const std::function<void(const CollectedRow& row)>& on_row);

  // Writes the row through to the system before it returns.
  void append(const CollectedRow& row);
  // The last line of a row; nothing if there is none.
  std::optional<CollectedRow> read(int64_t index);
  bool contains(int64_t index) const { return lines_.contains(index); }
  bool empty() const { return lines_.empty(); }
  // Replaces the file by one with the last line of each row, in order.
  void sort();

 private:
  struct Line {
    int64_t offset = 0, bytes = 0;  // without the line end
  };
  std::string text_of(const Line& line);

  std::filesystem::path file_;
  std::map<int64_t, Line> lines_;
  int64_t size_ = 0;
  std::optional<FileWriter> writer_;
  std::ifstream reader_;
};

}  // namespace hone
