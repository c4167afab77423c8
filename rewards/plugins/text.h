#pragma once
// What plug-ins of all kinds share: how what comes back becomes a score.
#include <string>
#include <string_view>

#include "core/io/json.h"
#include "rewards/reward.h"

namespace hone {

// One line, 300 bytes at most, of whatever a plug-in wrote.
std::string plain_text(std::string_view text);

RewardScore failed_score(std::string why);
// A score that is not finite, or too large for a float, has failed.
RewardScore checked_score(double score, std::string note = {});
// What stands for one completion in an answer: a number, null (skipped), or {"score": number or null, "note": text,
// "parts": {name: number}} or
// {"error": text}. Anything else has failed.
RewardScore score_from_json(const Json& value);

}  // namespace hone
