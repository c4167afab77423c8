#include "posttrain/dataset.h"

#include "core/jsonl.h"
#include "core/log.h"
#include "posttrain/row_template.h"

namespace hone {

void RowSource::fields(Fields& f) {
  f("files", files, "JSON Lines files (.gz too)");
  f("generator", generator, "draws the rows instead of reading them");
  f("split", split, "of the generator: train | test");
  f("limit", limit, "first rows only; 0 = all");
  f.require("split", split == "train" || split == "test", "split must be train or test");
  f.require("files", files.empty() || generator.kind.empty(), "rows come from files or from a generator, not both");
  f.require("limit", limit >= 0, "limit must be 0 or more");
}

void TaskSource::fields(Fields& f) {
  rows.fields(f);
  f("prompt", prompt, "template of the prompt; {name} is the row's member");
  f("answer", answer, "template of the reference answer; empty = none");
}

static void completion_fields(Fields& f, PromptFormat& format, int64_t& max_length, std::string& too_long) {
  format.fields(f);
  f("max_length", max_length, "longest sample in tokens");
  f("too_long", too_long, "what happens to a longer one: skip | truncate | error");
  f.require("max_length", max_length >= 2 && max_length <= max_sample_length, concat("max_length must be in [2, ", max_sample_length, "]"));
  f.require("too_long", too_long == "skip" || too_long == "truncate" || too_long == "error", "too_long must be skip, truncate or error");
}

void SftSource::fields(Fields& f) {
  rows.fields(f);
  f("prompt", prompt, "template of the prompt; rows with `messages` do not use it");
  f("completion", completion, "template of the completion");
  completion_fields(f, format, max_length, too_long);
}

void PreferenceSource::fields(Fields& f) {
  rows.fields(f);
  f("prompt", prompt, "template of the prompt");
  f("chosen", chosen, "template of the better completion");
  f("rejected", rejected, "template of the worse completion");
  completion_fields(f, format, max_length, too_long);
}

void read_rows(const RowSource& source, const std::function<void(const Json&, const std::string&)>& row) {
  HONE_CHECK(!source.files.empty() || source.generator.generator, "data: no files and no generator are named");
  int64_t count = 0;
  const auto wanted = [&] { return source.limit == 0 || count < source.limit; };
  if (source.generator.generator) {
    const Generator& generator = *source.generator.generator;
    for (int64_t i = 0; i < generator.size(source.split) && wanted(); ++i, ++count)
      row(generator.example(source.split, i).row(), concat(source.generator.kind, "[", i, "]"));
  }
  for (const std::string& name : source.files) {
    JsonlReader rows(expand_path(name));
    for (Json value; wanted() && rows.next(value); ++count) {
      const std::string where = rows.where();
      HONE_CHECK(value.is_object(), where, ": a row must be an object, this is ", value.kind_name());
      row(value, where);
    }
  }
  HONE_CHECK(count > 0, "data: ", source.files.empty() ? source.generator.kind : join(source.files), " has no rows");
}

std::vector<Task> load_tasks(const TaskSource& source) {
  std::vector<Task> out;
  read_rows(source.rows, [&](const Json& row, const std::string& where) {
    Task task;
    task.id = where;
    if (const Json* messages = row.find("messages"))
      task.messages = parse_messages(*messages, where);
    else
      task.prompt = fill_template(source.prompt, row, where);
    if (!source.answer.empty()) task.answer = fill_template(source.answer, row, where);
    task.columns = row;
    out.push_back(std::move(task));
  });
  return out;
}

// What was left out of a data set, told once at its end.
class SkipCount {
 public:
  void add(const std::string& where) {
    if (count_++ == 0) first_ = where;
  }
  void report(size_t kept, int64_t max_length) const {
    HONE_CHECK(kept > 0, "data: every row is longer than max_length = ", max_length, " tokens (the first: ", first_, ")");
    if (count_ > 0)
      log::warning("data: ", count_, " rows longer than max_length = ", max_length, " tokens are left out (the first: ", first_, "), ", kept,
                   " kept");
  }

 private:
  int64_t count_ = 0;
  std::string first_;
};

// False: leave the row out.
static bool fit(Sample& sample, int64_t max_length, const std::string& too_long, const std::string& where) {
  const int64_t length = static_cast<int64_t>(sample.tokens.size());
  if (length <= max_length) return true;
  HONE_CHECK(too_long != "error", where, ": ", length, " tokens, max_length is ", max_length);
  if (too_long == "skip") return false;
  sample.tokens.resize(static_cast<size_t>(max_length));
  sample.mask.resize(static_cast<size_t>(max_length));
  for (const float m : sample.mask)
    if (m != 0) return true;
  return false;
}

std::vector<Sample> load_sft(const SftSource& source, const Tokenizer& tokenizer) {
  std::vector<Sample> out;
  SkipCount skipped;
  PromptEncoder encoder(source.format, tokenizer);
  read_rows(source.rows, [&](const Json& row, const std::string& where) {
    const Json* messages = row.find("messages");
    Sample sample = messages ? encoder.sample(parse_messages(*messages, where))
                             : encoder.sample(fill_template(source.prompt, row, where), fill_template(source.completion, row, where));
    if (fit(sample, source.max_length, source.too_long, where))
      out.push_back(std::move(sample));
    else
      skipped.add(where);
  });
  skipped.report(out.size(), source.max_length);
  return out;
}

std::vector<Group> load_preferences(const PreferenceSource& source, const Tokenizer& tokenizer) {
  std::vector<Group> out;
  SkipCount skipped;
  PromptEncoder encoder(source.format, tokenizer);
  read_rows(source.rows, [&](const Json& row, const std::string& where) {
    Group group;
    group.task.id = where;
    group.task.prompt = fill_template(source.prompt, row, where);
    for (const std::string* side : {&source.chosen, &source.rejected})
      group.samples.push_back(encoder.sample(group.task.prompt, fill_template(*side, row, where)));
    bool fits = true;
    for (Sample& sample : group.samples) fits = fit(sample, source.max_length, source.too_long, where) && fits;
    if (fits)
      out.push_back(std::move(group));
    else
      skipped.add(where);
  });
  skipped.report(out.size(), source.max_length);
  return out;
}

}  // namespace hone
