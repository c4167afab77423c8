// Settings that come as JSON: what to_json() wrote reads back to the same values, and what is wrong is named by its place.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/config.h"

namespace hone {
namespace {

struct Rate {
  double rate = 0.5;
  std::vector<double> betas{0.9, 0.95};
  void fields(Fields& f) {
    f("rate", rate, "how fast");
    f("betas", betas, "decay of the moments");
    f.require("rate", rate > 0, "rate must be positive");
  }
  bool operator==(const Rate&) const = default;
};

struct Part {
  std::string name = "a";
  Rate rate;
  void fields(Fields& f) {
    f("name", name, "what it is called");
    f("rate", rate, "its rate");
  }
  bool operator==(const Part&) const = default;
};

struct Settings {
  int64_t steps = 10;
  bool fast = false;
  std::string path;
  std::vector<int64_t> sizes;
  std::vector<std::string> words;
  Rate rate;
  std::vector<Part> part;
  void fields(Fields& f) {
    f("steps", steps, "how many");
    f("fast", fast, "quick");
    f("path", path, "a file");
    f("sizes", sizes, "sizes");
    f("words", words, "words");
    f("rate", rate, "of all");
    f("part", part, "in order");
  }
  Json to_json() {
    return hone::to_json([this](Fields& f) { fields(f); });
  }
  bool operator==(const Settings&) const = default;
};

Settings read(const Json& json) {
  Settings out;
  from_json(json, "settings", [&](Fields& f) { out.fields(f); });
  return out;
}

std::string error_of(std::string_view text) {
  try {
    read(parse_json(text, "test"));
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(ConfigJsonTest, WhatIsWrittenReadsBackToTheSameValues) {
  Settings written{
      .steps = std::numeric_limits<int64_t>::min(), .fast = true, .path = "a \"b\"\n\\", .sizes = {}, .words = {"", "é"}, .rate = {}, .part = {}};
  written.sizes = {std::numeric_limits<int64_t>::max(), 0, -1};
  written.rate = {.rate = 0.1 + 0.2, .betas = {-0.0, std::numeric_limits<double>::denorm_min(), std::numeric_limits<double>::max()}};
  written.part = {{.name = "x", .rate = {.rate = 1e-300, .betas = {}}}, {}};
  const Settings back = read(parse_json(written.to_json().dump(), "test"));
  EXPECT_EQ(back, written);
  EXPECT_TRUE(std::signbit(back.rate.betas[0]));
  EXPECT_EQ(read(Settings().to_json()), Settings());
}

TEST(ConfigJsonTest, WhatIsMissingKeepsItsValue) {
  const Settings kept = read(JsonObject{{"rate", JsonObject{{"betas", JsonArray{1}}}}, {"part", JsonArray{JsonObject{{"name", "b"}}}}});
  EXPECT_EQ(kept.steps, 10);
  EXPECT_EQ(kept.rate, (Rate{.rate = 0.5, .betas = {1}}));
  EXPECT_EQ(kept.part, (std::vector<Part>{{.name = "b", .rate = {}}}));
}

TEST(ConfigJsonTest, ListsAreReplacedNotAddedTo) { EXPECT_EQ(read(parse_json(R"({"rate": {"betas": []}})", "test")).rate.betas.size(), 0u); }

TEST(ConfigJsonTest, ErrorsNameTheirPlace) {
  struct Case {
    const char *text, *place, *what;
  };
  for (const auto& [text, place, what] : {Case{R"({"stepz": 1})", "settings: ", "unknown member 'stepz'"},
                                          {R"({"rate": {"rat": 1}})", "settings.rate: ", "unknown member 'rat'"},
                                          {R"({"part": [{}, {"rate": {"x": 1}}]})", "settings.part[1].rate: ", "unknown member 'x'"},
                                          {R"({"rate": {"rate": 0}})", "settings.rate.rate: ", "rate must be positive"},
                                          {R"({"part": [{"rate": {"rate": -1}}]})", "settings.part[0].rate.rate: ", "rate must be positive"},
                                          {R"({"steps": "1"})", "settings.steps", "string"},
                                          {R"({"steps": 1.5})", "settings.steps", "integer"},
                                          {R"({"steps": null})", "settings.steps", "null"},
                                          {R"({"fast": 1})", "settings.fast", "bool"},
                                          {R"({"path": []})", "settings.path", "array"},
                                          {R"({"sizes": [1, "2"]})", "settings.sizes", "string"},
                                          {R"({"words": "one"})", "settings.words", "array"},
                                          {R"({"rate": 3})", "settings.rate", "object"},
                                          {R"({"rate": {"betas": {}}})", "settings.rate.betas", "array"},
                                          {R"({"part": {}})", "settings.part", "array"},
                                          {R"({"part": [7]})", "settings.part[0]", "object"},
                                          {R"([])", "settings", "object"},
                                          {R"(null)", "settings", "object"}}) {
    const std::string error = error_of(text);
    EXPECT_TRUE(error.starts_with(place)) << text << " -> " << error;
    EXPECT_NE(error.find(what), std::string::npos) << text << " -> " << error;
  }
  EXPECT_NE(error_of(R"({"stepz": 1})").find("'steps'"), std::string::npos) << "the nearest known name";
}

}  // namespace
}  // namespace hone
