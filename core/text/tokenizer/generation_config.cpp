#include "core/text/tokenizer/generation_config.h"

namespace hone {

Json generation_config_json(const Tokenizer& tokenizer) {
  JsonArray stops;
  for (const int32_t id : tokenizer.stop_ids()) stops.push_back(int64_t{id});
  if (stops.empty()) return JsonObject{};
  return JsonObject{{"eos_token_id", stops.size() == 1 ? stops[0] : Json(stops)}};
}

}  // namespace hone
