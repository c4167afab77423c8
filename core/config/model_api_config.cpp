#include "core/config/model_api_config.h"

namespace hone {

void ModelApiConfig::fields(Fields& f) {
  f("base_url", base_url, "address of an OpenAI-compatible server, as http://localhost:8000/v1");
  f("model", model, "the model's name on the server");
  f("api_key_env", api_key_env, "name of the environment variable with the API key; an unset variable is no key");
  f("max_retries", max_retries,
    "further attempts of a request after status 408, 429 or 5xx, a timeout or a broken response");
  f("request_timeout", request_timeout, "seconds of one attempt");
  f("max_retry_wait", max_retry_wait, "maximum seconds between two attempts, whatever Retry-After says");
  f("requests_per_minute", requests_per_minute, "maximum attempts that begin within a minute; 0 = no limit");
  f.require("max_retries", max_retries >= 0 && max_retries <= 1000, "max_retries must be in [0, 1000]");
  f.require("request_timeout", request_timeout > 0 && request_timeout <= 86400,
            "request_timeout must be in (0, 86400]");
  f.require("max_retry_wait", max_retry_wait >= 0 && max_retry_wait <= 3600, "max_retry_wait must be in [0, 3600]");
  f.require("requests_per_minute", requests_per_minute >= 0 && requests_per_minute <= 1e6,
            "requests_per_minute must be in [0, 1e6]");
}

}  // namespace hone
