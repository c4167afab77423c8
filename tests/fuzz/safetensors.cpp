// The input is a safetensors file.
#include "core/io/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    hone::check_safetensors({reinterpret_cast<const char*>(data), size}, "fuzz");
  } catch (const hone::Error&) {}
  return 0;
}
