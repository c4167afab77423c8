#pragma once
// Detokenizer: the text of a reply while it is written, in pieces that are never taken back: whole characters, and
// nothing that may turn out to be the beginning of a stop string. The pieces and the rest join to Reply::text.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/text/tokenizer/tokenizer.h"
#include "rollout/engine.h"

namespace hone {

class Detokenizer {
 public:
  // tokenizer may be null: all text is empty. stops is copied; one counts once it ends after min_tokens ids. continues:
  // with the leading_space() the reply.
  Detokenizer(const Tokenizer* tokenizer, std::vector<std::string> stops, int64_t min_tokens, bool continues)
      : tokenizer_(tokenizer), stops_(std::move(stops)), min_tokens_(min_tokens), continues_(continues) {}
  // What can be shown now that the reply has one more id.
  std::string add(int32_t id);
  // What is left of the finished reply's text.
  std::string rest(const std::string& whole) const;

 private:
  size_t num_held_back() const;
  const Tokenizer* tokenizer_;
  const std::vector<std::string> stops_;
  const int64_t min_tokens_;
  const bool continues_;
  int64_t num_ids_ = 0;
  std::vector<int32_t> previous_;  // the last id that has text, if any
  std::string shown_, waiting_;
  size_t early_ = 0;  // bytes of waiting_ that are of the first min_tokens ids
};

// The text of a finished reply: without special tokens, and cut before the stop string that ended it.
std::string reply_text(const Tokenizer& tokenizer, const SamplingParams& sampling, std::span<const int32_t> ids,
                       bool by_length);

// What has to stand before a reply's text for it to go on from a prompt: the space that decoders of SentencePiece's
// kind strip where a text begins. tokenizer may be null.
std::string leading_space(const Tokenizer* tokenizer, std::span<const int32_t> ids);

// The length of the longest beginning of the text that does not end within a UTF-8 character.
size_t whole_characters(std::string_view text);

}  // namespace hone
