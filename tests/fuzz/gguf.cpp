// The input is a GGUF file.
#include "core/io/gguf/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    for (const hone::GgufTensor& tensor : hone::parse_gguf(bytes, "fuzz").tensors) {
      if (!tensor.type->dequantize || tensor.columns() > 65536) continue;
      std::vector<float> row(static_cast<size_t>(tensor.columns()));
      hone::dequantize(*tensor.type, tensor.row_bytes(tensor.rows() - 1), row);
    }
  } catch (const hone::Error&) {}
  return 0;
}
