// The input is a Parquet file. At most 1000 rows are read: a few bytes may stand for any number of nulls.
#include "core/io/parquet/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto rows = hone::open_parquet_bytes({reinterpret_cast<const char*>(data), size}, "fuzz");
    hone::Json row;
    for (int i = 0; i < 1000 && rows->next(row); ++i) row.dump();
  } catch (const hone::Error&) {}
  return 0;
}
