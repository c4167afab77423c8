// The first line is a text, the rest a tokenizer.json that encodes it if it loads.
#include "core/text/tokenizer/tokenizer.h"

#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t newline = input.find('\n');
  if (newline == std::string_view::npos) return 0;
  try {
    const hone::Tokenizer tokenizer =
        hone::Tokenizer::from_json(hone::parse_json(input.substr(newline + 1), "fuzz"), "fuzz");
    tokenizer.decode(tokenizer.encode(input.substr(0, newline)));
  } catch (const hone::Error&) {}
  return 0;
}
