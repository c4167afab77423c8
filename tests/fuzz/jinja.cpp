// The input is a chat template. It renders over a small conversation.
#include "core/text/jinja/jinja.h"

#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const hone::Json variables = hone::parse_json(
      R"({"messages": [{"role": "user", "content": "a b"}, {"role": "assistant", "content": "c"}], "bos_token": "<s>"})",
      "variables");
  try {
    hone::JinjaTemplate({reinterpret_cast<const char*>(data), size}).render(variables, 0);
  } catch (const hone::Error&) {}
  return 0;
}
