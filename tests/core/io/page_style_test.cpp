#include "core/io/page_style.h"

#include <gtest/gtest.h>

#include "core/io/file.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

TEST(PageStyle, IsTheFileAndNeedsNothingFromElsewhere) {
  EXPECT_EQ(page_style(), read_file(source_folder() / "core" / "io" / "page_style.css"));
  for (const char* outside : {"http:", "https:", "@import", "url(", "</style"})
    EXPECT_EQ(page_style().find(outside), std::string_view::npos) << outside;
}

TEST(PageStyle, AMarkerMustBeThereOnce) {
  EXPECT_EQ(with_part("a /* x */ b", "/* x */", "/* x */ y"), "a /* x */ y b");
  EXPECT_THROW(with_part("a b", "/* x */", "y"), Error);
  EXPECT_THROW(with_part("/* x */ /* x */", "/* x */", "y"), Error);
}

}  // namespace
}  // namespace hone::test
