#pragma once
// Tokens around a document: the `post_processor` of a tokenizer.json, for single sequences. A kind
// ("TemplateProcessing", ...) is a reader in post_processors().
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/registry.h"
#include "core/io/json.h"

namespace hone {

struct DocumentFrame {
  std::vector<int32_t> before, after;
};

// Adds the tokens of the JSON object around those of the frame.
using PostProcessorReader = void (*)(const Json& json, const std::string& where, DocumentFrame& frame);
Registry<PostProcessorReader>& post_processors();

// null adds nothing.
void read_post_processor(const Json& json, const std::string& where, DocumentFrame& frame);

}  // namespace hone
