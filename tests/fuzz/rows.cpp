// The input is a file of rows, plain or compressed: its first byte chooses JSON or CSV.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "core/io/rows/row_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int descriptor = ::memfd_create("fuzz", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
  if (size == 0) return 0;
  const size_t rest = size - 1;
  if (::ftruncate(descriptor, 0) != 0 || ::pwrite(descriptor, data + 1, rest, 0) != static_cast<ssize_t>(rest))
    std::abort();
  try {
    const auto rows = data[0] % 2 == 0 ? hone::open_json_rows(path) : hone::open_csv_rows(path);
    for (hone::Json row; rows->next(row);) row.dump();
  } catch (const hone::Error&) {}
  return 0;
}
