#pragma once
// Sentences of an English text, as NLTK's Punkt tokenizer splits it (Kiss and Strunk, "Unsupervised Multilingual
// Sentence Boundary Detection", 2006). IFEval counts sentences with it.
#include <cstddef>
#include <string_view>

namespace hone {

size_t count_sentences(std::string_view text);

}  // namespace hone
