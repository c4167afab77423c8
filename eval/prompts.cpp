#include "eval/prompts.h"

#include <algorithm>
#include <map>

#include "core/base/format.h"
#include "core/base/rng.h"
#include "data/first_rows.h"
#include "data/row_template.h"

namespace hone {
namespace {

uint64_t hash_of(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return hash;
}

struct Example {
  uint64_t hash = 0;  // of its row
  Shot shot;
};

// Few-shot examples by subtask.
using Examples = std::map<std::string, std::vector<Example>>;

// A row as a question sees it, and its place.
struct QuestionRow {
  Json row;
  std::string where;
};

// The row, or for each element of its list `column` the row with this element in place of the list.
std::vector<QuestionRow> questions_of(const Json& row, const std::string& column, const std::string& where) {
  if (column.empty()) return {{row, where}};
  const Json* list = row.find(column);
  HONE_CHECK(list, where, ": no member '", column, "', which `questions` names");
  HONE_CHECK(list->is_array() && !list->as_array().empty(), where, ": '", column,
             "' must be a list of one question or more, since `questions` names it");
  std::vector<QuestionRow> out;
  for (const Json& question : list->as_array()) {
    out.push_back({row, where});
    out.back().row.set(column, question);
    if (list->as_array().size() > 1) out.back().where += concat(", ", column, "[", out.size() - 1, "]");
  }
  return out;
}

// Chooses `count` examples that are not the row itself.
std::vector<Shot> choose(const std::vector<Example>& all, const FewShot& config, const EvalExample& doc,
                         int64_t count) {
  std::vector<size_t> order(all.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::vector<Shot> out;
  Rng rng(static_cast<uint64_t>(config.seed), doc.hash);
  for (size_t i = 0; i < order.size() && static_cast<int64_t>(out.size()) < count; ++i) {
    if (config.sampler == "random") std::swap(order[i], order[i + rng.below(order.size() - i)]);
    if (const Example& example = all[order[i]]; example.hash != doc.hash) out.push_back(example.shot);
  }
  HONE_CHECK(static_cast<int64_t>(out.size()) == count, doc.where, ": ", count, " examples are needed, ",
             join(config.files), " has ", out.size(), doc.subtask.empty() ? "" : " of '" + doc.subtask + "'");
  return out;
}

std::string subtask_of(const PromptSource& source, const Json& row, const std::string& where) {
  return source.subtask.empty() ? "" : fill_template(source.subtask, row, where);
}

Examples load_examples(const PromptSource& of, int64_t count,
                       const std::function<std::string(const Json&, const std::string&)>& target_of) {
  const FewShot& fewshot = of.fewshot;
  HONE_CHECK(!fewshot.files.empty(), "num_fewshot is ", count,
             ", but the task has no fewshot.files; set them, or num_fewshot to 0");
  Examples out;
  RowSource source;
  source.files = fewshot.files;
  source.offset = fewshot.offset;
  const auto add = [&](uint64_t hash, const Json& row, const std::string& where) {
    const std::string question = fill_template(fewshot.prompt.empty() ? of.prompt : fewshot.prompt, row, where);
    const std::string target = !fewshot.target.empty()  ? fill_template(fewshot.target, row, where)
                               : fewshot.prompt.empty() ? target_of(row, where)
                                                        : "";
    out[subtask_of(of, row, where)].push_back({hash, {question, target}});
  };
  read_rows(source, [&](const Json& row, const std::string& where) {
    for (const auto& [one, at] : questions_of(row, of.questions, where)) add(hash_of(row.dump()), one, at);
  });
  return out;
}

}  // namespace

void FewShot::fields(Fields& f) {
  f("files", files, "files of rows of the examples, as in files");
  f("offset", offset, "rows to skip before the first example");
  f("sampler", sampler, "first_n: the first examples; random: random examples for each row");
  f("seed", seed, "seed of sampler = random");
  f("prompt", prompt, "template of an example's question; empty = the task's prompt");
  f("target", target,
    "template of the text after an example's question; empty = the task's own, or none if prompt is set");
  f("delimiter", delimiter, "text after every example");
  f.require("offset", offset >= 0, "offset must be 0 or more");
  f.require("sampler", sampler == "first_n" || sampler == "random", "sampler must be first_n or random");
}

void PromptSource::fields(Fields& f) {
  rows.fields(f);
  f("prompt", prompt, "template of the question; {name} is a member of the row");
  f("description", description,
    "template of the text before the examples; with a chat format, of the system message; empty = none");
  f("subtask", subtask,
    "template of the name of a row's subtask; subtasks are reported each and together, and examples come from the same "
    "subtask; empty = no subtasks");
  f("num_fewshot", num_fewshot, "number of examples before the question");
  f("fewshot", fewshot, "source of the examples");
  format.fields(f);
  f.require("num_fewshot", num_fewshot >= 0 && num_fewshot <= 1024, "num_fewshot must be in [0, 1024]");
}

std::vector<EvalExample> PromptSource::load(
    const EvalOptions& options, const std::function<std::string(const Json&, const std::string&)>& target_of,
    RowsToLoad which) const {
  const int64_t count = shots(options);
  Examples examples;
  if (count > 0) examples = load_examples(*this, count, target_of);
  std::vector<EvalExample> out;
  const auto add = [&](uint64_t hash, int64_t index, Json row, const std::string& where) {
    EvalExample doc;
    doc.doc_id = static_cast<int64_t>(out.size());
    doc.where = where;
    doc.subtask = subtask_of(*this, row, where);
    doc.hash = hash;
    doc.question_index = index;
    if (const Json* messages = row.find("messages")) {
      doc.messages = prompt_of(parse_messages(*messages, where));
    } else {
      RowText question = fill_text(prompt, row, where);
      doc.question = std::move(question.text);
      doc.messages = std::move(question.messages);
    }
    if (count > 0) doc.shots = choose(examples[doc.subtask], fewshot, doc, count);
    doc.row = std::move(row);
    out.push_back(std::move(doc));
  };
  const auto read = [&](const RowSource& source) {
    read_rows(source, [&](const Json& row, const std::string& where) {
      const uint64_t hash = hash_of(row.dump());
      int64_t index = 0;
      for (auto& [one, at] : questions_of(row, questions, where)) add(hash, index++, std::move(one), at);
    });
  };
  if (which == RowsToLoad::first_of_files) {
    each_first_row(rows, read);
    return out;
  }
  RowSource source = rows;
  if (options.limit > 0 && (source.limit == 0 || options.limit < source.limit)) source.limit = options.limit;
  read(source);
  return out;
}

EvalSample make_sample(const EvalExample& doc) {
  EvalSample out;
  out.doc_id = doc.doc_id;
  out.where = doc.where;
  out.hash = format_text("%016llx", static_cast<unsigned long long>(doc.hash));
  out.subtask = doc.subtask;
  out.question_index = doc.question_index;
  return out;
}

std::string plain_prompt(const Task& task) {
  HONE_CHECK(task.messages.empty(), task.id,
             ": a server gives log-probs of plain prompts only, not of a chat: leave out --apply-chat-template");
  return task.prompt;
}

PromptRenderer::PromptRenderer(const PromptSource& source, const EvalOptions& options)
    : source_(source), multiturn_(options.fewshot_as_multiturn), format_(source.format), system_(source.format.system) {
  format_.settings = options.chat.over(format_.settings);
  const bool is_replaced = !options.chat.chat_template.empty();  // a built-in format of the task's, too
  if (is_replaced || (options.apply_chat_template && !format_.is_chat())) format_.chat = "auto";
  if (!options.system_instruction.empty()) system_ = options.system_instruction;
  format_.system.clear();
}

std::vector<Message> PromptRenderer::messages(const EvalExample& doc, size_t skipped) const {
  std::vector<Message> out;
  std::string text;  // of the next user message
  for (size_t i = skipped; i < doc.shots.size(); ++i) {
    text += doc.shots[i].prompt;
    if (multiturn_ && !doc.shots[i].target.empty()) {
      out.push_back({"user", text, {}});
      const std::string& target = doc.shots[i].target;
      out.push_back({"assistant", target.substr(std::min(target.find_first_not_of(' '), target.size())), {}});
      text.clear();
    } else {
      text += doc.shots[i].target + source_.fewshot.delimiter;
    }
  }
  out.push_back({"user", text + doc.question, {}});
  return out;
}

Task PromptRenderer::task(const EvalExample& doc, size_t skipped) const {
  Task out;
  out.id = doc.where;
  out.columns = doc.row;
  if (!doc.messages.empty()) {
    out.messages = doc.messages;
    return out;
  }
  std::string preamble = system_;
  if (!source_.description.empty())
    preamble +=
        (preamble.empty() ? "" : source_.fewshot.delimiter) + fill_template(source_.description, doc.row, doc.where);
  if (is_chat()) {
    out.prompt = doc.question;  // rewards may read it
    if (!preamble.empty()) out.messages.push_back({"system", preamble, {}});
    for (Message& message : messages(doc, skipped)) out.messages.push_back(std::move(message));
    return out;
  }
  out.prompt = preamble;
  for (size_t i = skipped; i < doc.shots.size(); ++i)
    out.prompt += doc.shots[i].prompt + doc.shots[i].target + source_.fewshot.delimiter;
  out.prompt += doc.question;
  return out;
}

Json PromptRenderer::shown(const Task& task) {
  return task.messages.empty() ? Json(task.prompt) : messages_json(task.messages);
}

}  // namespace hone
