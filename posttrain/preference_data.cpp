#include "posttrain/preference_data.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "posttrain/losses/pair_loss.h"

namespace hone {

void PreferenceSource::fields(Fields& f) {
  source_fields(f);
  sample.length_fields(f);
}

void PreferenceSource::source_fields(Fields& f) {
  rows.fields(f);
  f("prompt", prompt, "template of the prompt; rows with `messages` do not use it");
  f("chosen", chosen, "template of the better completion");
  f("rejected", rejected, "template of the worse completion");
  sample.format.fields(f);
}

void UnpairedSource::fields(Fields& f) {
  source_fields(f);
  sample.length_fields(f);
}

void UnpairedSource::source_fields(Fields& f) {
  rows.fields(f);
  f("prompt", prompt, "template of the prompt; rows with `messages` do not use it");
  f("completion", completion, "template of the completion");
  f("label", label, "template of the label: true or 1 = the completion is desirable, false or 0 = it is not");
  sample.format.fields(f);
}

namespace {

struct PairText {
  RowText prompt, chosen, rejected;
};

bool same(const Message& a, const Message& b) {
  return a.role == b.role && a.content == b.content && a.extra == b.extra;
}

// True if the messages are a complete conversation, not only the assistant's turn.
bool is_whole(const std::vector<Message>& messages) {
  return !messages.empty() && messages.front().role != "assistant";
}

// For two complete conversations: moves the messages that both begin with to the prompt.
void share_prompt(PairText& pair, const std::string& where) {
  std::vector<Message>&a = pair.chosen.messages, &b = pair.rejected.messages;
  const auto num_shared =
      static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end(), same).first - a.begin());
  HONE_CHECK(num_shared > 0 && num_shared < std::min(a.size(), b.size()), where,
             ": without a prompt, chosen and rejected must begin with the same messages and end with different ones");
  const auto cut = static_cast<std::ptrdiff_t>(num_shared);
  pair.prompt = {.text = {}, .messages = {a.begin(), a.begin() + cut}};
  a.erase(a.begin(), a.begin() + cut);
  b.erase(b.begin(), b.begin() + cut);
}

// True if the conversation is the prompt and more.
bool begins_with(const std::vector<Message>& conversation, const std::vector<Message>& prompt) {
  return conversation.size() > prompt.size() && std::equal(prompt.begin(), prompt.end(), conversation.begin(), same);
}

// Removes the prompt from a completion that is the complete conversation.
void drop_prompt(const std::vector<Message>& prompt, std::vector<Message>& completion) {
  if (prompt.empty() || !begins_with(completion, prompt)) return;
  completion.erase(completion.begin(), completion.begin() + static_cast<std::ptrdiff_t>(prompt.size()));
}

PairText read_pair(const std::string& prompt, const std::string& chosen, const std::string& rejected, const Json& row,
                   const std::string& where) {
  PairText out{.prompt = {}, .chosen = fill_text(chosen, row, where), .rejected = fill_text(rejected, row, where)};
  const bool conversations = !out.chosen.messages.empty() && !out.rejected.messages.empty();
  const bool prompt_is_missing = prompt == "{prompt}" && !row.find("prompt") && !row.find("messages");
  // Complete conversations contain their prompt. A row may repeat it as a text, or the whole of chosen as `messages`
  // (UltraFeedback does). It is then used once.
  const bool whole = is_whole(out.chosen.messages) && is_whole(out.rejected.messages);
  const Json* messages = row.find("messages");
  if (messages) {
    out.prompt.messages = parse_messages(*messages, where);
    if (whole && !begins_with(out.chosen.messages, out.prompt.messages)) out.prompt.messages.clear();
  } else if (!(prompt_is_missing && conversations)) {
    out.prompt = fill_text(prompt, row, where);
  }
  if (out.prompt.messages.empty() && ((prompt_is_missing && conversations) || whole)) share_prompt(out, where);
  for (RowText* completion : {&out.chosen, &out.rejected}) drop_prompt(out.prompt.messages, completion->messages);
  return out;
}

Group make_group(const RowText& prompt, std::span<const RowText* const> completions, const Json& row,
                 SampleBuilder& reader, const std::string& where) {
  Group out;
  out.task.id = where;
  out.task.prompt = prompt.text;
  out.task.messages = prompt.messages;
  for (const RowText* completion : completions)
    out.samples.push_back(reader.prompt_completion(prompt, *completion, row, where));
  return out;
}

double read_number(const std::string& text, const std::string& where) {
  double out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  HONE_CHECK(error == std::errc() && end == text.data() + text.size() && std::isfinite(out), where, ": the margin is '",
             text, "', not a number");
  return out;
}

bool read_label(const std::string& text, const std::string& where) {
  if (text == "true" || text == "True" || text == "1") return true;
  HONE_CHECK(text == "false" || text == "False" || text == "0", where, ": the label is '", text,
             "', not true, false, 1 or 0");
  return false;
}

size_t prompt_length(const Sample& sample) {
  const std::span<const float> mask = sample.columns.find(columns::mask);
  return static_cast<size_t>(std::ranges::find_if(mask, [](float m) { return m != 0; }) - mask.begin());
}

Sample mismatched(const Sample& prompt, const Sample& completion, int64_t max_length) {
  const auto head = static_cast<std::ptrdiff_t>(prompt_length(prompt)),
             tail = static_cast<std::ptrdiff_t>(prompt_length(completion));
  Sample out;
  out.tokens.assign(prompt.tokens.begin(), prompt.tokens.begin() + head);
  out.tokens.insert(out.tokens.end(), completion.tokens.begin() + tail, completion.tokens.end());
  out.columns.append(columns::mask, prompt.columns.find(columns::mask).first(static_cast<size_t>(head)));
  out.columns.append(columns::mask, completion.columns.find(columns::mask).subspan(static_cast<size_t>(tail)));
  const auto length = std::min(out.tokens.size(), static_cast<size_t>(max_length));
  out.tokens.resize(length);
  out.columns.truncate(length);
  return out;
}

bool same_prompt(const Group& a, const Group& b) {
  return a.task.prompt == b.task.prompt && std::ranges::equal(a.task.messages, b.task.messages, same);
}

void add_mismatched(std::vector<Group>& groups, int64_t max_length) {
  const size_t count = groups.size();
  for (size_t i = 0; i < count; ++i) {
    size_t other = (i + count - 1) % count;
    while (other != i && same_prompt(groups[other], groups[i])) other = (other + count - 1) % count;
    groups[i].samples.push_back(mismatched(groups[i].samples[0], groups[other].samples[0], max_length));
  }
}

}  // namespace

std::vector<Group> load_preferences(const PreferenceSource& source, const Tokenizer& tokenizer) {
  std::vector<Group> out;
  SampleBuilder reader(source.sample, tokenizer);
  read_rows(source.rows, [&](const Json& row, const std::string& where) {
    const PairText pair = read_pair(source.prompt, source.chosen, source.rejected, row, where);
    Group group = make_group(pair.prompt, std::array{&pair.chosen, &pair.rejected}, row, reader, where);
    if (!source.margin.empty()) {
      const double margin = read_number(fill_template(source.margin, row, where), where);
      for (Sample& sample : group.samples) sample.columns.set(columns::margin, {static_cast<float>(margin)});
    }
    if (reader.fit(group.samples, where)) out.push_back(std::move(group));
  });
  reader.report(out.size());
  return out;
}

std::vector<Group> load_unpaired(const UnpairedSource& source, const Tokenizer& tokenizer) {
  std::vector<Group> out;
  SampleBuilder reader(source.sample, tokenizer);
  const auto add = [&](const RowText& prompt, const RowText& completion, bool desirable, const Json& row,
                       const std::string& where) {
    Group group = make_group(prompt, std::array{&completion}, row, reader, where);
    group.samples[0].reward = desirable;
    if (reader.fit(group.samples, where)) out.push_back(std::move(group));
  };
  read_rows(source.rows, [&](const Json& row, const std::string& where) {
    if (source.label == "{label}" && !row.find("label") && row.find("chosen") && row.find("rejected")) {
      const PairText pair = read_pair(source.prompt, "{chosen}", "{rejected}", row, where);
      add(pair.prompt, pair.chosen, true, row, where);
      add(pair.prompt, pair.rejected, false, row, where);
      return;
    }
    const bool desirable = read_label(fill_template(source.label, row, where), where);
    RowText prompt, completion;
    if (const Json* messages = row.find("messages")) {
      prompt.messages = parse_messages(*messages, where);
      HONE_CHECK(prompt.messages.size() > 1 && prompt.messages.back().role == "assistant", where,
                 ": messages must end with the assistant's answer to earlier messages");
      completion.messages.push_back(std::move(prompt.messages.back()));
      prompt.messages.pop_back();
    } else {
      prompt = fill_text(source.prompt, row, where);
      completion = fill_text(source.completion, row, where);
    }
    add(prompt, completion, desirable, row, where);
  });
  reader.report(out.size());
  add_mismatched(out, source.sample.max_length);
  return out;
}

}  // namespace hone
