#pragma once
// Prompts of evaluation tasks: a description, examples with their answers, then the question; as text or as a
// conversation. The parts are joined as in lm-evaluation-harness: system instruction and description (joined by the
// delimiter), each example followed by the delimiter, the question.
#include <functional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/sample.h"
#include "eval/task.h"

namespace hone {

// The source of few-shot examples. An example that equals the row itself is skipped.
struct FewShot {
  std::vector<std::string> files;
  int64_t offset = 0;               // rows to skip before the first example
  std::string sampler = "first_n";  // first_n | random: chosen for each row, a function of (seed, the row's contents)
  int64_t seed = 1234;
  // Templates; empty = the task's own. A prompt without a target is an example that contains its answer.
  std::string prompt, target;
  std::string delimiter = "\n\n";
  void fields(Fields& f);
};

struct Shot {
  std::string prompt, target;
};

struct EvalExample {
  int64_t doc_id = 0;
  std::string where, subtask;
  uint64_t hash = 0;  // FNV-1a of the row's JSON; the questions of a row share it
  int64_t question_index = 0;
  Json row;  // its member `questions` is this question
  std::string question;
  std::vector<Message> messages;  // of a row that is a conversation; replaces everything else
  std::vector<Shot> shots;
  // A function of the row's contents and of the question. The first question has the row's hash.
  uint64_t request_id() const { return hash ^ (static_cast<uint64_t>(question_index) * 0x9e3779b97f4a7c15u); }
};

// Which rows of a source are loaded. A check before a run takes the first row of each file.
enum class RowsToLoad : uint8_t { all, first_of_files };

// What all kinds with prompts share: rows, the question's template, examples, chat format.
struct PromptSource {
  RowSource rows;
  std::string prompt = "{prompt}", description, subtask;
  std::string questions;  // a list of the row, each element of which is a question; "" = a row is a question
  int64_t num_fewshot = 0;
  FewShot fewshot;
  PromptFormat format;
  void fields(Fields& f);
  int64_t shots(const EvalOptions& options) const {
    return options.num_fewshot >= 0 ? options.num_fewshot : num_fewshot;
  }
  // Returns one example per question. target_of: the text of an example's answer after its prompt, if fewshot.target is
  // empty.
  std::vector<EvalExample> load(const EvalOptions& options,
                                const std::function<std::string(const Json& row, const std::string& where)>& target_of,
                                RowsToLoad which = RowsToLoad::all) const;
};

// A sample with the row's identity; the caller adds prompt, target and metrics.
struct EvalSample;
EvalSample make_sample(const EvalExample& doc);

// The prompt of a task that is plain text. Throws for a conversation: servers give log-probs of plain prompts only.
std::string plain_prompt(const Task& task);

// Joins the parts of an example's prompt. The source and the options must outlive it.
class PromptRenderer {
 public:
  PromptRenderer(const PromptSource& source, const EvalOptions& options);
  bool is_chat() const { return format_.is_chat(); }
  const PromptFormat& format() const { return format_; }
  // Leaves out the first `skipped` few-shot examples. In a chat, Task::prompt is the question alone, and Task::messages
  // the conversation.
  Task task(const EvalExample& doc, size_t skipped = 0) const;
  // The prompt as a sample shows it: text, or a list of {role, content}.
  static Json shown(const Task& task);

 private:
  std::vector<Message> messages(const EvalExample& doc, size_t skipped) const;
  const PromptSource& source_;
  bool multiturn_;
  PromptFormat format_;  // chat = "" is plain text; task() adds the system message
  std::string system_;
};

}  // namespace hone
