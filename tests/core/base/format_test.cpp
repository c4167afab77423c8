#include "core/base/format.h"

#include <gtest/gtest.h>

namespace hone {
namespace {

TEST(FormatText, HoldsWhateverItsLength) {
  EXPECT_EQ(format_text("%.1f%% of %d", 12.34, 7), "12.3% of 7");
  EXPECT_EQ(format_text("%s|", std::string(5000, 'x').c_str()), std::string(5000, 'x') + "|");
  EXPECT_EQ(format_text("%s", ""), "");
}

}  // namespace
}  // namespace hone
