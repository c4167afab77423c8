#pragma once
// Functions that all kinds of plug-ins share: they turn an answer into a RewardScore.
#include <string>
#include <string_view>

#include "core/io/json.h"
#include "rewards/reward.h"

namespace hone {

// Returns at most 300 bytes of a plug-in's text as one printable line.
std::string plain_text(std::string_view text);

RewardScore failed_score(std::string why);
// Returns a failed score if `score` is not finite or too large for a float.
RewardScore checked_score(double score, std::string note = {});
// Reads the answer for one completion: a number, null (skipped), {"score": number or null, "note": text, "parts":
// {name: number}}, or {"error": text}. Anything else gives a failed score.
RewardScore score_from_json(const Json& value);

}  // namespace hone
