#pragma once
// The `post_processor` of a tokenizer.json: the tokens before and after a document (single sequences only). Each type
// ("TemplateProcessing", ...) is a reader in post_processors().
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/registry.h"
#include "core/io/json.h"

namespace hone {

struct DocumentFrame {
  std::vector<int32_t> before, after;
};

// Adds the object's tokens around those that the frame has.
using PostProcessorReader = void (*)(const Json& json, const std::string& where, DocumentFrame& frame);
Registry<PostProcessorReader>& post_processors();

// A token that a document begins or ends with.
struct FrameToken {
  std::string text;
  int64_t id = 0;
};
// The post_processor (TemplateProcessing) that adds these tokens; null if there are none.
Json post_processor_json(const std::optional<FrameToken>& before, const std::optional<FrameToken>& after);

// JSON null adds nothing.
void read_post_processor(const Json& json, const std::string& where, DocumentFrame& frame);

}  // namespace hone
