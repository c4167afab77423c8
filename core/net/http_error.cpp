#include "core/net/http_error.h"

namespace hone {

Json error_json(int status, const std::string& message, const std::string& param, const std::string& code) {
  const char* type = status == 401   ? "authentication_error"
                     : status == 429 ? "rate_limit_error"
                     : status >= 500 ? "server_error"
                                     : "invalid_request_error";
  return JsonObject{{"error", JsonObject{{"message", message},
                                         {"type", type},
                                         {"param", param.empty() ? Json() : Json(param)},
                                         {"code", code.empty() ? Json() : Json(code)}}}};
}

}  // namespace hone
