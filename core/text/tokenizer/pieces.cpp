#include "core/text/tokenizer/pieces.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>

namespace hone {

// The token and the text are encoded together, so that the rules for text after a token hold (rstrip, normalized,
// prepend_scheme). Another first id: the token and the text are another token together, or the token only counts as
// such between other characters (single_word).
static std::vector<int32_t> encode_after(int32_t token, std::string_view text, const Tokenizer& tokenizer) {
  std::vector<int32_t> ids = tokenizer.encode(tokenizer.token(token) + std::string(text));
  if (ids.empty() || ids.front() != token) return tokenizer.encode(text, true, false);
  ids.erase(ids.begin());
  return ids;
}

void append_ids(std::vector<int32_t>& ids, std::string_view text, const Tokenizer& tokenizer) {
  std::vector<int32_t> added;
  if (ids.empty())
    added = tokenizer.encode(text);
  else if (tokenizer.is_added(ids.back()))
    added = encode_after(ids.back(), text, tokenizer);
  else
    added = tokenizer.encode(text, true, false);
  ids.insert(ids.end(), added.begin(), added.end());
}

PromptWithCompletion encode_completion(std::string_view prompt, std::string_view completion,
                                       const Tokenizer& tokenizer) {
  PromptWithCompletion out{.ids = tokenizer.encode_document(prompt)};
  out.prompt_length = out.ids.size();
  if (!prompt.empty()) {
    append_ids(out.ids, completion, tokenizer);
    return out;
  }
  const std::vector<int32_t> ids = tokenizer.encode(completion);  // a BOS is no part of the text
  out.ids.insert(out.ids.end(), ids.begin(), ids.end());
  return out;
}

// The end of a token's bytes in the text, with and without the space that the tokenizer put in front: at `at`, else in
// the bytes from `from` on that an added token or a normalizer may have taken.
static std::optional<size_t> end_of_bytes(std::string_view text, std::string_view bytes, size_t at, size_t from) {
  constexpr size_t max_taken = 16;
  const std::array<std::string_view, 2> spellings = {bytes, bytes.substr(bytes.starts_with(' ') ? 1 : 0)};
  for (const std::string_view spelling : spellings)
    if (text.substr(at).starts_with(spelling)) return at + spelling.size();
  for (const std::string_view spelling : spellings) {
    const size_t found = text.substr(0, std::min(text.size(), at + max_taken + spelling.size())).find(spelling, from);
    if (found != text.npos) return found + spelling.size();
  }
  return std::nullopt;
}

std::vector<size_t> token_ends(std::span<const int32_t> ids, std::string_view text, const Tokenizer& tokenizer) {
  std::vector<size_t> out;
  size_t at = 0, found_end = 0;  // found_end: of the last token whose bytes are in the text
  for (const int32_t id : ids) {
    const std::string bytes = tokenizer.token_bytes(id);
    const std::optional<size_t> end = end_of_bytes(text, bytes, at, found_end);
    at = end.value_or(std::min(text.size(), at + bytes.size()));
    if (end) found_end = *end;
    out.push_back(at);
  }
  return out;
}

}  // namespace hone
