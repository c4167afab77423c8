#include "core/io/compressed_writer.h"

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

}  // namespace hone
