#pragma once
// RowReader and RowWriter: rows one at a time, whatever the container. core/io/rows/ opens and creates files.
#include <string>

#include "core/io/json.h"

namespace hone {

class RowReader {
 public:
  virtual ~RowReader() = default;
  // False at the end. A row is an object. Throws an Error that names the file and the line or row.
  virtual bool next(Json& row) = 0;
  // The place of the last row, for messages: "file:line" for JSON Lines and CSV, else "file row N", from 1.
  virtual std::string where() const = 0;
};

class RowWriter {
 public:
  virtual ~RowWriter() = default;
  // True if the container must know all rows before the first is written (columns, types). Then call survey() for each
  // row, and write() for the same rows again.
  virtual bool needs_survey() const { return false; }
  virtual void survey(const Json&, const std::string&) {}
  // where: the row's place, for errors. A value that the container cannot hold is an Error that names row and column.
  virtual void write(const Json& row, const std::string& where) = 0;
  virtual void finish() = 0;
};

}  // namespace hone
