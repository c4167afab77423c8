#pragma once
// The page at "/": try a prompt and see each token's probability.
#include <string_view>

#include "core/net/http_transaction.h"

namespace hone {

// The text of serve/index_page.html, which travels inside the program.
std::string_view index_page();
// The page with a policy (https://www.w3.org/TR/CSP3/) that runs its own script and style, lets it ask this server, and
// allows nothing else.
HttpServerResponse index_page_response();

}  // namespace hone
