#include "core/io/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "core/base/rank_thread.h"
#include "core/io/byte_source.h"
#include "core/io/nearest_path.h"

namespace hone {
namespace {

constexpr size_t kBlock = size_t{1} << 18;
constexpr size_t kMaxLine = size_t{256} << 20;

std::string reason() { return std::strerror(errno); }

std::string_view kind_of(mode_t mode) {
  switch (mode & S_IFMT) {
    case S_IFDIR:
      return "a directory";
    case S_IFIFO:
      return "a FIFO";
    case S_IFCHR:
    case S_IFBLK:
      return "a device";
    case S_IFSOCK:
      return "a socket";
    default:
      return "of another kind";
  }
}

// /dev/null is an empty file.
bool is_file(const struct stat& status) {
  return S_ISREG(status.st_mode) || (S_ISCHR(status.st_mode) && status.st_rdev == makedev(1, 3));
}

}  // namespace

int open_file(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    const std::string why = reason(), nearest = errno == ENOENT ? nearest_path(path) : "";
    fail(path.string(), ": cannot open: ", why, nearest);
  }
  HONE_CHECK(is_file(status), path.string(), ": is ", kind_of(status.st_mode), ", not a file");
  // O_NONBLOCK: if a FIFO has replaced the file since stat(), open() does not wait for a writer.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  HONE_CHECK(descriptor >= 0, path.string(), ": cannot open: ", reason());
  const bool opened_file = ::fstat(descriptor, &status) == 0 && is_file(status);
  if (!opened_file) ::close(descriptor);
  HONE_CHECK(opened_file, path.string(), ": is ", kind_of(status.st_mode), ", not a file");
  return descriptor;
}

std::string expand_path(std::string_view path) {
  const auto variable = [&](const std::string& name) -> std::string {
    const char* value = std::getenv(name.c_str());
    HONE_CHECK(value, "'", path, "': the environment variable ", name, " is not set");
    return value;
  };
  std::string out;
  std::string_view rest = path;
  if (rest.starts_with("~/")) out = variable("HOME"), rest.remove_prefix(1);
  for (;;) {
    const size_t open = rest.find("${");
    out += rest.substr(0, open);
    if (open == std::string_view::npos) return out;
    const size_t close = rest.find('}', open);
    HONE_CHECK(close != std::string_view::npos, "'", path, "': '${' without '}'");
    out += variable(std::string(rest.substr(open + 2, close - open - 2)));
    rest.remove_prefix(close + 1);
  }
}

std::string read_file(const std::filesystem::path& path, uint64_t limit) {
  ByteSource source(path);
  std::string out;
  try {
    for (;;) {
      const size_t used = out.size();
      if (out.capacity() < used + kBlock) out.reserve(std::max(used + kBlock, used * 2));
      out.resize(used + kBlock);
      out.resize(used + source.read(out.data() + used, kBlock));
      if (out.size() == used) return out;
      HONE_CHECK(out.size() <= limit, source.name(), ": larger than ", limit,
                 " bytes once it is unpacked, the most that a file of its kind may have");
    }
  } catch (const std::bad_alloc&) {
    fail(source.name(), ": there is not enough memory to read it whole (", out.size(), " bytes so far)");
  }
}

std::string read_beginning(const std::filesystem::path& path, size_t size) {
  const int descriptor = open_file(path);
  std::string out(size, '\0');
  const ssize_t count = ::pread(descriptor, out.data(), size, 0);
  const std::string why = reason();
  ::close(descriptor);
  HONE_CHECK(count >= 0, path.string(), ": cannot read: ", why);
  out.resize(static_cast<size_t>(count));
  return out;
}

struct LineReader::Impl {
  explicit Impl(const std::filesystem::path& path) : source(path), block(kBlock, '\0') {}
  ByteSource source;
  std::string block;
  size_t begin = 0, end = 0;  // the unread part of the block
  int64_t number = 0;
};

LineReader::LineReader(const std::filesystem::path& path) : impl_(std::make_unique<Impl>(path)) {}
LineReader::~LineReader() = default;
int64_t LineReader::line_number() const { return impl_->number; }
const std::string& LineReader::name() const { return impl_->source.name(); }

bool LineReader::next(std::string& line) {
  Impl& in = *impl_;
  line.clear();
  bool started = false, ended = false;
  while (!ended) {
    if (in.begin == in.end) {
      in.begin = 0;
      in.end = in.source.read(in.block.data(), in.block.size());
      if (in.end == 0) break;
    }
    started = true;
    const std::string_view rest(in.block.data() + in.begin, in.end - in.begin);
    const size_t newline = rest.find('\n');
    ended = newline != std::string_view::npos;
    line += rest.substr(0, newline);
    in.begin += ended ? newline + 1 : rest.size();
    HONE_CHECK(line.size() <= kMaxLine, name(), ":", in.number + 1, ": a line of more than ", kMaxLine, " bytes");
  }
  if (!started) return false;
  ++in.number;
  if (line.ends_with('\r')) line.pop_back();
  return true;
}

FileWriter::FileWriter(std::filesystem::path path, Mode mode)
    : path_(std::move(path)), name_(path_ == "-" ? "standard output" : path_.string()) {
  descriptor_ =
      path_ == "-"
          ? ::dup(STDOUT_FILENO)
          : ::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | (mode == Mode::append ? O_APPEND : O_TRUNC), 0644);
  if (descriptor_ >= 0) return;
  const std::string why = reason();
  const std::filesystem::path folder = path_.parent_path();
  HONE_CHECK(folder.empty() || std::filesystem::exists(folder), name_, ": cannot write: there is no folder ",
             folder.string());
  fail(name_, ": cannot write: ", why);
}

FileWriter::~FileWriter() {
  try {
    flush();
  } catch (const Error&) {}
  ::close(descriptor_);
}

void FileWriter::write(std::string_view bytes) {
  if (buffer_.size() + bytes.size() < kBlock) return void(buffer_ += bytes);
  flush();
  write_through(bytes);
}

void FileWriter::flush() { write_through(std::exchange(buffer_, {})); }

void FileWriter::write_through(std::string_view rest) {
  note_progress();
  while (!rest.empty()) {
    const ssize_t count = ::write(descriptor_, rest.data(), rest.size());
    HONE_CHECK(count >= 0 || errno == EINTR, name_, ": cannot write: ", reason());
    if (count > 0) rest.remove_prefix(static_cast<size_t>(count));
  }
}

void FileWriter::sync() {
  flush();
  HONE_CHECK(::fsync(descriptor_) == 0, name_, ": cannot flush to disk: ", reason());
}

void sync_to_disk(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  HONE_CHECK(descriptor >= 0, path.string(), ": cannot open: ", reason());
  const bool done = ::fsync(descriptor) == 0;
  const std::string why = reason();
  ::close(descriptor);
  HONE_CHECK(done, path.string(), ": cannot flush to disk: ", why);
}

int create_locked_file(const std::filesystem::path& path) {
  for (;;) {
    const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0644);
    HONE_CHECK(descriptor >= 0, path.string(), ": cannot write: ", reason());
    const bool is_held = ::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    // Between open and flock the holder may have renamed or removed the file.
    struct stat opened {
    }, there{};
    const bool is_there =
        ::fstat(descriptor, &opened) == 0 && ::stat(path.c_str(), &there) == 0 && opened.st_ino == there.st_ino;
    if (!is_held && is_there && ::ftruncate(descriptor, 0) == 0) return descriptor;
    const std::string why = reason();
    ::close(descriptor);
    HONE_CHECK(!is_held, path.string(), ": another process is writing it");
    HONE_CHECK(!is_there, path.string(), ": cannot write: ", why);
  }
}

void check_replaceable(const std::filesystem::path& path) {
  std::error_code unknown;
  const std::filesystem::file_status status = std::filesystem::status(path, unknown);
  HONE_CHECK(!std::filesystem::exists(status) || std::filesystem::is_regular_file(status), path.string(),
             ": cannot replace: it is not a file");
}

void write_file_atomic(const std::filesystem::path& path, std::string_view bytes) {
  check_replaceable(path);
  const std::filesystem::path temporary = path.string() + ".tmp";
  try {
    {
      FileWriter writer(temporary);
      writer.write(bytes);
      writer.sync();
    }
    HONE_CHECK(::rename(temporary.c_str(), path.c_str()) == 0, path.string(), ": cannot replace: ", reason());
  } catch (const Error&) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_to_disk(path.has_parent_path() ? path.parent_path() : ".");
}

void make_folder(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  HONE_CHECK(!error && std::filesystem::is_directory(path), path.string(),
             ": cannot make the folder: ", error ? error.message() : "a file is in the way");
  HONE_CHECK(::access(path.c_str(), W_OK) == 0, path.string(), ": cannot write into the folder: ", reason());
}

}  // namespace hone
