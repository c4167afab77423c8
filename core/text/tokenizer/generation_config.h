#pragma once
#include "core/io/json.h"
#include "core/text/tokenizer/tokenizer.h"

namespace hone {

// A model folder's generation_config.json: {"eos_token_id": the tokenizer's stop id, or the list of them}; {} where it
// has none.
Json generation_config_json(const Tokenizer& tokenizer);

}  // namespace hone
