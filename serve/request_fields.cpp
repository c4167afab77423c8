#include "serve/request_fields.h"

#include <algorithm>

#include "core/base/suggest.h"
#include "core/text/unicode/unicode.h"
#include "serve/openai_request.h"

namespace hone {

std::string short_echo(const std::string& text) {
  constexpr size_t max_bytes = 100;
  if (text.size() <= max_bytes) return text;
  return text.substr(0, valid_utf8_prefix(std::string_view(text).substr(0, max_bytes))) + "...";
}

RequestFields::RequestFields(const Json& body) : body_(body) {
  if (!body.is_object()) throw HttpError(400, concat("the body must be a JSON object, not ", body.kind_name()));
}

const Json* RequestFields::find(const std::string& name) {
  known_.push_back(name);
  const Json* found = body_.find(name);
  return found && !found->is_null() ? found : nullptr;
}

void RequestFields::read(const std::string& name, bool& value) {
  const Json* found = find(name);
  if (!found) return;
  if (!found->is_bool()) throw HttpError(400, concat(name, " must be true or false, not ", found->kind_name()), name);
  value = found->as_bool();
}

void RequestFields::read(const std::string& name, int64_t& value) {
  const Json* found = find(name);
  if (!found) return;
  try {
    value = found->as_int(name);
  } catch (const Error&) {
    throw HttpError(400, concat(name, " must be an integer, not ", short_echo(found->dump())), name);
  }
}

void RequestFields::read(const std::string& name, double& value) {
  const Json* found = find(name);
  if (!found) return;
  if (!found->is_number()) throw HttpError(400, concat(name, " must be a number, not ", found->kind_name()), name);
  value = found->as_double();
}

void RequestFields::ignore(const std::vector<std::string>& names) {
  known_.insert(known_.end(), names.begin(), names.end());
}

void RequestFields::reject(const std::string& name, const Json& harmless, const std::string& reason) {
  const Json* found = find(name);
  if (found && *found != harmless) throw HttpError(400, concat(name, ": ", reason), name);
}

void RequestFields::finish() const {
  for (const auto& [name, value] : body_.as_object())
    if (std::find(known_.begin(), known_.end(), name) == known_.end()) {
      const std::string shown = short_echo(name);
      throw HttpError(400, concat("unknown member '", shown, "'", suggestion(shown, known_)), shown);
    }
}

}  // namespace hone
