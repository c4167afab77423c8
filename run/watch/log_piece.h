#pragma once
// Reads a JSON Lines file that another process appends to, piece by piece.
#include <cstdint>
#include <filesystem>
#include <string>

namespace hone {

// A place in a growing file: its offset, and a digest of the bytes before it. A resumed run cuts its logs and writes
// them again; then the digest no longer fits.
struct LogPlace {
  int64_t offset = 0;
  std::string digest = "0";  // 8 hexadecimal digits; "0" at the start
};

struct LogPiece {
  std::string lines;   // complete lines
  LogPlace next;       // behind them
  int64_t size = 0;    // of the file now
  bool reset = false;  // the file was cut or replaced: `lines` begin at its start
};

// The next complete lines, about 1 MiB at most; a longer line comes alone, up to 16 MiB, and a line beyond that is
// skipped. A missing file is empty.
LogPiece read_log_piece(const std::filesystem::path& path, LogPlace from);
// The place of the first line that begins in the last `bytes` of the file.
LogPlace place_near_end(const std::filesystem::path& path, int64_t bytes);

}  // namespace hone
