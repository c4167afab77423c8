#pragma once
#include <string>

#include "core/text/tokenizer/tokenizer.h"
#include "model/model.h"

namespace hone {

// Throws an Error if a draft model of this folder cannot exchange ids with the target model: their tokenizers differ,
// or without two tokenizers their vocabularies. target: the model's tokenizer; null: none.
void check_draft_vocabulary(const Model& draft, const std::string& folder, const Model& model, const Tokenizer* target);

}  // namespace hone
