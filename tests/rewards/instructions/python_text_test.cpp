// Python's str functions.
#include "rewards/instructions/python_text.h"

#include <gtest/gtest.h>

namespace hone {
namespace {

TEST(PythonText, Strips) {
  EXPECT_EQ(stripped("\u00a0\t text \u2003\n"), "text");
  EXPECT_EQ(stripped(" \n "), "");
  EXPECT_EQ(left_stripped("<<a>>", "<"), "a>>");
  EXPECT_EQ(right_stripped("<<a>>", ">"), "<<a");
  EXPECT_EQ(right_stripped(">>", ">"), "");
}

TEST(PythonText, Splits) {
  EXPECT_EQ(split_at("", "**"), std::vector<std::string_view>{""});
  EXPECT_EQ(split_at("a**b****c", "**"), (std::vector<std::string_view>{"a", "b", "", "c"}));
}

}  // namespace
}  // namespace hone
