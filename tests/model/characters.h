#pragma once
// The tokenizer of single characters, and a random model for it.
#include "tests/core/text/tokenizer/character_tokenizer.h"
#include "tests/model/tiny_model.h"

namespace hone::test {

// A model with 40 positions (tiny_config).
inline std::unique_ptr<Model> character_model(Context& context, const Tokenizer& tokenizer) {
  return make_tiny(context, with(tiny_config("llama"), {{"vocab_size", int64_t{tokenizer.vocab_size()}}}), false);
}

}  // namespace hone::test
