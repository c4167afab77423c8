// normalize_messages(): messages of any data set in OpenAI's form.
#include <algorithm>
#include <array>

#include "core/base/suggest.h"
#include "data/conversation.h"

namespace hone {
namespace {

struct RoleName {
  std::string_view name, role;
};
constexpr auto kRoles = std::to_array<RoleName>({{"system", "system"},
                                                 {"developer", "system"},
                                                 {"user", "user"},
                                                 {"human", "user"},
                                                 {"assistant", "assistant"},
                                                 {"gpt", "assistant"},
                                                 {"chatgpt", "assistant"},
                                                 {"bot", "assistant"},
                                                 {"model", "assistant"},
                                                 {"function_call", "assistant"},
                                                 {"tool", "tool"},
                                                 {"function", "tool"},
                                                 {"function_response", "tool"},
                                                 {"observation", "tool"}});

constexpr std::array<std::string_view, 3> kLossSwitches = {"train", "loss", "weight"};

bool is_loss_switch(std::string_view name) { return std::ranges::find(kLossSwitches, name) != kLossSwitches.end(); }

// Reads one message.
class MessageReader {
 public:
  MessageReader(const Json& message, std::string what) : message_(message), what_(std::move(what)) {
    HONE_CHECK(message.is_object(), what_, " must be an object, not ", message.kind_name());
    HONE_CHECK(!(member("role") && member("from")), what_, " has both role and from; keep one of them");
  }

  Json read() const {
    Json out = JsonObject{};
    const std::string name = role_name();
    out.set("role", std::string(known_role(name).role));
    if (name == "function_call") {
      out.set("content", "");
      out.set("tool_calls", calls_of_text(text_of(content_name())));
    } else {
      read_content(out);
    }
    for (const auto& [key, value] : message_.as_object())
      if (!is_read(key) && !value.is_null()) out.set(key, value);
    read_loss_switch(out);
    return out;
  }

 private:
  // A member that is not null.
  const Json* member(std::string_view name) const {
    const Json* found = message_.find(name);
    return found && !found->is_null() ? found : nullptr;
  }
  std::string role_column() const { return member("from") ? "from" : "role"; }
  std::string content_name() const { return member("value") || member("from") ? "value" : "content"; }
  bool is_read(const std::string& key) const {
    return key == role_column() || key == content_name() || key == "content" || key == "tool_calls" ||
           is_loss_switch(key);
  }

  std::string role_name() const {
    const std::string column = role_column();
    const Json* role = member(column);
    HONE_CHECK(role && role->is_string(), what_, ".", column,
               " must be a text: system, user, assistant or tool (ShareGPT: from with human, gpt, ...)");
    return role->as_string();
  }
  const RoleName& known_role(const std::string& name) const {
    const auto found = std::ranges::find(kRoles, std::string_view(name), &RoleName::name);
    if (found != kRoles.end()) return *found;
    std::vector<std::string> known;
    for (const RoleName& role : kRoles) known.emplace_back(role.name);
    fail(what_, ".", role_column(), " is '", name, "'", suggestion(name, known), "; known: ", join(known));
  }

  std::string text_of(const std::string& name) const {
    const Json* content = member(name);
    HONE_CHECK(content && content->is_string(), what_, ".", name, " must be a text, not ",
               content ? content->kind_name() : "missing");
    return content->as_string();
  }

  void read_content(Json& out) const {
    const std::string name = content_name();
    const Json *content = member(name), *calls = member("tool_calls");
    if (content && content->is_array())
      out.set("content", text_of_parts(*content, what_ + "." + name));
    else if (content)
      out.set("content", text_of(name));
    else if (calls)
      out.set("content", "");
    else
      fail(what_, ".", name, " must be a text, not ", message_.find(name) ? "null" : "missing");
    if (calls) out.set("tool_calls", normal_calls(*calls, what_ + ".tool_calls"));
  }

  // Content parts: {"type": "text", "text": ...}.
  static std::string text_of_parts(const Json& parts, const std::string& what) {
    std::string out;
    for (size_t i = 0; i < parts.as_array().size(); ++i) {
      const Json& part = parts.as_array()[i];
      const std::string place = concat(what, "[", i, "]");
      if (part.is_string()) {
        out += part.as_string();
        continue;
      }
      const std::string type = part.at("type", place).as_string(place + ".type");
      HONE_CHECK(type == "text", place, " is of the type '", type, "'; hone trains on text only, so remove such rows");
      out += part.at("text", place).as_string(place + ".text");
    }
    return out;
  }

  // {"name", "arguments"} of ShareGPT's function_call, or a list of them.
  Json calls_of_text(const std::string& text) const {
    const Json parsed = parse_json(text, what_ + "." + content_name());
    return normal_calls(parsed.is_array() ? parsed : Json(JsonArray{parsed}), what_ + "." + content_name());
  }

  // An object or its JSON text; a call without arguments may have null or an empty text.
  static Json normal_arguments(const Json& given, const std::string& what) {
    const bool is_text = given.is_string();
    if (given.is_null() || (is_text && given.as_string().find_first_not_of(" \t\r\n") == std::string::npos))
      return JsonObject{};
    Json out = is_text ? parse_json(given.as_string(), what) : given;
    HONE_CHECK(out.is_object(), what, " must be an object or its JSON text, not ", out.kind_name());
    return out;
  }

  // Calls as {"type": "function", "function": {"name", "arguments"}}; chat templates expect arguments to be an object.
  static Json normal_calls(const Json& calls, const std::string& what) {
    JsonArray out;
    for (const Json& call : calls.as_array(what)) {
      const std::string place = concat(what, "[", out.size(), "]");
      Json normal = call.find("function") ? call : JsonObject{{"type", "function"}, {"function", call}};
      Json function = normal.at("function", place);
      HONE_CHECK(function.find("name") && function.find("name")->is_string(), place, ": the name of the function is ",
                 "missing");
      if (const Json* arguments = function.find("arguments"))
        function.set("arguments", normal_arguments(*arguments, place + ".function.arguments"));
      normal.set("function", function);
      out.push_back(without_nulls(normal));
    }
    return out;
  }

  static Json without_nulls(const Json& object) {
    JsonObject out;
    for (const auto& [name, value] : object.as_object())
      if (!value.is_null()) out.emplace_back(name, value);
    return out;
  }

  void read_loss_switch(Json& out) const {
    for (const std::string_view name : kLossSwitches) {
      const Json* value = member(name);
      if (!value) continue;
      const bool is_number = value->is_number() && (value->as_double() == 0 || value->as_double() == 1);
      HONE_CHECK(value->is_bool() || is_number, what_, ".", name, " is ", value->dump(),
                 "; it must be true, false, 1 or 0");
      const bool trained = value->is_bool() ? value->as_bool() : value->as_double() == 1;
      const Json* earlier = out.find("weight");
      HONE_CHECK(!earlier || (earlier->as_int() == 1) == trained, what_,
                 " has several switches of the loss that differ");
      HONE_CHECK(!trained || out.at("role").as_string() == "assistant", what_, ".", name, " is on, but the role is '",
                 out.at("role").as_string(), "'; hone trains on the assistant's messages only");
      out.set("weight", trained ? 1 : 0);
    }
  }

  const Json& message_;
  std::string what_;
};

}  // namespace

Json normalize_messages(const Json& messages, const std::string& what) {
  HONE_CHECK(messages.is_array(), what, " must be a list of messages, not ", messages.kind_name());
  HONE_CHECK(!messages.as_array().empty(), what, " is empty");
  JsonArray out;
  for (const Json& message : messages.as_array())
    out.push_back(MessageReader(message, concat(what, "[", out.size(), "]")).read());
  return out;
}

std::optional<bool> loss_switch(const Message& message) {
  const Json* weight = message.extra.find("weight");
  return weight && weight->is_number() ? std::optional(weight->as_double() != 0) : std::nullopt;
}

}  // namespace hone
