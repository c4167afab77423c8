#include "core/io/json.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <new>

#include "tests/support/errors.h"

namespace hone {
namespace {

std::string error_of(std::string_view text, int64_t first_line = 1) {
  return test::error_of([&] { parse_json(text, "rows.jsonl", first_line); });
}

TEST(Json, KeepsOrderKindsAndBits) {
  const std::string text =
      R"({"b": [1, -2, 2.5, true, null], "a": {"x": "é\n\"\\"}, "big": 9223372036854775807, "bigger": 9223372036854775808})";
  const Json value = parse_json(text, "text");
  EXPECT_TRUE(value.at("big").is_int());
  EXPECT_FALSE(value.at("bigger").is_int());
  EXPECT_EQ(value.at("a").at("x").as_string(), "é\n\"\\");
  EXPECT_EQ(
      value.dump(),
      R"({"b": [1, -2, 2.5, true, null], "a": {"x": "é\n\"\\"}, "big": 9223372036854775807, "bigger": 9223372036854775808.0})");
  EXPECT_EQ(parse_json(value.dump(2), "dump"), value);
}

// libstdc++ 12 crashes when it copies a variant without memory.
TEST(JsonDeathTest, ACopyWithoutMemoryIsAnErrorThatCanBeCaught) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's allocator ends the process itself";
#else
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [] {
    JsonArray inner;
    for (int i = 0; i < 3; ++i) inner.emplace_back(std::string(size_t{64} << 20, 'x'));
    const Json array(std::move(inner)), object(JsonObject{{"a", 1}, {"b", array}});
    Json other = "kept";
    const rlimit nothing_more{1, 1};
    if (::setrlimit(RLIMIT_AS, &nothing_more) != 0) std::exit(1);
    int caught = 0;
    for (const Json* one : {&array, &object}) {
      try {
        other = *one;
      } catch (const std::bad_alloc&) {
        ++caught;
      }
    }
    std::exit(caught == 2 && other == Json("kept") && array.as_array().size() == 3 ? 0 : 2);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "");
#endif
}

TEST(Json, DoublesReadBackToTheSameBits) {
  for (const double x : {0.1, -0.0, 1.0, 1e300, 5e-324, 1.0 / 3.0, static_cast<double>(0.1f), 123456789012345680.0}) {
    const Json back = parse_json(Json(x).dump(), "number");
    EXPECT_FALSE(back.is_int()) << x;
    EXPECT_EQ(back.as_double(), x);
    EXPECT_EQ(std::signbit(back.as_double()), std::signbit(x));
  }
  EXPECT_EQ(Json(std::numeric_limits<double>::infinity()).dump(), "null");
  EXPECT_EQ(number_text(-std::numeric_limits<double>::infinity()), "-inf");
}

TEST(Json, ErrorsNameLineAndColumn) {
  EXPECT_NE(error_of("{\"a\": 1,\n \"b\" 2}").find("rows.jsonl:2:6: "), std::string::npos)
      << error_of("{\"a\": 1,\n \"b\" 2}");
  EXPECT_NE(error_of("[1, 2", 17).find("rows.jsonl:17:"), std::string::npos) << error_of("[1, 2", 17);
  EXPECT_NE(error_of("").find("rows.jsonl:1:1: "), std::string::npos) << error_of("");
  EXPECT_NE(error_of("1e999").find("rows.jsonl:1:"), std::string::npos) << error_of("1e999");
  EXPECT_NE(error_of("{} {}").find("rows.jsonl:1:"), std::string::npos);
  EXPECT_NE(error_of("\"\xff\"").find("rows.jsonl:1:"), std::string::npos);
}

TEST(Json, NestingIsBounded) {
  EXPECT_EQ(error_of(std::string(256, '[') + std::string(256, ']')), "no error");
  EXPECT_NE(error_of(std::string(1000000, '[')).find("nested"), std::string::npos);
}

TEST(Json, WrongKindsAreNamed) {
  const Json row = parse_json(R"({"n": 1.5, "m": 3.0})", "row");
  EXPECT_EQ(row.at("m").as_int("m"), 3);
  EXPECT_THROW(row.at("n").as_int("n"), Error);
  EXPECT_THROW(parse_json("1e19", "x").as_int(), Error);
  try {
    row.at("n").as_string("config.json: n");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "config.json: n: expected a string, got a number");
  }
}

TEST(Json, InvalidUtf8IsReplacedWhenPrinted) {
  EXPECT_EQ(Json("a\xff\xc3(\xed\xa0\x80\x01").dump(),
            "\"a\xEF\xBF\xBD\xEF\xBF\xBD(\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\\u0001\"");
}

TEST(Json, SetReplacesAndTheLastDuplicateCounts) {
  Json value = parse_json(R"({"a": 1, "a": 2})", "text");
  EXPECT_EQ(value.at("a").as_int(), 2);
  value.set("b", 3);
  value.set("b", 4);
  EXPECT_EQ(value.at("b").as_int(), 4);
  EXPECT_EQ(value.find("c"), nullptr);
}

}  // namespace
}  // namespace hone
