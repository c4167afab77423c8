#include "data/dataset.h"

#include <algorithm>

#include "core/base/log.h"
#include "core/io/rows/rows.h"

namespace hone {

void RowSource::fields(Fields& f) {
  f("files", files,
    "files of rows: .jsonl, .json, .csv, .tsv, .parquet, also .gz or .zst; a text file (.txt) is one row {text}; a "
    "Hugging "
    "Face dataset folder, also with its split (FOLDER:SPLIT) or configuration (FOLDER:CONFIG:SPLIT)");
  f("generator", generator, "generates the rows instead of reading files");
  f("split", split, "split of the generator (train | test) or of dataset folders");
  f("offset", offset, "rows to skip before the first");
  f("limit", limit, "number of rows to read; 0 = all");
  conversation.fields(f);
  f("when", when, "rows to take, by a column; offset and limit count these rows; empty = all rows");
  f.require("split", generator.kind.empty() || split == "train" || split == "test",
            "the split of a generator must be train or test");
  f.require("split", !split.empty(), "split must not be empty");
  f.require("files", files.empty() || generator.kind.empty(), "rows come from files or from a generator, not both");
  f.require("offset", offset >= 0, "offset must be 0 or more");
  f.require("limit", limit >= 0, "limit must be 0 or more");
}

void TaskSource::fields(Fields& f) {
  rows.fields(f);
  f("prompt", prompt, "template of the prompt; {name} stands for the row's member of that name");
  f("answer", answer, "template of the reference answer; empty = none");
}

void SampleFormat::length_fields(Fields& f) {
  f("max_length", max_length, "maximum length of a sample in tokens");
  f.alias("too_long", "overlong_rows");
  f("overlong_rows", too_long, "what to do with rows longer than max_length: skip | truncate | error");
  f.require("max_length", max_length >= 2 && max_length <= max_sample_length,
            concat("max_length must be in [2, ", max_sample_length, "]"));
  f.require("overlong_rows", too_long == "skip" || too_long == "truncate" || too_long == "error",
            "overlong_rows must be skip, truncate or error");
}

void SftSource::fields(Fields& f) {
  source_fields(f);
  sample.length_fields(f);
}

void SftSource::source_fields(Fields& f) {
  rows.fields(f);
  f("prompt", prompt, "template of the prompt; rows with `messages` do not use it");
  f("completion", completion, "template of the completion");
  f("completion_only_loss", completion_only_loss, "true: train on the completion only; false: on the prompt, too");
  f("assistant_only_loss", assistant_only_loss,
    "for rows with `messages`. true: train on the assistant's messages only; false: on the complete conversation. Rows "
    "with switches (train, loss, weight) are trained on the assistant's messages that are on");
  sample.format.fields(f);
}

void read_rows(const RowSource& source, const std::function<void(const Json&, const std::string&)>& row) {
  HONE_CHECK(!source.files.empty() || source.generator.generator,
             "data: there are no rows to read: set files or a generator");
  int64_t met = 0;     // rows that `when` takes, skipped ones included
  int64_t passed = 0;  // rows that it does not take
  const auto wanted = [&] { return source.limit == 0 || met - source.offset < source.limit; };
  const auto give = [&](const Json& value, const std::string& where) {
    if (!source.when.holds(value)) {
      ++passed;
      return;
    }
    if (met++ >= source.offset) row(with_conversation(value, source.conversation, where), where);
  };
  if (source.generator.generator) {
    const Generator& generator = *source.generator.generator;
    for (int64_t i = 0; i < generator.size(source.split) && wanted(); ++i)
      give(generator.example(source.split, i).row(), concat(source.generator.kind, "[", i, "]"));
  }
  for (const std::string& name : source.files) {
    if (!wanted()) break;
    const std::unique_ptr<RowReader> rows = open_rows(name, source.split);
    for (Json value; wanted() && rows->next(value);) give(value, rows->where());
  }
  HONE_CHECK(
      met > source.offset, "data: ", source.files.empty() ? source.generator.kind : join(source.files), " has no rows",
      source.offset > 0 ? concat(" after the first ", source.offset) : "",
      passed > 0 ? concat(" that `when` takes: ", passed, " have another value of '", source.when.column, "'") : "");
}

std::vector<Task> load_tasks(const TaskSource& source) {
  std::vector<Task> out;
  read_rows(source.rows, [&](const Json& row, const std::string& where) {
    Task task;
    task.id = where;
    if (const Json* messages = row.find("messages")) {
      task.messages = prompt_of(parse_messages(*messages, where));
    } else {
      RowText prompt = fill_text(source.prompt, row, where);
      task.prompt = std::move(prompt.text);
      task.messages = std::move(prompt.messages);
    }
    if (!source.answer.empty()) task.answer = fill_template(source.answer, row, where);
    task.columns = row;
    out.push_back(std::move(task));
  });
  return out;
}

// Returns make(). The chat format does not know the row, so this adds it to its errors.
template <class Make>
static Sample sample_of_row(const std::string& where, const Make& make) {
  try {
    return make();
  } catch (const Error& error) {
    fail(where, ": ", error.what());
  }
}

void SampleBuilder::add_trace(const std::string& where, std::vector<TokenRole> roles) const {
  if (format_.traces) format_.traces->push_back({where, std::move(roles)});
}

Sample SampleBuilder::encode(const std::vector<Message>& messages, size_t first_trained, const std::string& where) {
  return sample_of_row(where, [&] {
    Sample out = encoder_.sample(messages, first_trained);
    if (format_.traces) add_trace(where, encoder_.roles(messages, first_trained));
    return out;
  });
}

Sample SampleBuilder::prompt_completion(const RowText& prompt, const RowText& completion, const Json& row,
                                        const std::string& where) {
  const bool is_text = prompt.messages.empty() && completion.messages.empty();
  if (is_text && !encoder_.is_chat()) {
    Sample out = encoder_.sample(prompt.text, completion.text);
    std::vector<TokenRole> roles;
    for (const float m : out.columns.find(columns::mask))
      roles.push_back(m != 0 ? TokenRole::completion : TokenRole::prompt);
    add_trace(where, std::move(roles));
    return out;
  }
  std::vector<Message> messages = prompt.messages.empty() ? encoder_.conversation(prompt.text) : prompt.messages;
  attach_row_variables(messages, row, where);
  const size_t first_trained = is_text ? 0 : messages.size();
  if (completion.messages.empty()) messages.push_back({"assistant", completion.text, {}});
  messages.insert(messages.end(), completion.messages.begin(), completion.messages.end());
  Sample out = encode(messages, first_trained, where);
  out.completion.text = messages.back().content;
  return out;
}

Sample SampleBuilder::conversation(std::vector<Message> messages, bool tell_apart, const Json& row,
                                   const std::string& where) {
  attach_row_variables(messages, row, where);
  return encode(messages, tell_apart ? 0 : messages.size(), where);
}

bool SampleBuilder::fit(Sample& sample, const std::string& where) const {
  const auto length = static_cast<int64_t>(sample.tokens.size());
  if (length <= format_.max_length) return true;
  HONE_CHECK(format_.too_long != "error", where, ": ", length, " tokens, max_length is ", format_.max_length);
  if (format_.too_long == "skip") return format_.traces != nullptr;
  sample.tokens.resize(static_cast<size_t>(format_.max_length));
  sample.columns.truncate(static_cast<size_t>(format_.max_length));
  return format_.traces || std::ranges::any_of(sample.columns.find(columns::mask), [](float m) { return m != 0; });
}

bool SampleBuilder::fit(std::span<Sample> samples, const std::string& where) {
  bool fits = true;
  for (Sample& sample : samples) fits = fit(sample, where) && fits;
  if (!fits && left_out_++ == 0) first_left_out_ = where;
  return fits;
}

void SampleBuilder::report(size_t kept) const {
  HONE_CHECK(kept > 0, "data: every row is longer than max_length = ", format_.max_length,
             " tokens (the first: ", first_left_out_, ")");
  if (left_out_ > 0)
    log::warning("data: ", left_out_, " rows longer than max_length = ", format_.max_length,
                 " tokens are left out (the first: ", first_left_out_, "), ", kept, " kept");
}

std::vector<Sample> load_sft(const SftSource& source, const Tokenizer& tokenizer, const KeepSample& keep) {
  std::vector<Sample> out;
  SampleBuilder reader(source.sample, tokenizer);
  read_rows(source.rows, [&](const Json& row, const std::string& where) {
    const Json* messages = row.find("messages");
    const std::vector<Message> conversation = messages ? parse_messages(*messages, where) : std::vector<Message>{};
    const bool switched =
        std::ranges::any_of(conversation, [](const Message& m) { return loss_switch(m).has_value(); });
    const bool partly = messages ? source.assistant_only_loss || switched : source.completion_only_loss;
    Sample sample = messages ? reader.conversation(conversation, partly, row, where)
                             : reader.prompt_completion(fill_text(source.prompt, row, where),
                                                        fill_text(source.completion, row, where), row, where);
    if (!partly) set_mask(sample);
    HONE_CHECK(!switched || std::ranges::any_of(sample.columns.find(columns::mask), [](float m) { return m != 0; }),
               where, ": the loss is off for all of the assistant's messages");
    if (!reader.fit({&sample, 1}, where)) return;
    if (keep) keep(sample, row, where);
    out.push_back(std::move(sample));
  });
  reader.report(out.size());
  return out;
}

}  // namespace hone
