#pragma once
// Rows of data as tasks and training samples, by templates that name a row's members (data/row_template.h). Every row
// that cannot be used is an Error file:line, or, where the recipe says skip, is counted and reported.
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/text/tokenizer/tokenizer.h"
#include "data/generator.h"
#include "data/prompt.h"
#include "data/row_template.h"
#include "data/sample.h"

namespace hone {

// Where rows come from: JSON Lines files, texts (.txt: a row {text} each), or a generator.
struct RowSource {
  std::vector<std::string> files;
  GeneratorSpec generator;
  std::string split = "train";  // of the generator
  int64_t offset = 0;           // rows passed over before the first
  int64_t limit = 0;            // so many rows from there on; 0 = all
  void fields(Fields& f);
};
// Calls row(value, where) in order; where is "file:line", a text's file, or "generator[i]". No rows at all is an Error.
void read_rows(const RowSource& source, const std::function<void(const Json& row, const std::string& where)>& row);

struct TaskSource {
  RowSource rows;
  std::string prompt = "{prompt}", answer = "{answer}";  // templates; an empty answer template is no answer
  void fields(Fields& f);
};
std::vector<Task> load_tasks(const TaskSource& source);

// How text becomes samples, and which are too long.
struct SampleFormat {
  PromptFormat format;
  int64_t max_length = 1024;      // in tokens
  std::string too_long = "skip";  // skip | truncate | error
  void fields(Fields& f);
};

// Makes samples of one data set. Completions end with the tokenizer's eos (or the chat format's end of turn).
class SampleBuilder {
 public:
  SampleBuilder(const SampleFormat& format, const Tokenizer& tokenizer)
      : format_(format), encoder_(format.format, tokenizer) {}
  // Mask 1 on the completion. Where either side is messages, a text is the user's, or the assistant's, message. Errors
  // name the row (`where`).
  Sample reply(const RowText& prompt, const RowText& completion, const std::string& where);
  // Mask 1 on what the assistant says; with tell_apart off nowhere, and the template need not show which text is the
  // assistant's.
  Sample conversation(const std::vector<Message>& messages, bool tell_apart, const std::string& where);
  // Whether the samples, cut where the format says so, are short enough and have something to train on; if not, the row
  // is counted as left out.
  bool fit(std::span<Sample> samples, const std::string& where);
  // Tells how many rows were left out and why; an Error if nothing is kept.
  void report(size_t kept) const;

 private:
  bool fit(Sample& sample, const std::string& where) const;

  const SampleFormat& format_;
  PromptEncoder encoder_;
  int64_t left_out_ = 0;
  std::string first_left_out_;
};

// Prompt and completion rows, or rows with `messages`.
struct SftSource {
  RowSource rows;
  std::string prompt = "{prompt}", completion = "{completion}";
  bool completion_only_loss = true, assistant_only_loss = false;
  SampleFormat sample;
  void fields(Fields& f);
};
// Mask 1 on the completion, or with completion_only_loss off on everything; of a conversation on everything, or with
// assistant_only_loss on what the assistant says. A sample's first token is never trained on.
std::vector<Sample> load_sft(const SftSource& source, const Tokenizer& tokenizer);

}  // namespace hone
