#pragma once
// AnswerBody: the JSON of an answer that is no stream of events, written piece after piece from the replies: a long one
// is never in memory whole.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "serve/openai_json.h"

namespace hone {

// One thread at a time.
class AnswerBody {
 public:
  // Everything that an answer is made of. The model outlives it; kept is held until the body ends.
  struct Parts {
    OpenAiRequest request;
    std::string id;
    int64_t created = 0;
    std::vector<std::vector<CompletionOutput>> replies;  // by prompt
    Json usage;
    std::shared_ptr<const void> kept = nullptr;
  };
  AnswerBody(Parts parts, const ServedModel& model) : parts_(std::move(parts)), model_(model) {}
  // Appends 64 KiB or so; false once all of it is written.
  bool next(std::string& out);

 private:
  enum class Place { front, choice, column, entries, choice_end, back, end };
  void step(std::string& out);
  void begin_choice(std::string& out);
  void begin_column(std::string& out);
  void write_entries(std::string& out);
  void end_choice(std::string& out);
  const CompletionOutput& reply() const { return parts_.replies[prompt_][reply_]; }
  const OpenAiPrompt& prompt() const { return parts_.request.prompts[prompt_]; }
  LogprobTokens tokens() const { return {parts_.request, prompt(), model_, reply(), part_}; }

  const Parts parts_;
  const ServedModel& model_;
  Place place_ = Place::front;
  size_t prompt_ = 0, reply_ = 0;  // of the choice that is being written
  ChoiceDelta part_;               // all of it
  size_t column_ = 0, entry_ = 0;
  int64_t text_offset_ = 0;
};

}  // namespace hone
