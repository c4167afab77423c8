#pragma once
#include "core/json.h"
#include "core/tokenizer.h"

namespace hone {

// A model folder's generation_config.json: {"eos_token_id": the tokenizer's stop id, or the list of them}; {} where it has none.
Json generation_config(const Tokenizer& tokenizer);

}  // namespace hone
