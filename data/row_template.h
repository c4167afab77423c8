#pragma once
// Text made of a row's members: "Question: {question}\nAnswer:".
//
//   {name}         the member; numbers and arrays as JSON, null as nothing
//   {a.b} {a.0}    a member of a member, an element of a list (counted from 0)
//   {name?text}    text, as it is, if the member is there and not empty; otherwise nothing:
//   "{instruction}{input?\nInput: }{input}" {name|words}   the member with its underscores as spaces
//   {{ and }}      braces
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.h"
#include "core/text/chat.h"

namespace hone {

// A member that the row lacks is an Error that names it, its place (`where`) and what the row has instead.
std::string fill_template(std::string_view text, const Json& row, std::string_view where);

// What a template gives: text, or, where it is one {name} and the member a list, the messages of a conversation.
struct RowText {
  std::string text;
  std::vector<Message> messages;
};
RowText fill_text(std::string_view text, const Json& row, std::string_view where);

}  // namespace hone
