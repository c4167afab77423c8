// The input is the README of a dataset folder.
#include "core/base/check.h"
#include "core/io/rows/dataset_folder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    hone::readme_configs({reinterpret_cast<const char*>(data), size});
  } catch (const hone::Error&) {}
  return 0;
}
