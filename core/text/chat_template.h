#pragma once
// A model folder's Jinja chat template together with what it reads from the tokenizer, and the assistant's turns in
// what it writes.
//
// No template says which part of its text is a reply. Where it has no {% generation %} block the parts are found by
// rendering the conversation again with one reply replaced by a marker: what stands before and after the marker is the
// template's.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/chat.h"
#include "core/text/jinja/jinja.h"

namespace hone {

struct TextSpan {
  size_t begin = 0, end = 0;  // bytes
};

class ChatTemplate {
 public:
  // Parses the tokenizer's chat template; an Error if there is none. today: what strftime_now reads, seconds since
  // 1970.
  ChatTemplate(const Tokenizer& tokenizer, int64_t today);

  // The template's own complaint (raise_exception) is an Error.
  JinjaTemplate::Output render(const std::vector<Message>& messages, bool add_generation_prompt) const;

  // The token that ends the assistant's turn: the first special token after the reply in a conversation that ends with
  // it. "" if the template writes none, or renders no conversation of a question and a reply.
  const std::string& end_of_turn() const { return end_of_turn_; }

  // Where the assistant's turns from message `first` on stand in `rendered`, the text of all messages: from behind the
  // header that asks for the turn to the end of its end-of-turn token. An Error names the message whose turn cannot be
  // found.
  std::vector<TextSpan> assistant_spans(const std::vector<Message>& messages, const JinjaTemplate::Output& rendered,
                                        size_t first) const;

 private:
  class SpanSearch;
  // Text around a marker.
  struct Surroundings {
    std::string before, after;
  };

  std::optional<std::string> try_render(std::vector<Message> messages, bool add_generation_prompt) const;
  std::optional<Surroundings> around(const std::vector<Message>& messages, const std::string& marker) const;
  void learn_turn(const Tokenizer& tokenizer);
  size_t end_of_turn_in(std::string_view text) const;
  size_t header_size(std::string_view before_reply) const;

  JinjaTemplate template_;
  std::string bos_, eos_, pad_;
  int64_t today_;
  std::string end_of_turn_;
  std::vector<std::string> turn_ends_;  // the tokens that end a generation: the tokenizer's, and end_of_turn_
  std::string header_;                  // of an assistant's turn, or its end
  std::vector<std::string>
      reply_prefixes_;     // what the template writes between that and a reply (an empty thinking block)
  std::string last_tail_;  // what follows the reply that ends a conversation
};

}  // namespace hone
