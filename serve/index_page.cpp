#include "serve/index_page.h"

#include "core/io/page_style.h"
#include "core/net/page_response.h"

namespace hone {

HttpServerResponse index_page_response() {
  static const HttpServerResponse response =
      page_response(with_part(std::string(index_page()), "/* page_style.css */", page_style()));
  return response;
}

}  // namespace hone
