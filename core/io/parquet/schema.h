#pragma once
// The schema of a Parquet file as a tree that says how a row is assembled from the levels of its columns ("Dremel:
// interactive analysis of web-scale datasets", section 4; the rules for lists are those of parquet-format's
// LogicalTypes.md, older writers included).
#include <string>
#include <vector>

#include "core/io/parquet/metadata.h"

namespace hone::parquet {

// A column with values.
struct Leaf {
  std::string path;  // "messages.list.element.role"
  PhysicalType type = PhysicalType::int32;
  int32_t type_length = 0;  // bytes of a fixed_len_byte_array
  Annotation annotation;
  int max_definition = 0, max_repetition = 0;
};

// A value of a row: of a column, or an object, list or map of several columns.
struct Shape {
  enum class Kind { value, object, list };
  Kind kind = Kind::value;
  std::string name;
  bool nullable = false;
  int defined = 0;  // definition level from which the value is not null
  // Of a list: the definition level from which it has an element, and the repetition level of its further elements.
  int element_definition = 0, element_repetition = 0;
  // An entry of a map is a list of key and value.
  bool is_entry = false;
  std::vector<Shape> children;  // members of an object; the element of a list
  size_t first_leaf = 0, num_leaves = 0;
};

struct Schema {
  std::vector<Leaf> leaves;
  Shape row;
};

// Throws an Error if the elements are no tree, or nested too deep.
Schema make_schema(const std::vector<SchemaElement>& elements);

}  // namespace hone::parquet
