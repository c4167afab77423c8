#include "core/config/config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

#include "tests/core/config/sample_settings.h"

namespace hone {
namespace {

using test::Inner;
using test::Recipe;
using test::Stage;

Recipe read(std::string_view text, std::vector<std::string> overrides = {}) {
  return Config::from_text(text, "r.toml", overrides).as<Recipe>();
}

std::string error_of(std::string_view text, std::vector<std::string> overrides = {}) {
  try {
    read(text, std::move(overrides));
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

constexpr std::string_view kText = R"(
steps = 20
fast = true
sizes = [1, 2]
words = ["a", "b"]
[inner]
rate = 2          # an integer is a number too
[[stage]]
name = "sft"
[[stage]]
name = "grpo"
inner.rate = 0.25
)";

struct Step {
  std::string kind, objective;
  int64_t steps = 0;
  void fields(Fields& f) { f("kind", kind, ""), f("objective", objective, ""), f("steps", steps, ""); }
};
struct Steps {
  std::vector<Step> stage;
  void fields(Fields& f) { f("stage", stage, ""); }
};

TEST(Config, AnOverrideNamesAnUnnamedElementByItsObjectiveOrKind) {
  const std::vector<std::string> overrides{"stage.grpo.steps=7", "stage.sft.steps=3"};
  const Steps read =
      Config::from_text("[[stage]]\nkind = 'sft'\n[[stage]]\nkind = 'rl'\nobjective = 'grpo'\n", "test", overrides)
          .as<Steps>();
  EXPECT_EQ(read.stage[0].steps, 3);
  EXPECT_EQ(read.stage[1].steps, 7);
}

TEST(Config, ReadsNestedTypedValues) {
  const Recipe recipe = read(kText);
  EXPECT_EQ(recipe.steps, 20);
  EXPECT_TRUE(recipe.fast);
  EXPECT_EQ(recipe.sizes, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(recipe.inner.rate, 2);
  ASSERT_EQ(recipe.stage.size(), 2u);
  EXPECT_EQ(recipe.stage[1].name, "grpo");
  EXPECT_EQ(recipe.stage[1].inner.rate, 0.25);
  EXPECT_EQ(recipe.stage[0].inner.betas, (std::vector<double>{0.9, 0.95}));
}

TEST(Config, MisspeltKeysAreNamedWithTheirPlace) {
  EXPECT_EQ(
      error_of("steps = 1\nstepps = 2\n"),
      "r.toml:2:1: unknown key 'stepps'; did you mean 'steps'?; known: fast, inner, path, sizes, stage, steps, words");
  EXPECT_NE(error_of("[inner]\n  rat = 1\n").find("r.toml:2:3: unknown key 'rat'; did you mean 'rate'?"),
            std::string::npos);
  EXPECT_NE(error_of("[[stage]]\nname='a'\n[[stage]]\nnam='b'").find("r.toml:4:1: unknown key 'nam'"),
            std::string::npos);
}

TEST(Config, WrongTypesAreNamedWithTheirPlace) {
  EXPECT_EQ(error_of("steps = 1.5"), "r.toml:1:9: 'steps' should be an integer, it is a number");
  EXPECT_EQ(error_of("fast = 1"), "r.toml:1:8: 'fast' should be a boolean, it is an integer");
  EXPECT_EQ(error_of("path = 1979-05-27"), "r.toml:1:8: 'path' should be a string, it is a date or time");
  EXPECT_EQ(error_of("sizes = [1,\n 'x']"), "r.toml:2:2: 'sizes' should be an integer, it is a string");
  EXPECT_EQ(error_of("inner = 3"), "r.toml:1:9: 'inner' should be a table, it is an integer");
  EXPECT_EQ(error_of("[stage]\nname = 'x'"),
            "r.toml:1:1: 'stage' should be an array of tables ([[stage]]), it is a table");
  EXPECT_EQ(error_of("\n[inner]\nrate = 0"), "r.toml:3:8: rate must be positive");
  EXPECT_NE(error_of("steps = = 1").find("r.toml:1:9: "), std::string::npos) << error_of("steps = = 1");
}

// As a path it would end there: another folder would be meant than the one that the recipe names.
TEST(Config, AZeroCharacterIsNoText) {
  EXPECT_EQ(error_of("path = \"a\\u0000b\""),
            "r.toml:1:8: 'path' has a zero character: no file name and no text of a recipe may");
}

TEST(Config, ARequiredKeyThatIsMisspeltIsCalledSo) {
  struct Needy {
    std::string model;
    void fields(Fields& f) {
      f("model", model, "the folder");
      f.require("model", !model.empty(), "model must be given");
    }
  };
  const auto error = [](std::string_view text) {
    try {
      Config::from_text(text, "r.toml").as<Needy>();
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_NE(error("modell = 'x'").find("unknown key 'modell'; did you mean 'model'?"), std::string::npos);
  EXPECT_NE(error("").find("model must be given"), std::string::npos);
}

TEST(Config, OverridesReachEverything) {
  const Recipe recipe = read(kText, {"steps=99", "inner.rate=1e-3", "stage.grpo.inner.rate=3", "stage.0.name=first",
                                     "path=some words", "sizes=[7]", "words=[\"x\"]", "fast=false"});
  EXPECT_EQ(recipe.steps, 99);
  EXPECT_EQ(recipe.inner.rate, 1e-3);
  EXPECT_EQ(recipe.stage[1].inner.rate, 3);
  EXPECT_EQ(recipe.stage[0].name, "first");
  EXPECT_EQ(recipe.path, "some words");
  EXPECT_EQ(recipe.sizes, (std::vector<int64_t>{7}));
  EXPECT_EQ(recipe.words, (std::vector<std::string>{"x"}));
  EXPECT_FALSE(recipe.fast);
  EXPECT_EQ(read("", {"inner.betas=[1, 2]"}).inner.betas, (std::vector<double>{1, 2}));
}

TEST(Config, OverrideErrorsNameTheOverride) {
  EXPECT_NE(error_of(kText, {"stepz=1"}).find("override 'stepz=1': unknown key 'stepz'; did you mean 'steps'?"),
            std::string::npos)
      << error_of(kText, {"stepz=1"});
  EXPECT_EQ(error_of(kText, {"steps=many"}), "override 'steps=many': 'steps' should be an integer, it is a string");
  EXPECT_NE(
      error_of(kText, {"stage.grp.name=x"}).find("no element is named 'grp'; did you mean 'grpo'?; known: sft, grpo"),
      std::string::npos);
  EXPECT_NE(error_of(kText, {"stage.7.name=x"}).find("index 7 of 2"), std::string::npos);
  EXPECT_NE(error_of(kText, {"steps"}).find("expected key=value"), std::string::npos);
  EXPECT_NE(error_of(kText, {"sizes=[1,"}).find("override 'sizes=[1,': "), std::string::npos);
  EXPECT_NE(error_of(kText, {"steps.x=1"}).find("override 'steps.x=1': "), std::string::npos);
  EXPECT_NE(error_of(kText, {"inner.oops.x=1"}).find("override 'inner.oops.x=1': unknown key 'oops'"),
            std::string::npos)
      << error_of(kText, {"inner.oops.x=1"});
}

TEST(Config, StringsHaveVariablesExpanded) {
  ::setenv("HONE_TEST_PLACE", "/data", 1);
  EXPECT_EQ(read("path = '${HONE_TEST_PLACE}/x'").path, "/data/x");
  EXPECT_NE(error_of("path = '${HONE_TEST_UNSET}/x'").find("r.toml:1:8: 'path': "), std::string::npos);
}

TEST(Config, WithTheDocumentStringsAreWrittenAsTheyStandThere) {
  ::setenv("HONE_TEST_PLACE", "/data", 1);
  const Config document = Config::from_text(
      "path = '${HONE_TEST_PLACE}/x'\nwords = ['a', 'b ${HONE_TEST_PLACE}']\n[[stage]]\nname = 's'\n"
      "[[stage]]\nname = '${HONE_TEST_PLACE}'\n",
      "r.toml");
  Recipe recipe = document.as<Recipe>();
  EXPECT_EQ(recipe.words[1], "b /data");
  const auto fields = [&](Fields& f) { recipe.fields(f); };
  std::string text = to_toml(fields, &document);
  EXPECT_EQ(text.find("/data"), std::string::npos) << text;
  EXPECT_EQ(read(text), recipe) << text;
  EXPECT_EQ(to_json(fields, &document).at("stage").as_array()[1].at("name").as_string(), "${HONE_TEST_PLACE}");
  EXPECT_NE(to_toml(fields).find("/data/x"), std::string::npos);
  recipe.path = "changed";
  EXPECT_NE(to_toml(fields, &document).find("path = \"changed\""), std::string::npos);
  const Config one = Config::from_text("words = '${HONE_TEST_PLACE}'", "r.toml");
  recipe = one.as<Recipe>();
  EXPECT_NE(to_toml(fields, &one).find("words = [\"${HONE_TEST_PLACE}\"]"), std::string::npos);
}

TEST(Config, PlacesOfKeysAndTexts) {
  const std::vector<std::string> overrides{"stage.0.name=x"};
  const Config document = Config::from_text(kText, "r.toml", overrides);
  EXPECT_EQ(document.place_of("steps"), "r.toml:2:9");
  EXPECT_EQ(document.place_of("stage[0].name"), "override 'stage.0.name=x'");
  EXPECT_EQ(document.place_of("stage[0].inner.betas"), "r.toml:8:1");
  EXPECT_EQ(document.place_of("nothing.at.all"), "r.toml");
  EXPECT_EQ(document.place_of_text("stage[0]", "x"), "override 'stage.0.name=x'");
  EXPECT_EQ(document.place_of_text("stage[1]", "x"), std::nullopt);
  EXPECT_EQ(document.place_of_text("stage[7]", "x"), std::nullopt);
}

TEST(Config, KnowsWhichKeysTheDocumentHas) {
  const std::vector<std::string> overrides{"inner.rate=2", "stage.0.name=x"};
  const Config document = Config::from_text(kText, "r.toml", overrides);
  for (const char* key : {"steps", "inner.rate", "stage", "stage[0]", "stage[0].name"})
    EXPECT_TRUE(document.has(key)) << key;
  for (const char* key : {"stepz", "inner.nothing", "stage[0].nothing", "stage[99].name"})
    EXPECT_FALSE(document.has(key)) << key;
  const std::vector<std::string> more{"stage.0.name=y"};
  const Config changed = document.with(more);
  EXPECT_EQ(changed.place_of("stage[0].name"), "override 'stage.0.name=y'");
  EXPECT_EQ(changed.place_of("inner.rate"), "override 'inner.rate=2'");
  EXPECT_EQ(changed.place_of("steps"), document.place_of("steps"));
  EXPECT_EQ(document.place_of("stage[0].name"), "override 'stage.0.name=x'");
}

TEST(Config, TheResolvedRecipeReadsBackTheSame) {
  Recipe recipe = read(kText);
  recipe.path = "quote \" back \\ line \n del \x7f é";
  recipe.inner.rate = 0.1;
  recipe.inner.betas = {1, 1e-30, std::numeric_limits<double>::infinity(), -0.0, 1e22};
  const std::string text = to_toml([&](Fields& f) { recipe.fields(f); });
  EXPECT_EQ(read(text), recipe) << text;
  EXPECT_TRUE(std::signbit(read(text).inner.betas[3]));
  recipe.stage.clear();
  EXPECT_EQ(read(to_toml([&](Fields& f) { recipe.fields(f); })), recipe);
}

TEST(Config, JsonHasTheSameShape) {
  Recipe recipe = read(kText);
  const Json json = to_json([&](Fields& f) { recipe.fields(f); });
  EXPECT_EQ(json.at("steps").as_int(), 20);
  EXPECT_EQ(json.at("stage").as_array()[1].at("inner").at("rate").as_double(), 0.25);
}

TEST(Config, EveryKeyIsDocumented) {
  Recipe recipe;
  const std::string page = document_fields("Recipe", [&](Fields& f) { recipe.fields(f); });
  EXPECT_NE(page.find("| `steps` | integer | `10` | how many \\| how long |"), std::string::npos) << page;
  EXPECT_NE(page.find("| `stage[].inner.rate` | number | `0.5` | how fast |"), std::string::npos) << page;
  EXPECT_TRUE(recipe.stage.empty());
}

}  // namespace
}  // namespace hone
