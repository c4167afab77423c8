#include "core/io/parquet/writer.h"

#include <algorithm>
#include <cstring>

#include "core/base/check.h"
#include "core/io/compressed_writer.h"
#include "core/io/compression.h"
#include "core/io/parquet/metadata.h"
#include "core/io/parquet/reader.h"
#include "core/io/parquet/thrift_writer.h"

namespace hone {
namespace {

using namespace parquet;

constexpr size_t kRowGroupBytes = size_t{32} << 20;
constexpr int kMaxNesting = 30, kMaxLevel = 127;
constexpr int64_t kMaxExactInteger = int64_t{1} << 53;

// A column of a row group while its rows come.
struct LeafBuffer {
  std::vector<std::string> path;
  int max_definition = 0, max_repetition = 0;
  std::string definitions, repetitions;  // a level is a byte
  std::string values;                    // PLAIN; booleans one in a byte
};

// What a column holds, as far as the rows have said.
struct ColumnType {
  enum class Kind { unknown, boolean, integer, real, text, list, object };
  std::string name;
  Kind kind = Kind::unknown;
  bool has_large_integer = false;  // above what a double holds exactly
  std::string large_integer_where;
  std::vector<ColumnType> children;  // members of an object; the element of a list
  int definition = 0, repetition = 0;
  std::vector<size_t> leaves;  // indices of the columns below it
};

using Kind = ColumnType::Kind;

Kind kind_of(const Json& value) {
  if (value.is_bool()) return Kind::boolean;
  if (value.is_int()) return Kind::integer;
  if (value.is_number()) return Kind::real;
  if (value.is_string()) return Kind::text;
  return value.is_array() ? Kind::list : Kind::object;
}

std::string_view name_of(Kind kind) {
  constexpr std::string_view names[] = {"nothing", "booleans", "integers", "numbers", "texts", "lists", "objects"};
  return names[static_cast<size_t>(kind)];
}

// Adds a value to the type of its column. path: "messages.content".
void add_value(ColumnType& type, const Json& value, const std::string& path, const std::string& where, int depth) {
  if (value.is_null()) return;
  HONE_CHECK(depth <= kMaxNesting, where, ": column '", path, "' is nested more than ", kMaxNesting, " deep");
  const Kind kind = kind_of(value);
  const bool numbers =
      (type.kind == Kind::integer && kind == Kind::real) || (type.kind == Kind::real && kind == Kind::integer);
  HONE_CHECK(type.kind == Kind::unknown || type.kind == kind || numbers, where, ": column '", path, "' is ",
             value.kind_name(), ", in earlier rows it has ", name_of(type.kind),
             "; a Parquet column has one type, so write JSON Lines");
  type.kind = numbers ? Kind::real : kind;
  if (kind == Kind::integer && (value.as_int() > kMaxExactInteger || value.as_int() < -kMaxExactInteger) &&
      !type.has_large_integer) {
    type.has_large_integer = true;
    type.large_integer_where = where;
  }
  HONE_CHECK(
      type.kind != Kind::real || !type.has_large_integer, type.large_integer_where, ": column '", path,
      "' has an integer above 2^53, and other rows have fractions; a Parquet column of doubles cannot hold both");
  if (kind == Kind::list) {
    if (type.children.empty()) type.children.emplace_back().name = "element";
    for (const Json& item : value.as_array()) add_value(type.children.front(), item, path, where, depth + 1);
  } else if (kind == Kind::object) {
    for (const auto& [name, member] : value.as_object()) {
      auto found = std::ranges::find(type.children, name, &ColumnType::name);
      if (found == type.children.end()) {
        type.children.emplace_back().name = name;
        found = type.children.end() - 1;
      }
      add_value(*found, member, path.empty() ? name : path + "." + name, where, depth + 1);
    }
  }
}

PhysicalType physical_type(Kind kind) {
  switch (kind) {
    case Kind::boolean:
      return PhysicalType::boolean;
    case Kind::integer:
      return PhysicalType::int64;
    case Kind::real:
      return PhysicalType::float64;
    default:
      return PhysicalType::byte_array;  // texts, and columns of nulls alone
  }
}

bool is_nested(Kind kind) { return kind == Kind::list || kind == Kind::object; }

// Runs of equal levels (RLE) after their size.
std::string encode_levels(const std::string& levels) {
  std::string runs;
  for (size_t begin = 0; begin < levels.size();) {
    const size_t end = std::min(levels.find_first_not_of(levels[begin], begin), levels.size());
    uint64_t header = static_cast<uint64_t>(end - begin) << 1;
    for (; header >= 0x80; header >>= 7) runs += static_cast<char>(header | 0x80);
    runs += static_cast<char>(header);
    runs += levels[begin];
    begin = end;
  }
  const auto size = static_cast<uint32_t>(runs.size());
  std::string out(sizeof size, '\0');
  std::memcpy(out.data(), &size, sizeof size);
  return out + runs;
}

std::string pack_booleans(const std::string& values) {
  std::string out((values.size() + 7) / 8, '\0');
  for (size_t i = 0; i < values.size(); ++i)
    if (values[i] != 0) out[i / 8] = static_cast<char>(out[i / 8] | 1 << (i % 8));
  return out;
}

template <class T>
void append_bytes(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

struct WrittenColumn {
  int64_t offset = 0, num_values = 0, packed = 0, unpacked = 0;
};
struct WrittenGroup {
  std::vector<WrittenColumn> columns;
  int64_t num_rows = 0;
};

class ParquetRowWriter : public RowWriter {
 public:
  explicit ParquetRowWriter(const std::filesystem::path& path) : file_(path) { root_.kind = Kind::object; }
  bool needs_survey() const override { return true; }
  void survey(const Json& row, const std::string& where) override { add_value(root_, row, "", where, 0); }

  void write(const Json& row, const std::string& where) override {
    begin();
    for (const ColumnType& column : root_.children) {
      const Json* value = row.find(column.name);
      add(column, value ? *value : Json(), 0, where);
    }
    ++num_rows_;
    if (buffered_ >= kRowGroupBytes) write_group();
  }

  void finish() override {
    begin();
    if (num_rows_ > 0) write_group();
    std::string footer = metadata();
    append_bytes(footer, static_cast<uint32_t>(footer.size()));
    put(footer);
    put(parquet_magic);
    file_.finish();
  }

 private:
  // Fixes the types and begins the file.
  void begin() {
    if (begun_) return;
    begun_ = true;
    HONE_CHECK(!root_.children.empty(), "parquet: there are no rows with columns to write");
    place(root_, {});
    put(parquet_magic);
  }

  // Gives each column its levels. A type's own levels are those of a value that is not null.
  void place(ColumnType& type, const std::vector<std::string>& path) {
    HONE_CHECK(type.kind != Kind::object || !type.children.empty(), "parquet: column '", join_path(path),
               "' has objects without members, which Parquet cannot hold; write JSON Lines");
    HONE_CHECK(type.definition < kMaxLevel - 2, "parquet: column '", join_path(path), "' is nested too deep");
    const size_t first = leaves_.size();
    if (!is_nested(type.kind)) {
      LeafBuffer& leaf = leaves_.emplace_back();
      leaf.path = path;
      leaf.max_definition = type.definition;
      leaf.max_repetition = type.repetition;
    }
    for (ColumnType& child : type.children) {
      const bool in_list = type.kind == Kind::list;
      child.definition = type.definition + (in_list ? 2 : 1);
      child.repetition = type.repetition + (in_list ? 1 : 0);
      std::vector<std::string> below = path;
      if (in_list) below.emplace_back("list");
      below.push_back(child.name);
      place(child, below);
    }
    for (size_t i = first; i < leaves_.size(); ++i) type.leaves.push_back(i);
  }
  static std::string join_path(const std::vector<std::string>& path) {
    std::string out;
    for (const std::string& part : path) out += (out.empty() ? "" : ".") + part;
    return out;
  }

  // Writes levels without a value into all columns below.
  void add_levels(const ColumnType& type, int definition, int repetition) {
    for (const size_t index : type.leaves) {
      leaves_[index].definitions += static_cast<char>(definition);
      leaves_[index].repetitions += static_cast<char>(repetition);
      buffered_ += 2;
    }
  }

  void add(const ColumnType& type, const Json& value, int repetition, const std::string& where) {
    if (value.is_null()) {
      // The nearest level above that is not null.
      add_levels(type, type.definition - 1, repetition);
    } else if (type.kind == Kind::object) {
      for (const ColumnType& child : type.children) {
        const Json* member = value.find(child.name);
        add(child, member ? *member : Json(), repetition, where);
      }
    } else if (type.kind == Kind::list) {
      const ColumnType& element = type.children.front();
      if (value.as_array().empty()) add_levels(type, type.definition, repetition);
      bool first = true;
      for (const Json& item : value.as_array()) {
        add(element, item, first ? repetition : element.repetition, where);
        first = false;
      }
    } else {
      add_levels(type, type.definition, repetition);
      add_scalar(leaves_[type.leaves.front()], type.kind, value);
    }
  }

  void add_scalar(LeafBuffer& leaf, Kind kind, const Json& value) {
    const size_t before = leaf.values.size();
    if (kind == Kind::boolean) {
      leaf.values += static_cast<char>(value.as_bool());
    } else if (kind == Kind::integer) {
      append_bytes(leaf.values, value.as_int());
    } else if (kind == Kind::real) {
      append_bytes(leaf.values, value.as_double());
    } else {
      append_bytes(leaf.values, static_cast<uint32_t>(value.as_string().size()));
      leaf.values += value.as_string();
    }
    buffered_ += leaf.values.size() - before;
  }

  void put(std::string_view bytes) {
    file_.write(bytes);
    offset_ += static_cast<int64_t>(bytes.size());
  }

  void write_group() {
    WrittenGroup group;
    group.num_rows = num_rows_;
    size_t index = 0;
    write_columns(root_, index, group);
    groups_.push_back(std::move(group));
    total_rows_ += num_rows_;
    num_rows_ = 0;
    buffered_ = 0;
  }
  void write_columns(const ColumnType& type, size_t& index, WrittenGroup& group) {
    if (!is_nested(type.kind)) group.columns.push_back(write_column(leaves_[index++], type.kind));
    for (const ColumnType& child : type.children) write_columns(child, index, group);
  }

  // Writes a column of the row group as one page, and empties it.
  WrittenColumn write_column(LeafBuffer& leaf, Kind kind) {
    std::string page;
    if (leaf.max_repetition > 0) page += encode_levels(leaf.repetitions);
    if (leaf.max_definition > 0) page += encode_levels(leaf.definitions);
    page += kind == Kind::boolean ? pack_booleans(leaf.values) : leaf.values;
    const std::string packed = pack(Compression::zstd, page);
    HONE_CHECK(page.size() < INT32_MAX && packed.size() < INT32_MAX, "parquet: column '", join_path(leaf.path),
               "' has a value of ", page.size(), " bytes; a page has at most 2 GB");
    WrittenColumn out;
    out.offset = offset_;
    out.num_values = static_cast<int64_t>(leaf.definitions.size());
    ThriftWriter header;
    header.integer32(1, static_cast<int32_t>(PageType::data));
    header.integer32(2, static_cast<int32_t>(page.size()));
    header.integer32(3, static_cast<int32_t>(packed.size()));
    header.integer32(4, static_cast<int32_t>(gzip_checksum(packed)));
    header.structure(5, [&] {
      header.integer32(1, static_cast<int32_t>(out.num_values));
      header.integer32(2, static_cast<int32_t>(Encoding::plain));
      header.integer32(3, static_cast<int32_t>(Encoding::rle));
      header.integer32(4, static_cast<int32_t>(Encoding::rle));
    });
    const std::string bytes = header.finish();
    put(bytes);
    put(packed);
    out.packed = offset_ - out.offset;
    out.unpacked = static_cast<int64_t>(bytes.size() + page.size());
    leaf.definitions.clear();
    leaf.repetitions.clear();
    leaf.values.clear();
    return out;
  }

  // The schema's elements in depth-first order.
  struct Element {
    std::string name;
    Kind kind = Kind::object;
    Repetition repetition = Repetition::optional;
    int32_t num_children = 0;
    bool is_root = false, is_list_wrapper = false;
  };
  void list_elements(const ColumnType& type, bool is_root, std::vector<Element>& out) const {
    Element element{.name = is_root ? "schema" : type.name, .kind = type.kind};
    element.is_root = is_root;
    element.num_children = type.kind == Kind::list ? 1 : static_cast<int32_t>(type.children.size());
    out.push_back(element);
    if (type.kind == Kind::list) {
      Element wrapper{.name = "list", .kind = Kind::object, .repetition = Repetition::repeated, .num_children = 1};
      wrapper.is_list_wrapper = true;
      out.push_back(wrapper);
    }
    for (const ColumnType& child : type.children) list_elements(child, false, out);
  }
  static void write_element(ThriftWriter& out, const Element& element) {
    const bool nested = is_nested(element.kind);
    if (!nested) out.integer32(1, static_cast<int32_t>(physical_type(element.kind)));
    if (!element.is_root) out.integer32(3, static_cast<int32_t>(element.repetition));
    out.text(4, element.name);
    if (nested) out.integer32(5, element.num_children);
    const bool is_text = element.kind == Kind::text || element.kind == Kind::unknown;
    constexpr int32_t utf8 = 0, list = 3;
    constexpr int string_type = 1, list_type = 3;
    if (!is_text && element.kind != Kind::list) return;
    out.integer32(6, is_text ? utf8 : list);
    out.structure(10, [&] { out.empty_struct(is_text ? string_type : list_type); });
  }

  void write_chunk(ThriftWriter& out, const WrittenColumn& column, const LeafBuffer& leaf, Kind kind) const {
    out.integer64(2, column.offset);
    out.structure(3, [&] {
      out.integer32(1, static_cast<int32_t>(physical_type(kind)));
      out.integers(2, {static_cast<int32_t>(Encoding::plain), static_cast<int32_t>(Encoding::rle)});
      out.texts(3, leaf.path);
      out.integer32(4, static_cast<int32_t>(Codec::zstd));
      out.integer64(5, column.num_values);
      out.integer64(6, column.unpacked);
      out.integer64(7, column.packed);
      out.integer64(9, column.offset);
    });
  }

  std::string metadata() const {
    std::vector<Element> elements;
    list_elements(root_, true, elements);
    std::vector<Kind> kinds;  // of the leaves
    for (const Element& element : elements)
      if (!is_nested(element.kind)) kinds.push_back(element.kind);
    ThriftWriter out;
    out.integer32(1, 2);
    out.structures(2, elements.size(), [&](size_t i) { write_element(out, elements[i]); });
    out.integer64(3, total_rows_);
    out.structures(4, groups_.size(), [&](size_t g) {
      const WrittenGroup& group = groups_[g];
      int64_t bytes = 0;
      for (const WrittenColumn& column : group.columns) bytes += column.unpacked;
      out.structures(1, group.columns.size(),
                     [&](size_t c) { write_chunk(out, group.columns[c], leaves_[c], kinds[c]); });
      out.integer64(2, bytes);
      out.integer64(3, group.num_rows);
    });
    out.text(6, "hone");
    return out.finish();
  }

  ReplacedFile file_;
  ColumnType root_;
  std::vector<LeafBuffer> leaves_;
  std::vector<WrittenGroup> groups_;
  int64_t offset_ = 0, num_rows_ = 0, total_rows_ = 0;
  size_t buffered_ = 0;
  bool begun_ = false;
};

}  // namespace

std::unique_ptr<RowWriter> create_parquet_rows(const std::filesystem::path& path) {
  return std::make_unique<ParquetRowWriter>(path);
}

}  // namespace hone
