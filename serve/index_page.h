#pragma once
// The index page: the HTML page at "/", on which a user tries a prompt and sees the probability of each token.
#include <string_view>

#include "core/net/http_transaction.h"

namespace hone {

// The text of serve/index_page.html, which is compiled into the program. A marker in it stands for the shared style.
std::string_view index_page();
// The complete page (core/net/page_response.h).
HttpServerResponse index_page_response();

}  // namespace hone
