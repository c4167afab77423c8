#pragma once
// The index page: the HTML page at "/", on which a user tries a prompt and sees the probability of each token.
#include <string_view>

#include "core/net/http_transaction.h"

namespace hone {

// The text of serve/index_page.html, which is compiled into the program.
std::string_view index_page();
// The page with a content security policy (https://www.w3.org/TR/CSP3/) that allows its own script and style and
// requests to this server, and nothing else.
HttpServerResponse index_page_response();

}  // namespace hone
