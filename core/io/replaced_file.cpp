#include "core/io/replaced_file.h"

#include <unistd.h>

#include "core/io/file.h"

namespace hone {

ReplacedFile::ReplacedFile(const std::filesystem::path& path) : path_(path), temporary_(path.string() + ".tmp") {
  if (path == "-") temporary_ = path;
  if (path != "-") check_replaceable(path);
  writer_ = std::make_unique<CompressedWriter>(temporary_, path.string(), FileWriter::Mode::truncate);
}

ReplacedFile::~ReplacedFile() {
  if (!writer_) return;
  writer_.reset();
  if (temporary_ != "-") ::unlink(temporary_.c_str());
}

void ReplacedFile::finish() {
  if (path_ == "-") {
    writer_->flush();
    writer_.reset();
    return;
  }
  writer_->sync();
  std::error_code error;
  std::filesystem::rename(temporary_, path_, error);
  HONE_CHECK(!error, path_.string(), ": cannot replace: ", error.message());
  writer_.reset();
  sync_to_disk(path_.has_parent_path() ? path_.parent_path() : ".");
}

}  // namespace hone
