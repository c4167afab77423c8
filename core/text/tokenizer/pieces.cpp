#include "core/text/tokenizer/pieces.h"

#include <algorithm>
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

std::vector<size_t> token_ends(std::span<const int32_t> ids, std::string_view text, const Tokenizer& tokenizer) {
  constexpr size_t max_skipped = 16;  // bytes of white space or of changed characters between two tokens
  std::vector<size_t> out;
  size_t at = 0, found_end = 0;  // found_end: of the last token whose bytes are in the text
  for (const int32_t id : ids) {
    const std::string bytes = tokenizer.token_bytes(id);
    std::string_view own = bytes;
    if (own.starts_with(' ') && !text.substr(at).starts_with(own) && text.substr(at).starts_with(own.substr(1)))
      own.remove_prefix(1);  // the space that the tokenizer put before the text
    if (!text.substr(at).starts_with(own)) {
      const size_t found = text.substr(0, std::min(text.size(), at + max_skipped + own.size())).find(own, found_end);
      if (found == text.npos) {
        at = std::min(text.size(), at + own.size());
        out.push_back(at);
        continue;
      }
      at = found;
    }
    at += own.size();
    found_end = at;
    out.push_back(at);
  }
  return out;
}

}  // namespace hone
