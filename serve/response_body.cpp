#include "serve/response_body.h"

#include "core/text/detokenizer.h"

namespace hone {
namespace {

constexpr size_t piece_bytes = 65536;

// The members alone, without the braces.
void write_members(std::string& out, const JsonObject& members) {
  const std::string object = Json(members).dump();
  out += std::string_view(object).substr(1, object.size() - 2);
}

}  // namespace

bool AnswerBody::next(std::string& out) {
  while (place_ != Place::end && out.size() < piece_bytes) step(out);
  return place_ != Place::end;
}

void AnswerBody::step(std::string& out) {
  switch (place_) {
    case Place::front:
      out += "{";
      write_members(out, answer_front(parts_.request, model_, parts_.id, parts_.created, false));
      out += ", \"choices\": [";
      place_ = Place::choice;
      break;
    case Place::choice:
      begin_choice(out);
      break;
    case Place::column:
      begin_column(out);
      break;
    case Place::entries:
      write_entries(out);
      break;
    case Place::choice_end:
      end_choice(out);
      break;
    case Place::back:
      out += "], ";
      write_members(out, {{"usage", parts_.usage}});
      out += "}";
      place_ = Place::end;
      break;
    case Place::end:
      break;
  }
}

void AnswerBody::begin_choice(std::string& out) {
  part_.text = (parts_.request.chat ? "" : leading_space(model_.tokenizer, reply().ids)) + reply().text;
  part_.begin = 0;
  part_.end = reply().ids.size();
  part_.first = true;
  part_.last = true;
  out += part_.index > 0 ? ", {" : "{";
  write_members(out, choice_front(parts_.request, prompt(), part_, false));
  out += ", \"logprobs\": ";
  column_ = 0;
  text_offset_ = 0;
  out += parts_.request.logprobs ? "{" : "null";
  place_ = parts_.request.logprobs ? Place::column : Place::choice_end;
}

void AnswerBody::begin_column(std::string& out) {
  const auto columns = tokens().columns();
  if (column_ == columns.size()) {
    out += "}";
    place_ = Place::choice_end;
    return;
  }
  out += concat(column_ > 0 ? ", " : "", "\"", columns[column_].name, "\": ");
  if (columns[column_].listed) {
    out += "[";
    entry_ = 0;
    place_ = Place::entries;
  } else {
    out += "null";
    ++column_;
  }
}

void AnswerBody::write_entries(std::string& out) {
  const LogprobTokens all = tokens();
  for (; entry_ < all.size() && out.size() < piece_bytes; ++entry_) {
    if (entry_ > 0) out += ", ";
    out += all.entry(column_, entry_, text_offset_).dump();
  }
  if (entry_ < all.size()) return;
  out += "]";
  ++column_;
  place_ = Place::column;
}

void AnswerBody::end_choice(std::string& out) {
  out += ", ";
  write_members(out, choice_back(parts_.request, prompt(), reply(), part_));
  out += "}";
  ++part_.index;
  if (++reply_ == parts_.replies[prompt_].size()) {
    reply_ = 0;
    ++prompt_;
  }
  place_ = prompt_ == parts_.replies.size() ? Place::back : Place::choice;
}

}  // namespace hone
