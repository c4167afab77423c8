#include "core/base/format.h"

#include <gtest/gtest.h>

namespace hone {
namespace {

TEST(FormatText, HoldsWhateverItsLength) {
  EXPECT_EQ(format_text("%.1f%% of %d", 12.34, 7), "12.3% of 7");
  EXPECT_EQ(format_text("%s|", std::string(5000, 'x').c_str()), std::string(5000, 'x') + "|");
  EXPECT_EQ(format_text("%s", ""), "");
}

TEST(Printable, EscapesWhatATerminalWouldObey) {
  EXPECT_EQ(printable("a\tb\nc \u00e9 \u00a0 \U0001f600"), "a\tb\nc \u00e9 \u00a0 \U0001f600");
  EXPECT_EQ(printable("\x1b[31mred\x1b[0m\r\x7f\b"), "\\x1b[31mred\\x1b[0m\\x0d\\x7f\\x08");
  EXPECT_EQ(printable("\u009b2J\u0085"), "\\u009b2J\\u0085");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\xc2"), "\xc2");  // no UTF-8: as it is
}

}  // namespace
}  // namespace hone
