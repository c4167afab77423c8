#pragma once
// Reads rows of data as tasks and training samples, with templates that name a row's members (data/row_template.h). A
// row that cannot be used is an Error with file:line. With overlong_rows = "skip" a row that is too long is counted and
// reported instead.
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/text/tokenizer/tokenizer.h"
#include "data/conversation.h"
#include "data/generator.h"
#include "data/prompt.h"
#include "data/row_condition.h"
#include "data/row_template.h"
#include "data/sample.h"

namespace hone {

// Where rows come from: files and dataset folders (core/io/rows/rows.h), or a generator.
struct RowSource {
  std::vector<std::string> files;
  GeneratorSpec generator;
  std::string split = "train";  // split of the generator, or of dataset folders
  int64_t offset = 0;           // rows to skip
  int64_t limit = 0;            // number of rows to read; 0 = all
  ConversationColumns conversation = {};
  RowCondition when = {};  // rows to take; offset and limit count these
  void fields(Fields& f);
};
// Calls row(value, where) in order. Conversations are in the columns of with_conversation(). where: the reader's,
// "file:line" or "file row N", or "generator[i]". No rows are an Error.
void read_rows(const RowSource& source, const std::function<void(const Json& row, const std::string& where)>& row);

struct TaskSource {
  RowSource rows;
  std::string prompt = "{prompt}", answer = "{answer}";  // templates; an empty answer template: no answer
  void fields(Fields& f);
};
std::vector<Task> load_tasks(const TaskSource& source);

// How text becomes samples, and how long a sample may be.
struct SampleFormat {
  PromptFormat format;
  int64_t max_length = 1024;      // in tokens
  std::string too_long = "skip";  // skip | truncate | error
  // Not null: SampleBuilder adds a trace of each sample that it makes, and leaves no row out, so that traces and
  // samples have the same order. Rows that training leaves out keep their whole length.
  std::vector<SampleTrace>* traces = nullptr;
  // The keys of lengths. The format has its own (PromptFormat::fields).
  void length_fields(Fields& f);
};

// Makes samples of one data set. Completions end with the tokenizer's eos (or the chat format's end of turn).
class SampleBuilder {
 public:
  SampleBuilder(const SampleFormat& format, const Tokenizer& tokenizer)
      : format_(format), encoder_(format.format, tokenizer) {}
  // A sample with mask 1 on the completion. If one side is messages, the text of the other is a message of the user or
  // of the assistant. Conversations have the variables of the row (attach_row_variables). Errors name the row
  // (`where`).
  Sample prompt_completion(const RowText& prompt, const RowText& completion, const Json& row, const std::string& where);
  // A sample with mask 1 on the assistant's messages. Without tell_apart the mask is 0, and the template need not mark
  // the assistant's text.
  Sample conversation(std::vector<Message> messages, bool tell_apart, const Json& row, const std::string& where);
  // True if the samples, truncated if the format says so, are short enough and have a token to train on. Otherwise the
  // row is counted as left out.
  bool fit(std::span<Sample> samples, const std::string& where);
  // Logs how many rows were left out and why; an Error if none is kept.
  void report(size_t kept) const;

 private:
  bool fit(Sample& sample, const std::string& where) const;
  Sample encode(const std::vector<Message>& messages, size_t first_trained, const std::string& where);
  void add_trace(const std::string& where, std::vector<TokenRole> roles) const;

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
  void source_fields(Fields& f);  // those that each source of a stage may have: all but lengths
};
// The mask is 1 on the completion; without completion_only_loss on the prompt, too. In a conversation it is 1 on
// everything, or with assistant_only_loss on the assistant's messages. A sample's first token is never trained on.
// keep(sample, row, where) is called for each of them, in order, before it is added.
using KeepSample = std::function<void(Sample& sample, const Json& row, const std::string& where)>;
std::vector<Sample> load_sft(const SftSource& source, const Tokenizer& tokenizer, const KeepSample& keep = nullptr);

}  // namespace hone
