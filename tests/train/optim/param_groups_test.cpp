#include "train/optim/param_groups.h"

#include <gtest/gtest.h>

#include "tests/model/tiny_model.h"
#include "tests/support/errors.h"
#include "tests/train/optim/tensors.h"

namespace hone::test {
namespace {

TEST(NamePattern, IsAGlobOrARegularExpression) {
  const std::string name = "model.layers.10.self_attn.q_proj.weight";
  for (const char* text : {"*q_proj.weight", "model.layers.1?.*", "*.q_proj", "model.layers.10.self_attn.q_proj",
                           "model.layers.[0-9]0.*", "q_proj|k_proj", "layers\\.1\\d\\.", "^model", "weight$",
                           ".*q_proj.*", "model.layers.10.self_attn.q_proj.weight"})
    EXPECT_TRUE(NamePattern(text).matches(name)) << text;
  for (const char* text : {"q_proj", "model.layers.1.*", "*.k_proj.*", "layers\\.1\\.", "^layers",
                           "model.layers.[!0-9]0.*", "model_layers*"})
    EXPECT_FALSE(NamePattern(text).matches(name)) << text;
}

TEST(NamePattern, WhatIsNoPatternIsAnError) {
  EXPECT_TRUE(says(error_of([] { NamePattern(""); }), "match is empty"));
  EXPECT_TRUE(says(error_of([] { NamePattern("(q_proj"); }), "match = '(q_proj' is no regular expression"));
}

std::vector<ParamGroup> groups_of(const std::string& toml) {
  struct Table {
    std::vector<ParamGroup> groups;
    void fields(Fields& f) { f("groups", groups, ""); }
  };
  return Config::from_text(toml, "groups.toml").as<Table>().groups;
}

TEST(ParamGroups, KeysThatCannotBeHaveTheirPlace) {
  EXPECT_TRUE(says(error_of([] { groups_of("[[groups]]\nmatch = \"a\"\nlearning_rate_factor = -1.0"); }),
                   "groups.toml:3:24: learning_rate_factor must not be negative"));
  EXPECT_TRUE(says(error_of([] { groups_of("[[groups]]\nmatch = \"(a\""); }), "groups.toml:2:"));
  EXPECT_TRUE(says(error_of([] { groups_of("[[groups]]\nlearning_rate_factor = 2.0"); }), "match is empty"));
  EXPECT_TRUE(says(error_of([] { groups_of("[[groups]]\nmatch = \"a\"\nlr = 2.0"); }), "unknown key 'lr'"));
}

TEST(ParamGroups, AGroupThatTakesNothingIsAProblemWithNearNames) {
  const std::vector<std::string> names = {"model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight",
                                          "model.norm.weight", "lm_head.weight"};
  const auto problem = [&](const std::string& toml) {
    const Problems problems;
    check_groups(groups_of(toml), names, problems, "groups");
    return error_of([&] { problems.throw_if_any(); });
  };
  EXPECT_EQ(problem("[[groups]]\nmatch = \"*embed*\"\n[[groups]]\nmatch = \"*\""), "no error");
  const std::string nothing = problem("[[groups]]\nmatch = \"*qproj*\"");
  EXPECT_TRUE(says(nothing,
                   "groups[0].match: '*qproj*' matches no trained parameter; near it are "
                   "model.layers.0.self_attn.q_proj.weight"))
      << nothing;
  EXPECT_TRUE(says(problem("[[groups]]\nmatch = \"*\"\n[[groups]]\nmatch = \"lm_head\""),
                   "groups[1].match: 'lm_head' takes no parameter: groups before it take all that it matches"));
}

// Experts have their own names, and those of files with all experts of a layer in one tensor.
TEST(ParamGroups, ExpertsAreNamedAsInFilesOfBothLayouts) {
  const std::string experts = "model.layers.0.mlp.experts.", sparse = "model.layers.0.block_sparse_moe.experts.1.";
  const std::vector<std::string> names = {experts + "0.gate_proj.weight", experts + "0.up_proj.bias",
                                          experts + "0.down_proj.weight", sparse + "w2.weight"};
  const auto taken = [&](const std::string& match) {
    std::vector<std::string> out;
    for (const std::string& name : names) {
      const Problems problems;
      check_groups(groups_of("[[groups]]\nmatch = \"" + match + "\""), std::vector{name}, problems, "groups");
      if (error_of([&] { problems.throw_if_any(); }) == "no error") out.push_back(name);
    }
    return out;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(taken("*experts.gate_up_proj"), Names{names[0]});
  EXPECT_EQ(taken("*experts.gate_up_proj_bias"), Names{names[1]});
  EXPECT_EQ(taken("*mlp.experts.down_proj"), (Names{names[2], names[3]}));
  EXPECT_EQ(taken("*experts.0.*"), (Names{names[0], names[1], names[2]}));
  EXPECT_EQ(taken("*.w2"), Names{names[3]});
  const Problems problems;
  check_groups(groups_of("[[groups]]\nmatch = \"*experts.gate_up\""), names, problems, "groups");
  const std::string nothing = error_of([&] { problems.throw_if_any(); });
  EXPECT_TRUE(says(nothing, "near it are " + experts + "gate_up_proj")) << nothing;
}

// Every optimizer: a parameter, or a part of a fused one, moves as it does alone with its group's settings.
class GroupedOptimizers : public testing::TestWithParam<std::string> {};

TEST_P(GroupedOptimizers, MoveEachTensorWithTheSettingsOfItsGroup) {
  const std::vector<ParamGroup> groups = {{.match = "k", .learning_rate_factor = 0.5, .weight_decay = 0.3},
                                          {.match = "norm", .weight_decay = 0.2},
                                          {.match = "o", .learning_rate_factor = 0}};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Tensors grouped(dtype);
    const auto fill = [](Tensors& tensors) {
      tensors.add_waves("q", {10, 7}, {{"q", 5}, {"k", 2}, {"v", 3}});  // 7 columns: borders inside of 64 elements
      tensors.add_waves("norm", {9});
      tensors.add_waves("o", {7, 5});
      tensors.add_waves("up", {6, 7});
    };
    fill(grouped);
    const auto optimizer = make_optimizer(GetParam(), "weight_decay = 0.1");
    const std::vector<ParamPart> parts = whole_parts(grouped.params());
    optimizer->attach(grouped.context(), with_groups(parts, groups));
    for (int64_t step = 1; step <= 3; ++step) grouped.step(*optimizer, step, 0.01);
    // Element `at` of `name` after steps of the whole list with other settings.
    const auto expect = [&](const char* name, size_t first, size_t last, double factor, double decay, bool vector) {
      Tensors plain(dtype);
      fill(plain);
      const auto own = make_optimizer(GetParam(), concat("weight_decay = ", decay));
      if (vector) plain.at(name).decay = true;
      own->attach(plain.context(), whole_parts(plain.params()));
      for (int64_t step = 1; step <= 3; ++step) plain.step(*own, step, 0.01 * factor);
      for (size_t i = first; i < last; ++i) {
        if (dtype == DType::bf16)
          EXPECT_EQ(grouped.at(name).value.as<bf16>()[i].bits, plain.at(name).value.as<bf16>()[i].bits) << name << i;
        else
          EXPECT_EQ(grouped.values(name)[i], plain.values(name)[i]) << name << " " << i;
      }
    };
    expect("q", 0, 35, 1, 0.1, false);
    expect("q", 35, 49, 0.5, 0.3, false);
    expect("q", 49, 70, 1, 0.1, false);
    expect("norm", 0, 9, 1, 0.2, true);
    expect("o", 0, 35, 0, 0.1, false);
    expect("up", 0, 42, 1, 0.1, false);
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, GroupedOptimizers, testing::ValuesIn(optimizers().names()),
                         [](const auto& param) { return param.param; });

// A state does not depend on groups: what was saved without them goes on with them.
TEST(ParamGroups, StatesAreLoadedByNameWithAndWithoutGroups) {
  const std::vector<ParamGroup> groups = {{.match = "k", .learning_rate_factor = 1}};
  for (const std::string& kind : optimizers().names()) {
    Tensors plain, grouped;
    for (Tensors* tensors : {&plain, &grouped}) tensors->add_waves("q", {10, 7}, {{"q", 5}, {"k", 2}, {"v", 3}});
    const auto a = make_optimizer(kind), b = make_optimizer(kind);
    a->attach(plain.context(), whole_parts(plain.params()));
    const std::vector<ParamPart> parts = whole_parts(grouped.params());
    b->attach(grouped.context(), with_groups(parts, groups));
    plain.step(*a, 1, 0.01);
    StateSection section;
    a->save_state(section);
    b->load_state(section);
    grouped.copy_from(plain);
    plain.step(*a, 2, 0.01);
    grouped.step(*b, 2, 0.01);
    EXPECT_TRUE(plain.bytes() == grouped.bytes()) << kind;
  }
}

}  // namespace
}  // namespace hone::test
