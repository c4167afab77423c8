// The index page's text and its security policy; tests/e2e/page_test.cpp opens it in a browser.
#include "serve/index_page.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/io/file.h"
#include "core/io/page_style.h"
#include "tests/support/support.h"

namespace hone {
namespace {

TEST(PageTest, IsTheFileAndNeedsNothingFromElsewhere) {
  EXPECT_EQ(index_page(), read_file(test::source_folder() / "serve" / "index_page.html"));
  for (const char* outside : {"http:", "https:", "src=", "@import", "url(", "import "})
    EXPECT_EQ(index_page().find(outside), std::string_view::npos) << outside;
}

TEST(PageTest, ThePolicyNamesItsOneScriptAndItsOneStyle) {
  const HttpServerResponse reply = index_page_response();
  EXPECT_EQ(reply.status, 200);
  EXPECT_NE(reply.body.find(page_style()), std::string::npos);
  EXPECT_EQ(reply.content_type, "text/html; charset=utf-8");
  const auto policy = std::find_if(reply.headers.begin(), reply.headers.end(),
                                   [](const auto& header) { return header.first == "Content-Security-Policy"; });
  ASSERT_NE(policy, reply.headers.end());
  EXPECT_TRUE(policy->second.starts_with("default-src 'none'; script-src 'sha256-")) << policy->second;
  EXPECT_EQ(policy->second.find("unsafe"), std::string::npos);
  for (const std::string tag : {"<script", "</script>", "<style", "</style>"}) {
    const size_t first = index_page().find(tag);
    EXPECT_NE(first, std::string_view::npos) << tag;
    EXPECT_EQ(index_page().find(tag, first + 1), std::string_view::npos) << tag << " stands there twice";
  }
}

}  // namespace
}  // namespace hone
