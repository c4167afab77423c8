#include "rewards/plugins/text.h"

#include <cmath>

namespace hone {

std::string plain_text(std::string_view text) {
  constexpr size_t most = 300;
  std::string out(text.substr(0, most));
  for (char& c : out)
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) c = ' ';
  return text.size() > most ? out + "..." : out;
}

RewardScore failed_score(std::string why) { return {.note = std::move(why), .failed = true}; }

RewardScore checked_score(double score, std::string note) {
  if (!std::isfinite(static_cast<float>(score))) return failed_score("its score is " + number_text(score));
  return {.score = score, .note = std::move(note)};
}

RewardScore score_from_json(const Json& value) {
  if (value.is_null()) return {.skipped = true};
  if (value.is_number()) return checked_score(value.as_double());
  if (!value.is_object()) return failed_score("its score is " + plain_text(value.dump()));
  if (const Json* error = value.find("error"))
    return failed_score(plain_text(error->is_string() ? error->as_string() : error->dump()));
  const Json *score = value.find("score"), *note = value.find("note"), *parts = value.find("parts");
  if (!score || !(score->is_null() || score->is_number()) || (note && !note->is_string()) ||
      (parts && !parts->is_object()))
    return failed_score("its score is " + plain_text(value.dump()));
  RewardScore out = score->is_null() ? RewardScore{.skipped = true} : checked_score(score->as_double());
  if (out.failed) return out;
  if (note) out.note = plain_text(note->as_string());
  if (parts)
    for (const auto& [name, part] : parts->as_object()) {
      if (!part.is_number() || !std::isfinite(part.as_double()))
        return failed_score("its part " + plain_text(name) + " is " + plain_text(part.dump()));
      out.parts[name] = part.as_double();
    }
  return out;
}

}  // namespace hone
