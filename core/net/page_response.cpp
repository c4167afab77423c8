#include "core/net/page_response.h"

#include "core/base/check.h"
#include "core/net/digest.h"

namespace hone {

// The policy's source expression for the text in the page's one element of that name.
static std::string hash_source(std::string_view page, std::string_view name) {
  const std::string opening = concat("<", name, ">"), closing = concat("</", name, ">");
  const size_t begin = page.find(opening) + opening.size();
  return concat("'sha256-", base64(sha256(page.substr(begin, page.find(closing, begin) - begin))), "'");
}

HttpServerResponse page_response(std::string page) {
  const std::string policy =
      concat("default-src 'none'; script-src ", hash_source(page, "script"), "; style-src ", hash_source(page, "style"),
             "; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
             "require-trusted-types-for 'script'");
  return {.body = std::move(page),
          .content_type = "text/html; charset=utf-8",
          .headers = {{"Content-Security-Policy", policy},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cache-Control", "no-cache"}}};
}

}  // namespace hone
