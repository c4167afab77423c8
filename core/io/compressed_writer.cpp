#include "core/io/compressed_writer.h"

#include <unistd.h>

namespace hone {

CompressedWriter::CompressedWriter(const std::filesystem::path& path, std::string_view name, FileWriter::Mode mode)
    : file_(path, mode), packer_(make_packer(compression_of_name(name))) {
  open_ = packer_ && mode == FileWriter::Mode::truncate;  // a compressed text without bytes is a member, too
}

CompressedWriter::~CompressedWriter() {
  try {
    end_packed();
  } catch (const Error&) {}  // a destructor cannot report it; flush() does
}

void CompressedWriter::write(std::string_view bytes) {
  if (!packer_) return file_.write(bytes);
  packer_->pack(bytes, packed_);
  open_ = true;
  file_.write(packed_);
  packed_.clear();
}

void CompressedWriter::end_packed() {
  if (!open_) return;
  open_ = false;
  packer_->end(packed_);
  file_.write(packed_);
  packed_.clear();
}

void CompressedWriter::flush() {
  end_packed();
  file_.flush();
}

void CompressedWriter::sync() {
  end_packed();
  file_.sync();
}

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
