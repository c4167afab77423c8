#pragma once
// ResponseBody: writes the JSON of a response that is not streamed in pieces, so that a long response is never in
// memory as a whole.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "serve/openai_json.h"

namespace hone {

// One thread at a time.
class ResponseBody {
 public:
  // Everything that the response is made of. The model must outlive it. `reservation` is released with the body.
  struct Parts {
    OpenAiRequest request;
    std::string id;
    int64_t created = 0;
    std::vector<std::vector<CompletionOutput>> completions;  // by prompt
    Json usage;
    std::shared_ptr<const void> reservation = nullptr;
  };
  ResponseBody(Parts parts, const ServedModel& model) : parts_(std::move(parts)), model_(model) {}
  // Appends about 64 KiB. Returns false when the whole response is written.
  bool next(std::string& out);

 private:
  enum class Position { front, choice, column, entries, choice_end, back, end };
  void step(std::string& out);
  void begin_choice(std::string& out);
  void begin_column(std::string& out);
  void write_entries(std::string& out);
  void end_choice(std::string& out);
  const CompletionOutput& completion() const { return parts_.completions[prompt_index_][completion_index_]; }
  const OpenAiPrompt& prompt() const { return parts_.request.prompts[prompt_index_]; }
  LogprobTokens tokens() const { return {parts_.request, prompt(), model_, completion(), delta_}; }

  const Parts parts_;
  const ServedModel& model_;
  Position position_ = Position::front;
  size_t prompt_index_ = 0, completion_index_ = 0;  // of the current choice
  ChoiceDelta delta_;                               // the whole choice
  size_t column_index_ = 0, entry_index_ = 0;
  int64_t text_offset_ = 0;
};

}  // namespace hone
