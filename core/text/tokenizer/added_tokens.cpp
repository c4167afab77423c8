#include "core/text/tokenizer/added_tokens.h"

#include <algorithm>

#include "core/text/unicode/unicode.h"

namespace hone {
namespace {

bool word_before(std::string_view text, size_t at) {
  return at > 0 && is_word(code_point_at(text, code_point_before(text, at)).value);
}
bool word_after(std::string_view text, size_t at) { return at < text.size() && is_word(code_point_at(text, at).value); }

size_t spaces_begin(std::string_view text, size_t at, size_t limit) {
  while (at > limit) {
    const size_t before = code_point_before(text, at);
    if (before < limit || !is_space(code_point_at(text, before).value)) break;
    at = before;
  }
  return at;
}

size_t spaces_end(std::string_view text, size_t at) {
  while (at < text.size()) {
    const CodePoint c = code_point_at(text, at);
    if (!is_space(c.value)) break;
    at += c.length;
  }
  return at;
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::erase_if(tokens_, [](const AddedToken& token) { return token.content.empty(); });
  std::stable_sort(tokens_.begin(), tokens_.end(),
                   [](const AddedToken& a, const AddedToken& b) { return a.content < b.content; });
  for (uint32_t i = 0; i < tokens_.size(); ++i) {
    auto& range = by_first_byte_[static_cast<uint8_t>(tokens_[i].content[0])];
    if (range.second == 0) range.first = i;
    range.second = i + 1;
  }
}

const AddedToken* AddedTokenMatcher::longest_at(std::string_view input, size_t at) const {
  auto [begin, end] = by_first_byte_[static_cast<uint8_t>(input[at])];
  const AddedToken* longest = nullptr;
  // tokens_[begin, end) share `depth` bytes with the input; those that end here come first.
  for (size_t depth = 1; begin < end; ++depth) {
    if (tokens_[begin].content.size() == depth) longest = &tokens_[begin];
    while (begin < end && tokens_[begin].content.size() == depth) ++begin;
    if (at + depth >= input.size()) break;
    const auto byte = static_cast<uint8_t>(input[at + depth]);
    const auto byte_of = [depth](const AddedToken& token) { return static_cast<uint8_t>(token.content[depth]); };
    const auto low = std::lower_bound(tokens_.begin() + begin, tokens_.begin() + end, byte,
                                      [&](const AddedToken& t, uint8_t b) { return byte_of(t) < b; });
    const auto high = std::upper_bound(low, tokens_.begin() + end, byte,
                                       [&](uint8_t b, const AddedToken& t) { return b < byte_of(t); });
    begin = static_cast<uint32_t>(low - tokens_.begin());
    end = static_cast<uint32_t>(high - tokens_.begin());
  }
  return longest;
}

void AddedTokenMatcher::each(std::string_view input, bool special, FunctionRef<void(size_t, size_t)> text,
                             FunctionRef<void(int32_t)> token) const {
  size_t done = 0;
  for (size_t at = 0; at < input.size() && !empty();) {
    const AddedToken* found =
        by_first_byte_[static_cast<uint8_t>(input[at])].second > 0 ? longest_at(input, at) : nullptr;
    if (!found) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + found->content.size();
    at = end;
    if (found->special && !special) continue;
    if (found->single_word && (word_before(input, begin) || word_after(input, end))) continue;
    if (found->lstrip) begin = spaces_begin(input, begin, done);
    if (found->rstrip) end = spaces_end(input, end);
    if (done < begin) text(done, begin);
    token(found->id);
    done = at = end;
  }
  if (done < input.size()) text(done, input.size());
}

}  // namespace hone
