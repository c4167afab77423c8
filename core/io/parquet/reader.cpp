#include "core/io/parquet/reader.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/io/compression.h"
#include "core/io/file.h"
#include "core/io/parquet/column_reader.h"

namespace hone {
namespace {

using namespace parquet;

constexpr uint64_t kMaxFooter = uint64_t{512} << 20;
constexpr std::string_view kEncryptedMagic = "PARE";

class DiskFile : public FileBytes {
 public:
  explicit DiskFile(const std::filesystem::path& path)
      : name_(path.string()), size_(std::filesystem::file_size(path)), descriptor_(open_file(path)) {}
  ~DiskFile() override { ::close(descriptor_); }
  DiskFile(const DiskFile&) = delete;
  DiskFile& operator=(const DiskFile&) = delete;
  uint64_t size() const override { return size_; }
  std::string read(uint64_t offset, uint64_t size) const override {
    std::string out(size, '\0');
    for (uint64_t done = 0; done < size;) {
      const ssize_t count = ::pread(descriptor_, out.data() + done, size - done, static_cast<off_t>(offset + done));
      if (count < 0 && errno == EINTR) continue;
      HONE_CHECK(count > 0, name_, ": cannot read: ", count < 0 ? std::strerror(errno) : "the file became shorter");
      done += static_cast<uint64_t>(count);
    }
    return out;
  }

 private:
  std::string name_;
  uint64_t size_;
  int descriptor_;
};

class BytesInMemory : public FileBytes {
 public:
  explicit BytesInMemory(std::string_view bytes) : bytes_(bytes) {}
  explicit BytesInMemory(std::string bytes) : owned_(std::move(bytes)), bytes_(owned_) {}
  BytesInMemory(const BytesInMemory&) = delete;
  BytesInMemory& operator=(const BytesInMemory&) = delete;
  uint64_t size() const override { return bytes_.size(); }
  std::string read(uint64_t offset, uint64_t size) const override { return std::string(bytes_.substr(offset, size)); }

 private:
  std::string owned_;
  std::string_view bytes_;
};

// Assembles the rows of one row group.
class RowAssembler {
 public:
  RowAssembler(const FileBytes& file, uint64_t data_end, const Schema& schema, const RowGroup& group)
      : row_(schema.row) {
    HONE_CHECK(group.columns.size() == schema.leaves.size(), "a row group has ", group.columns.size(),
               " columns, the schema ", schema.leaves.size());
    columns_.reserve(schema.leaves.size());
    for (size_t i = 0; i < schema.leaves.size(); ++i)
      columns_.emplace_back(file, data_end, schema.leaves[i], group.columns[i]);
  }

  Json next() {
    check_repetition(row_, 0);
    return read(row_);
  }
  void check_end() const {
    for (const ColumnReader& column : columns_)
      HONE_CHECK(column.ended(), "column ", column.leaf().path, " has more values than the file has rows");
  }

 private:
  // All columns of a shape must begin a new value at the same level.
  void check_repetition(const Shape& shape, int level) const {
    for (size_t i = 0; i < shape.num_leaves; ++i) {
      const ColumnReader& column = columns_[shape.first_leaf + i];
      HONE_CHECK(column.repetition() == level, "column ", column.leaf().path, " has the repetition level ",
                 column.repetition(), " in place of ", level);
    }
  }
  void skip_nulls(const Shape& shape) {
    for (size_t i = 0; i < shape.num_leaves; ++i) columns_[shape.first_leaf + i].skip_null();
  }

  Json read(const Shape& shape) {
    ColumnReader& first = columns_[shape.first_leaf];
    if (shape.nullable && first.definition() < shape.defined) {
      skip_nulls(shape);
      return nullptr;
    }
    switch (shape.kind) {
      case Shape::Kind::value:
        return first.take_value();
      case Shape::Kind::list:
        return read_list(shape, first);
      case Shape::Kind::object:
        break;
    }
    if (shape.is_entry) {
      JsonArray entry;
      for (const Shape& member : shape.children) entry.push_back(read(member));
      return entry;
    }
    JsonObject object;
    object.reserve(shape.children.size());
    for (const Shape& member : shape.children) object.emplace_back(member.name, read(member));
    return object;
  }

  Json read_list(const Shape& shape, const ColumnReader& first) {
    JsonArray out;
    if (first.definition() < shape.element_definition) {
      skip_nulls(shape);
      return out;
    }
    for (;;) {
      out.push_back(read(shape.children.front()));
      if (first.ended() || first.repetition() < shape.element_repetition) return out;
      check_repetition(shape, shape.element_repetition);
    }
  }

  const Shape& row_;
  std::vector<ColumnReader> columns_;
};

// Runs body(); adds the place to its errors.
template <class Body>
auto with_place(const std::string& place, Body body) {
  try {
    return body();
  } catch (const Error& error) {
    fail(place, ": ", error.what());
  }
}

class ParquetRows : public RowReader {
 public:
  ParquetRows(std::unique_ptr<FileBytes> file, std::string name) : file_(std::move(file)), name_(std::move(name)) {
    with_place(name_, [&] { read_footer(); });
  }

  bool next(Json& row) override {
    const std::string place = concat(name_, " row ", row_ + 1);
    return with_place(place, [&] {
      while (left_ == 0)
        if (!begin_group()) return false;
      row = assembler_->next();
      --left_;
      ++row_;
      return true;
    });
  }
  std::string where() const override { return concat(name_, " row ", row_); }

 private:
  void read_footer() {
    const uint64_t size = file_->size(), magic = parquet_magic.size();
    const std::string begin = file_->read(0, std::min(size, magic));
    HONE_CHECK(begin != kEncryptedMagic, "the file is encrypted; hone has no keys for it");
    HONE_CHECK(begin == parquet_magic, "this is no Parquet file: it does not begin with PAR1");
    HONE_CHECK(size >= 2 * magic + 4, "the Parquet file has only ", size, " bytes; it is cut off");
    const std::string tail = file_->read(size - magic - 4, magic + 4);
    HONE_CHECK(tail.substr(4) != kEncryptedMagic, "the file is encrypted; hone has no keys for it");
    HONE_CHECK(tail.substr(4) == parquet_magic, "the Parquet file does not end with PAR1; it is cut off");
    uint32_t footer = 0;
    std::memcpy(&footer, tail.data(), sizeof footer);
    HONE_CHECK(footer <= size - 2 * magic - 4 && footer <= kMaxFooter, "the metadata have ", footer,
               " bytes, the file only ", size);
    data_end_ = size - magic - 4 - footer;
    metadata_ = parse_metadata(file_->read(data_end_, footer));
    schema_ = make_schema(metadata_.schema);
  }

  // False after the last row group.
  bool begin_group() {
    if (assembler_) assembler_->check_end();
    assembler_.reset();
    if (next_group_ == metadata_.row_groups.size()) return false;
    const RowGroup& group = metadata_.row_groups[next_group_++];
    if (group.num_rows > 0) assembler_.emplace(*file_, data_end_, schema_, group);
    left_ = group.num_rows;
    return true;
  }

  std::unique_ptr<FileBytes> file_;
  std::string name_;
  uint64_t data_end_ = 0;
  FileMetadata metadata_;
  Schema schema_;
  size_t next_group_ = 0;
  std::optional<RowAssembler> assembler_;
  int64_t left_ = 0, row_ = 0;  // rows of the row group that are left; rows read
};

}  // namespace

std::unique_ptr<RowReader> open_parquet_rows(const std::filesystem::path& path) {
  HONE_CHECK(path != "-", "standard input: Parquet cannot be read from a stream; write it to a file");
  std::unique_ptr<FileBytes> file;
  if (compression_of_content(read_beginning(path, 4)) == Compression::none)
    file = std::make_unique<DiskFile>(path);
  else
    file = std::make_unique<BytesInMemory>(read_file(path, max_document_bytes));
  return std::make_unique<ParquetRows>(std::move(file), path.string());
}

std::unique_ptr<RowReader> open_parquet_bytes(std::string_view bytes, std::string name) {
  return std::make_unique<ParquetRows>(std::make_unique<BytesInMemory>(bytes), std::move(name));
}

}  // namespace hone
