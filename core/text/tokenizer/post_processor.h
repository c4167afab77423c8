#pragma once
// What a tokenizer puts around a whole document: the `post_processor` of a tokenizer.json, for single sequences. A kind
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

// Puts what the object asks for around what the frame holds.
using PostProcessorReader = void (*)(const Json& json, const std::string& where, DocumentFrame& frame);
Registry<PostProcessorReader>& post_processors();

// null frames nothing.
void read_post_processor(const Json& json, const std::string& where, DocumentFrame& frame);

}  // namespace hone
