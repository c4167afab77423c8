#include "collect/row.h"

#include <algorithm>
#include <array>

#include "core/net/digest.h"
#include "core/text/chat_settings.h"
#include "core/text/chat_template.h"
#include "data/trajectory.h"

namespace hone {

bool CollectedCompletion::is_truncated() const {
  return is_limit_reason(finish_reason) || finish_reason == "content_filter";
}

bool CollectedRow::has_failures() const { return std::ranges::any_of(completions, &CollectedCompletion::failed); }

static Json completion_json(const CollectedCompletion& completion) {
  Json out = JsonObject{{"text", completion.text}};
  if (!completion.messages.empty()) out.set("messages", messages_json(completion.messages));
  out.set("finish_reason", completion.finish_reason);
  out.set("tokens", completion.num_tokens);
  if (!completion.has_score()) {
    out.set("without_score", completion.without_score);
    return out;
  }
  if (completion.reward) out.set("reward", *completion.reward);
  if (!completion.reward_parts.empty()) out.set("reward_parts", metrics_json(completion.reward_parts));
  return out;
}

Json CollectedRow::to_json() const {
  Json out = JsonObject{{"row", index}, {"id", id}, {"digest", digest}, {"prompt", prompt}};
  if (variables.is_object())
    for (const auto& [name, value] : variables.as_object()) out.set(name, value);
  if (!answer.empty()) out.set("answer", answer);
  JsonArray list;
  for (const CollectedCompletion& completion : completions) list.push_back(completion_json(completion));
  out.set("completions", std::move(list));
  return out;
}

static CollectedCompletion parse_completion(const Json& json, const std::string& where) {
  CollectedCompletion out{.text = json.at("text", where).as_string("text")};
  if (const Json* messages = json.find("messages")) out.messages = parse_messages(*messages, where);
  out.finish_reason = json.at("finish_reason", where).as_string("finish_reason");
  out.num_tokens = json.at("tokens", where).as_int("tokens");
  if (const Json* reason = json.find("without_score")) {
    out.without_score = reason->as_string("without_score");
    return out;
  }
  if (const Json* reward = json.find("reward")) out.reward = reward->as_double("reward");
  if (const Json* parts = json.find("reward_parts")) out.reward_parts = metrics_of(*parts);
  return out;
}

static constexpr std::array<const char*, 3> kVariables = {kToolsMember, kDocumentsMember, kKwargsMember};

CollectedRow CollectedRow::parse(const Json& json, const std::string& where) {
  try {
    CollectedRow out{.index = json.at("row", "row").as_int("row"),
                     .id = json.at("id", "row").as_string("id"),
                     .digest = json.at("digest", "row").as_string("digest"),
                     .prompt = json.at("prompt", "row"),
                     .variables = JsonObject{}};
    HONE_CHECK(out.index >= 0, "row is ", out.index, "; it must be 0 or more");
    for (const char* name : kVariables)
      if (const Json* value = json.find(name)) out.variables.set(name, *value);
    if (const Json* answer = json.find("answer")) out.answer = answer->as_string("answer");
    for (const Json& completion : json.at("completions", "row").as_array("completions"))
      out.completions.push_back(parse_completion(completion, concat("completions[", out.completions.size(), "]")));
    return out;
  } catch (const Error& error) {  // adds the line
    fail(where, ": ", error.what());
  }
}

std::string task_digest(const Task& task) {
  constexpr size_t num_bytes = 8;
  constexpr std::string_view digits = "0123456789abcdef";
  const Json all = JsonObject{{"prompt", task.prompt},
                              {"messages", messages_json(task.messages)},
                              {"answer", task.answer},
                              {"row", task.columns}};
  const Digest digest = sha256(all.dump());
  std::string out;
  for (size_t i = 0; i < num_bytes; ++i) {
    out += digits[digest[i] >> 4];
    out += digits[digest[i] & 15];
  }
  return out;
}

std::vector<Message> prompt_messages(const Task& task, const PromptFormat& format) {
  std::vector<Message> out = task.messages;
  if (out.empty() && format.is_chat()) {
    if (!format.system.empty()) out.push_back({"system", format.system, {}});
    out.push_back({"user", task.prompt, {}});
  }
  attach_row_variables(out, task.columns, task.id);
  return out;
}

CollectedRow start_row(int64_t index, const Task& task, const std::vector<Message>& messages) {
  CollectedRow out{.index = index,
                   .id = task.id,
                   .digest = task_digest(task),
                   .prompt = task.prompt,
                   .variables = JsonObject{},
                   .answer = task.answer};
  if (messages.empty()) return out;
  const Json conversation = conversation_json(messages);
  for (const auto& [name, value] : conversation.as_object()) {
    if (name == "messages")
      out.prompt = value;
    else
      out.variables.set(name, value);
  }
  return out;
}

// Why a sample has no score.
static std::string reason_without_score(const Sample& sample) {
  if (sample.counts.contains("env/failed")) return "environment";
  for (const auto& [name, count] : sample.counts)
    if (name.starts_with("rewards/") && name.ends_with("/failed")) return "reward";
  return sample.counts.contains("rewards/skipped") ? "skipped" : "completion";
}

CollectedCompletion collected_completion(const Sample& sample, bool scored) {
  CollectedCompletion out{.text = sample.completion.text,
                          .messages = sample.completion.messages,
                          .finish_reason = sample.completion.finish_reason,
                          .num_tokens = std::ssize(sample.completion.ids)};
  if (!sample.scored) {
    out.without_score = reason_without_score(sample);
    return out;
  }
  if (!scored) return out;
  out.reward = sample.reward;
  out.reward_parts = sample.reward_parts;
  return out;
}

}  // namespace hone
