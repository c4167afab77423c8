#include "data/convert.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "core/base/suggest.h"
#include "core/io/file.h"
#include "core/io/rows/row_writer.h"
#include "core/io/rows/rows.h"
#include "data/conversation.h"

namespace hone {
namespace {

// A row's conversation in OpenAI's form, and its other columns.
struct Conversation {
  JsonArray messages;  // for pairs: the prompt
  std::optional<JsonArray> chosen, rejected;
  Json tools;  // null: none
  JsonObject others;
};

const Json* present(const Json& row, std::string_view name) {
  const Json* found = row.find(name);
  return found && !found->is_null() ? found : nullptr;
}

// A side of a row: a list of messages, or a text as one message.
JsonArray side_of(const Json& row, const char* column, const char* role, const std::string& where) {
  const Json* value = present(row, column);
  HONE_CHECK(value, where, ": column '", column, "' is missing");
  if (value->is_array()) return value->as_array();
  return {JsonObject{{"role", role}, {"content", value->as_string(concat(where, ": ", column))}}};
}

std::vector<std::string> columns_of(const std::string& format, const Json& row) {
  std::vector<std::string> out = {"tools", "chosen", "rejected"};
  const auto add = [&](std::initializer_list<const char*> names) { out.insert(out.end(), names.begin(), names.end()); };
  if (format == "alpaca")
    add({"instruction", "input", "output", "system", "history", "prompt", "completion"});
  else if (format == "prompt_completion")
    add({"prompt", "completion"});
  else
    add({"messages", "conversations", "conversation"});
  if (format == "sharegpt" && present(row, "system")) add({"system"});
  return out;
}

Conversation read_conversation(const Json& row, const std::string& where) {
  const ConversationColumns columns;
  const std::string format = conversation_format(row, columns, where);
  HONE_CHECK(!format.empty(), where, ": the row is no conversation: it has neither messages, conversations, ",
             "instruction and output, nor prompt; leave out --format to keep rows as they are");
  const Json normal = with_conversation(row, columns, where);
  Conversation out;
  const bool pair = present(normal, "chosen") && present(normal, "rejected");
  if (format == "openai" || format == "sharegpt") {
    out.messages = normal.at("messages").as_array();
  } else if (!pair || present(normal, "prompt")) {
    out.messages = side_of(normal, "prompt", "user", where);
    if (!pair)
      for (Json& message : side_of(normal, "completion", "assistant", where))
        out.messages.push_back(std::move(message));
  }
  if (pair) {
    out.chosen = side_of(normal, "chosen", "assistant", where);
    out.rejected = side_of(normal, "rejected", "assistant", where);
  }
  // with_conversation() has put the tools into the first message.
  for (JsonArray* list :
       {&out.messages, out.chosen ? &*out.chosen : nullptr, out.rejected ? &*out.rejected : nullptr}) {
    if (!list || list->empty() || !list->front().find("tools")) continue;
    out.tools = *list->front().find("tools");
    std::erase_if(list->front().object_ref(), [](const auto& member) { return member.first == "tools"; });
  }
  if (const Json* tools = present(row, "tools"); tools && out.tools.is_null() && format == "prompt_completion") {
    HONE_CHECK(!(tools->is_string() && !tools->as_string().empty()), where,
               ": column 'tools' stands beside a prompt that is a text; make the prompt a list of messages");
    if (tools->is_array() && !tools->as_array().empty()) out.tools = *tools;
  }
  const std::vector<std::string> read = columns_of(format, row);
  for (const auto& [name, value] : row.as_object())
    if (std::ranges::find(read, name) == read.end()) out.others.emplace_back(name, value);
  return out;
}

// Writes one row in a form.
class ConversationWriter {
 public:
  ConversationWriter(Conversation conversation, std::string format, const std::string& where)
      : in_(std::move(conversation)), format_(std::move(format)), where_(where) {}

  Json write() {
    out_ = JsonObject{};
    if (format_ == "openai")
      write_openai();
    else if (format_ == "sharegpt")
      write_sharegpt();
    else if (format_ == "alpaca")
      write_alpaca();
    else
      write_prompt_completion();
    for (auto& [name, value] : in_.others) {
      HONE_CHECK(!out_.find(name), where_, ": column '", name, "' of the row would be replaced by that of ", format_,
                 "; rename it first");
      out_.set(name, std::move(value));
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(const std::string& column, const std::string& what) const {
    fail(where_, ": column '", column, "': ", format_, " cannot hold ", what);
  }
  static std::string role_of(const Json& message) { return message.at("role").as_string(); }
  static std::string content_of(const Json& message) { return message.at("content").as_string(); }

  // Refuses members of a message other than these.
  void check_members(const Json& message, const std::string& column,
                     std::initializer_list<std::string_view> known) const {
    for (const auto& [name, value] : message.as_object())
      if (std::find(known.begin(), known.end(), name) == known.end())
        refuse(column, "a message's member '" + name + "'");
  }
  static std::string place(const char* column, size_t index) { return concat(column, "[", index, "]"); }

  void write_openai() {
    if (!in_.messages.empty()) out_.set("messages", in_.messages);
    if (in_.chosen) out_.set("chosen", *in_.chosen);
    if (in_.rejected) out_.set("rejected", *in_.rejected);
    if (!in_.tools.is_null()) out_.set("tools", in_.tools);
  }

  Json sharegpt_message(const Json& message, const std::string& column) const {
    check_members(message, column, {"role", "content", "tool_calls", "weight"});
    Json out = JsonObject{};
    const std::string role = role_of(message);
    if (const Json* calls = message.find("tool_calls")) {
      if (!content_of(message).empty()) refuse(column, "a text beside tool calls");
      out.set("from", "function_call");
      out.set("value", sharegpt_calls(*calls, column));
    } else {
      out.set("from", role == "user" ? "human" : role == "assistant" ? "gpt" : role == "tool" ? "observation" : role);
      out.set("value", content_of(message));
    }
    if (const Json* weight = message.find("weight")) out.set("weight", *weight);
    return out;
  }
  std::string sharegpt_calls(const Json& calls, const std::string& column) const {
    JsonArray out;
    for (const Json& call : calls.as_array()) {
      check_members(call, column + ".tool_calls", {"type", "function"});
      out.push_back(call.at("function"));
    }
    return out.size() == 1 ? out.front().dump() : Json(out).dump();
  }
  JsonArray sharegpt_messages(const JsonArray& messages, const char* column) const {
    JsonArray out;
    for (const Json& message : messages) out.push_back(sharegpt_message(message, place(column, out.size())));
    return out;
  }

  void write_sharegpt() {
    if (!in_.messages.empty() && role_of(in_.messages.front()) == "system") {
      check_members(in_.messages.front(), "messages[0]", {"role", "content"});
      out_.set("system", content_of(in_.messages.front()));
      in_.messages.erase(in_.messages.begin());
    }
    out_.set("conversations", sharegpt_messages(in_.messages, "messages"));
    if (in_.chosen) out_.set("chosen", sharegpt_messages(*in_.chosen, "chosen"));
    if (in_.rejected) out_.set("rejected", sharegpt_messages(*in_.rejected, "rejected"));
    if (!in_.tools.is_null()) out_.set("tools", in_.tools.dump());
  }

  // The one text of a side.
  std::string only_text(const JsonArray& messages, const char* column) const {
    if (messages.size() != 1 || role_of(messages.front()) != "assistant") refuse(column, "more than one reply");
    check_members(messages.front(), column, {"role", "content"});
    return content_of(messages.front());
  }

  void write_alpaca() {
    if (!in_.tools.is_null()) refuse("tools", "tools");
    JsonArray rest = in_.messages;
    std::string system;
    if (!rest.empty() && role_of(rest.front()) == "system") {
      system = content_of(rest.front());
      rest.erase(rest.begin());
    }
    const size_t num_turns = in_.chosen ? rest.size() + 1 : rest.size();
    if (num_turns % 2 != 0 || rest.empty()) refuse("messages", "a conversation that does not alternate user and reply");
    for (size_t i = 0; i < rest.size(); ++i) {
      check_members(rest[i], place("messages", i), {"role", "content"});
      if (role_of(rest[i]) != (i % 2 == 0 ? "user" : "assistant"))
        refuse(place("messages", i), "a message of the role '" + role_of(rest[i]) + "' here");
    }
    const size_t last = num_turns - 2;
    out_.set("instruction", content_of(rest[last]));
    out_.set("input", "");
    if (!in_.chosen) out_.set("output", content_of(rest[last + 1]));
    if (in_.chosen) out_.set("chosen", only_text(*in_.chosen, "chosen"));
    if (in_.rejected) out_.set("rejected", only_text(*in_.rejected, "rejected"));
    if (!system.empty()) out_.set("system", system);
    JsonArray history;
    for (size_t i = 0; i < last; i += 2) history.push_back(JsonArray{content_of(rest[i]), content_of(rest[i + 1])});
    if (!history.empty()) out_.set("history", std::move(history));
  }

  void write_prompt_completion() {
    if (in_.chosen) {
      if (!in_.messages.empty()) out_.set("prompt", in_.messages);
      out_.set("chosen", *in_.chosen);
      out_.set("rejected", *in_.rejected);
    } else {
      if (in_.messages.size() < 2 || role_of(in_.messages.back()) != "assistant")
        refuse("messages", "a conversation that does not end with a reply");
      out_.set("completion", JsonArray{in_.messages.back()});
      in_.messages.pop_back();
      out_.object_ref().insert(out_.object_ref().begin(), {"prompt", in_.messages});
    }
    if (!in_.tools.is_null()) out_.set("tools", in_.tools);
  }

  Conversation in_;
  std::string format_;
  const std::string& where_;
  Json out_;
};

// Calls row(value, where) for the rows of all inputs, converted.
int64_t each_converted(const ConvertOptions& options, const std::function<void(const Json&, const std::string&)>& row) {
  int64_t count = 0;
  for (const std::string& input : options.inputs) {
    if (options.limit > 0 && count == options.limit) break;
    const std::unique_ptr<RowReader> rows = open_rows(input, options.split);
    for (Json value; (options.limit == 0 || count < options.limit) && rows->next(value); ++count) {
      const std::string where = rows->where();
      row(options.format.empty() ? value : convert_conversation(value, options.format, where), where);
    }
  }
  return count;
}

}  // namespace

Json convert_conversation(const Json& row, const std::string& format, const std::string& where) {
  return ConversationWriter(read_conversation(row, where), format, where).write();
}

int64_t convert_rows(const ConvertOptions& options) {
  const std::filesystem::path output = options.output == "-" ? "-" : expand_path(options.output);
  std::error_code unknown;
  for (const std::string& input : options.inputs)
    for (const std::string& file : row_files(input, options.split))
      HONE_CHECK(file == "-" || !std::filesystem::equivalent(file, output, unknown), file,
                 ": the output would replace this input; choose another name");
  const std::unique_ptr<RowWriter> writer = create_row_file(output);
  if (writer->needs_survey()) {
    HONE_CHECK(std::ranges::find(options.inputs, "-") == options.inputs.end(), output.string(),
               ": this container needs to read the rows twice, and standard input can be read only once; write JSON "
               "Lines, then convert them");
    each_converted(options, [&](const Json& row, const std::string& where) { writer->survey(row, where); });
  }
  const int64_t count =
      each_converted(options, [&](const Json& row, const std::string& where) { writer->write(row, where); });
  HONE_CHECK(count > 0, join(options.inputs), ": there are no rows to write");
  writer->finish();
  return count;
}

}  // namespace hone
