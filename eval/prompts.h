#pragma once
// Rows as they are put to a model: a description, examples with their answers, then the question; as text or as a
// conversation. How the parts are joined is lm-evaluation-harness's: system instruction and description (joined by the
// delimiter), example + delimiter each, the question.
#include <functional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/sample.h"
#include "eval/task.h"

namespace hone {

// Where examples come from. An example that is the row itself is passed over.
struct FewShot {
  std::vector<std::string> files;
  int64_t offset = 0;               // rows passed over before the first example
  std::string sampler = "first_n";  // first_n | random: drawn for each row, decided by (seed, the row's contents)
  int64_t seed = 1234;
  std::string prompt,
      target;  // templates; empty = the task's own; a prompt without a target is an example that holds its answer
  std::string delimiter = "\n\n";
  void fields(Fields& f);
};

struct Shot {
  std::string prompt, target;
};

struct EvalExample {
  int64_t doc_id = 0;
  std::string where, subtask;
  uint64_t hash = 0;  // FNV-1a of the row's JSON
  Json row;
  std::string question;
  std::vector<Message> messages;  // of a row that is a conversation: used instead of everything else
  std::vector<Shot> shots;
};

// What every kind that asks shares: rows, the question's template, examples, chat format.
struct PromptSource {
  RowSource rows;
  std::string prompt = "{prompt}", description, subtask;
  int64_t num_fewshot = 0;
  FewShot fewshot;
  PromptFormat format;
  void fields(Fields& f);
  int64_t shots(const EvalOptions& options) const {
    return options.num_fewshot >= 0 ? options.num_fewshot : num_fewshot;
  }
  // target_of: an example's answer as it follows its prompt, where fewshot.target does not say.
  std::vector<EvalExample> load(
      const EvalOptions& options,
      const std::function<std::string(const Json& row, const std::string& where)>& target_of) const;
};

// The beginnings of a sample: what it is, and what was asked.
struct EvalSample;
EvalSample make_sample(const EvalExample& doc);

// Puts a document's parts together. The source and the options must outlive it.
class PromptRenderer {
 public:
  PromptRenderer(const PromptSource& source, const EvalOptions& options);
  bool is_chat() const { return !format_.chat.empty(); }
  const PromptFormat& format() const { return format_; }
  // With the first `skipped` examples left out. In a chat, the task's prompt is the bare question, and messages are
  // what is asked.
  Task task(const EvalExample& doc, size_t skipped = 0) const;
  // What is asked as a sample shows it: text, or a list of {role, content}.
  static Json shown(const Task& task);

 private:
  std::vector<Message> messages(const EvalExample& doc, size_t skipped) const;
  const PromptSource& source_;
  bool multiturn_;
  PromptFormat format_;  // chat = "" is plain text; the system message is part of what task() gives
  std::string system_;
};

}  // namespace hone
