// The input is a JSON Lines file, gzip or plain. Each row is printed and must read back the same.
#include "core/io/jsonl.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int descriptor = ::memfd_create("fuzz", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
  if (::ftruncate(descriptor, 0) != 0 || ::pwrite(descriptor, data, size, 0) != static_cast<ssize_t>(size))
    std::abort();
  try {
    hone::read_jsonl(path, [](const hone::Json& row, int64_t) {
      if (!(hone::parse_json(row.dump(), "printed") == row)) std::abort();
    });
  } catch (const hone::Error&) {}
  return 0;
}
