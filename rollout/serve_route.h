#pragma once
// What a server turns down before it reads a body: a request without a key, at no path it has, or with another method.
#include <optional>
#include <string>

#include "core/net/bearer_keys.h"
#include "core/net/exchange.h"

namespace hone {

struct ServeRoute {
  const char* method = "";
  bool open = false;  // to everybody
};
// keys: those of which one is needed, if any. route: the path's, nullptr where there is none.
std::optional<HttpReply> refusal(const HttpHead& head, const std::optional<BearerKeys>& keys, const ServeRoute* route);

}  // namespace hone
