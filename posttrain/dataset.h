#pragma once
// Rows of data as tasks, training samples and preference pairs, by templates that name a row's members (posttrain/row_template.h). Every row
// that cannot be used is an Error file:line, or, where the recipe says skip, is counted and reported.
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/sample.h"
#include "core/tokenizer.h"
#include "posttrain/prompt.h"
#include "pretrain/data/generator.h"

namespace hone {

// Where rows come from: JSON Lines files, or a generator.
struct RowSource {
  std::vector<std::string> files;
  GeneratorSpec generator;
  std::string split = "train";  // of the generator
  int64_t limit = 0;            // first rows only; 0 = all
  void fields(Fields& f);
};
// Calls row(value, where) in order; where is "file:line" or "generator[i]". No rows at all is an Error.
void read_rows(const RowSource& source, const std::function<void(const Json& row, const std::string& where)>& row);

struct TaskSource {
  RowSource rows;
  std::string prompt = "{prompt}", answer = "{answer}";  // templates; an empty answer template is no answer
  void fields(Fields& f);
};
std::vector<Task> load_tasks(const TaskSource& source);

// Prompt and completion rows, or rows with `messages` (all assistant turns are trained on).
struct SftSource {
  RowSource rows;
  std::string prompt = "{prompt}", completion = "{completion}";
  PromptFormat format;
  int64_t max_length = 1024;      // in tokens
  std::string too_long = "skip";  // skip | truncate | error
  void fields(Fields& f);
};
struct PreferenceSource {
  RowSource rows;
  std::string prompt = "{prompt}", chosen = "{chosen}", rejected = "{rejected}";
  PromptFormat format;
  int64_t max_length = 1024;
  std::string too_long = "skip";
  void fields(Fields& f);
};
// Completions end with the tokenizer's eos (or the chat format's end of turn); mask is 1 on the completion. What was skipped is logged with its
// reason.
std::vector<Sample> load_sft(const SftSource& source, const Tokenizer& tokenizer);
// Groups of two samples: chosen, rejected.
std::vector<Group> load_preferences(const PreferenceSource& source, const Tokenizer& tokenizer);

}  // namespace hone
