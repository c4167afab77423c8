#pragma once
// An HTML page that is compiled into the program, as an HTTP response.
#include <string>

#include "core/net/http_transaction.h"

namespace hone {

// The page with a content security policy (https://www.w3.org/TR/CSP3/) that allows its own script and style and
// requests to this server, and nothing else. The page has one <style> and one <script> element.
HttpServerResponse page_response(std::string page);

}  // namespace hone
