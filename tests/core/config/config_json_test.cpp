// Settings as JSON: to_json() output reads back to the same values, and errors name their place.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/config/config.h"
#include "tests/core/config/sample_settings.h"
#include "tests/support/errors.h"

namespace hone {
namespace {

using test::Inner;
using test::Recipe;
using test::Stage;

Json written(Recipe recipe) {
  return to_json([&](Fields& f) { recipe.fields(f); });
}

Recipe read(const Json& json) {
  Recipe out;
  from_json(json, "settings", [&](Fields& f) { out.fields(f); });
  return out;
}

std::string error_of(std::string_view text) {
  return test::error_of([&] { read(parse_json(text, "test")); });
}

TEST(ConfigJsonTest, WhatIsWrittenReadsBackToTheSameValues) {
  Recipe recipe{.steps = std::numeric_limits<int64_t>::min(),
                .fast = true,
                .path = "a \"b\"\n\\",
                .sizes = {},
                .words = {"", "é"},
                .inner = {},
                .stage = {}};
  recipe.sizes = {std::numeric_limits<int64_t>::max(), 0, -1};
  recipe.inner = {.rate = 0.1 + 0.2,
                  .betas = {-0.0, std::numeric_limits<double>::denorm_min(), std::numeric_limits<double>::max()}};
  recipe.stage = {{.name = "x", .inner = {.rate = 1e-300, .betas = {}}}, {}};
  const Recipe back = read(parse_json(written(recipe).dump(), "test"));
  EXPECT_EQ(back, recipe);
  EXPECT_TRUE(std::signbit(back.inner.betas[0]));
  EXPECT_EQ(read(written(Recipe())), Recipe());
}

TEST(ConfigJsonTest, WhatIsMissingKeepsItsValue) {
  const Recipe kept =
      read(JsonObject{{"inner", JsonObject{{"betas", JsonArray{1}}}}, {"stage", JsonArray{JsonObject{{"name", "b"}}}}});
  EXPECT_EQ(kept.steps, 10);
  EXPECT_EQ(kept.inner, (Inner{.rate = 0.5, .betas = {1}}));
  EXPECT_EQ(kept.stage, (std::vector<Stage>{{.name = "b", .inner = {}}}));
}

TEST(ConfigJsonTest, ListsAreReplacedNotAddedTo) {
  EXPECT_EQ(read(parse_json(R"({"inner": {"betas": []}})", "test")).inner.betas.size(), 0u);
}

TEST(ConfigJsonTest, ErrorsNameTheirPlace) {
  struct Case {
    const char *text, *place, *what;
  };
  for (const auto& [text, place, what] :
       {Case{R"({"stepz": 1})", "settings: ", "unknown member 'stepz'"},
        {R"({"inner": {"rat": 1}})", "settings.inner: ", "unknown member 'rat'"},
        {R"({"stage": [{}, {"inner": {"x": 1}}]})", "settings.stage[1].inner: ", "unknown member 'x'"},
        {R"({"inner": {"rate": 0}})", "settings.inner.rate: ", "rate must be positive"},
        {R"({"stage": [{"inner": {"rate": -1}}]})", "settings.stage[0].inner.rate: ", "rate must be positive"},
        {R"({"steps": "1"})", "settings.steps", "string"},
        {R"({"steps": 1.5})", "settings.steps", "integer"},
        {R"({"steps": null})", "settings.steps", "null"},
        {R"({"fast": 1})", "settings.fast", "bool"},
        {R"({"path": []})", "settings.path", "array"},
        {R"({"sizes": [1, "2"]})", "settings.sizes", "string"},
        {R"({"words": "one"})", "settings.words", "array"},
        {R"({"inner": 3})", "settings.inner", "object"},
        {R"({"inner": {"betas": {}}})", "settings.inner.betas", "array"},
        {R"({"stage": {}})", "settings.stage", "array"},
        {R"({"stage": [7]})", "settings.stage[0]", "object"},
        {R"([])", "settings", "object"},
        {R"(null)", "settings", "object"}}) {
    const std::string error = error_of(text);
    EXPECT_TRUE(error.starts_with(place)) << text << " -> " << error;
    EXPECT_NE(error.find(what), std::string::npos) << text << " -> " << error;
  }
  EXPECT_NE(error_of(R"({"stepz": 1})").find("'steps'"), std::string::npos) << "the nearest known name";
}

// A table with keys of the user's choice.
struct Free {
  Json values = JsonObject{};
  void fields(Fields& f) { f("values", values, "any keys"); }
};

TEST(FreeTables, AreReadFromTomlAndJsonAndWrittenBack) {
  const Free read = Config::from_text("[values]\n\"a b\" = 'x'\nlist = [1, 2.5, true]\n[values.inner]\nz = -3\n",
                                      "r.toml", std::vector<std::string>{"values.more=false"})
                        .as<Free>();
  EXPECT_EQ(read.values.dump(), R"({"a b": "x", "inner": {"z": -3}, "list": [1, 2.5, true], "more": false})");
  Free copy = read;
  const std::string toml = to_toml([&](Fields& f) { copy.fields(f); });
  EXPECT_EQ(Config::from_text(toml, "t").as<Free>().values, read.values) << toml;
  Free from;
  from_json(to_json([&](Fields& f) { copy.fields(f); }), "j", [&](Fields& f) { from.fields(f); });
  EXPECT_EQ(from.values, read.values);
  Free empty;
  EXPECT_EQ(to_toml([&](Fields& f) { empty.fields(f); }), "values = {}\n");
}

TEST(FreeTables, OtherValuesAreErrorsWithTheirPlace) {
  const auto error = [](const char* text) -> std::string {
    try {
      Config::from_text(text, "r.toml").as<Free>();
    } catch (const Error& problem) {
      return problem.what();
    }
    return "";
  };
  EXPECT_EQ(error("values = 3"), "r.toml:1:10: 'values' should be a table, it is an integer");
  EXPECT_NE(error("values = { day = 2024-01-01 }").find("r.toml:1:18: a date or time cannot stand here"),
            std::string::npos);
}

}  // namespace
}  // namespace hone
