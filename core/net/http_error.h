#pragma once
// HttpError: why an HTTP request is rejected, and its JSON.
#include <string>

#include "core/base/check.h"
#include "core/io/json.h"

namespace hone {

// An error response, in the form that OpenAI's clients read.
class HttpError : public Error {
 public:
  HttpError(int status_code, const std::string& message, std::string field = {}, std::string code_name = {})
      : Error(message), status(status_code), param(std::move(field)), code(std::move(code_name)) {}
  int status;         // HTTP status code
  std::string param;  // the wrong member of the request, or ""
  std::string code;   // "model_not_found", ..., or ""
};
// {"error": {message, type, param, code}}
Json error_json(int status, const std::string& message, const std::string& param = {}, const std::string& code = {});

}  // namespace hone
