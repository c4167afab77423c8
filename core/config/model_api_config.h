#pragma once
// The settings of a client of an OpenAI-compatible server (core/net/model_api.h), apart from the client: objectives,
// which have no network, name a teacher's server.
#include <cstdint>
#include <string>

#include "core/config/fields.h"

namespace hone {

struct ModelApiConfig {
  std::string base_url = {}, model = {};
  std::string api_key_env = "OPENAI_API_KEY";  // name of the environment variable with the key
  int64_t max_retries = 6;                     // of a request
  double request_timeout = 300;                // seconds
  double max_retry_wait = 60;                  // seconds between two attempts
  double requests_per_minute = 0;              // rate limit; 0 = none
  void fields(Fields& f);
};

}  // namespace hone
