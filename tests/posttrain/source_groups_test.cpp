#include "posttrain/source_groups.h"

#include <gtest/gtest.h>

#include <set>

#include "core/config/config.h"
#include "data/source_column.h"
#include "data/sources.h"
#include "tests/data/entries.h"
#include "tests/support/errors.h"

namespace hone {
namespace {

using test::error_of;

// A source of `count` groups of two samples, whose rows are FILE:1, FILE:2, ...
GroupSource source(const std::string& name, const std::string& file, int count) {
  const auto load = [=](const RowSource&) {
    std::vector<Group> out(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) {
      out[static_cast<size_t>(i)].task.id = concat(file, ":", i + 1);
      out[static_cast<size_t>(i)].samples.resize(2);
    }
    return out;
  };
  return {.name = name, .weight = 0, .rows = {}, .load = load};
}

std::vector<std::string> ids(const std::vector<Group>& groups) {
  std::vector<std::string> out;
  for (const Group& group : groups) out.push_back(group.task.source + "/" + group.task.id);
  return out;
}

std::set<std::string> rows(const std::vector<Group>& groups) {
  std::set<std::string> out;
  for (const Group& group : groups) out.insert(group.task.id);
  return out;
}

TEST(SourceGroups, StandSourceBySourceAndAreMarked) {
  const GroupSource both[] = {source("a", "x", 2), source("b", "y", 3)};
  const SourceGroups loaded = load_sources(both, 0, 1);
  EXPECT_EQ(ids(loaded.train), (std::vector<std::string>{"a/x:1", "a/x:2", "b/y:1", "b/y:2", "b/y:3"}));
  EXPECT_TRUE(loaded.held.empty());
  ASSERT_EQ(loaded.parts.size(), 2u);
  EXPECT_EQ(loaded.parts[1].name, "b");
  EXPECT_EQ(loaded.parts[1].count, 3);
  for (const Sample& sample : loaded.train[4].samples)
    EXPECT_EQ(test::entries(sample, columns::source), std::vector<float>{1});
}

TEST(SourceGroups, AStageWithoutSourcesIsNotMarkedAndHoldsOutAsBefore) {
  const GroupSource one[] = {source("", "x", 20)};
  const SourceGroups loaded = load_sources(one, 0.25, 5);
  std::vector<Group> rest = one[0].load({});
  const std::vector<Group> held = hold_out(rest, 0.25, 5);
  EXPECT_EQ(ids(loaded.held), ids(held));
  EXPECT_EQ(ids(loaded.train), ids(rest));
  EXPECT_FALSE(loaded.train[0].samples[0].columns.has(columns::source));
}

TEST(SourceGroups, AShareOfEachSourceIsHeldOut) {
  const GroupSource both[] = {source("a", "x", 40), source("b", "y", 20)};
  const SourceGroups loaded = load_sources(both, 0.25, 5);
  EXPECT_EQ(loaded.held.size(), 15u);
  EXPECT_EQ(loaded.parts[0].count, 30);
  EXPECT_EQ(loaded.parts[1].count, 15);
  for (const std::string& row : rows(loaded.held)) EXPECT_FALSE(rows(loaded.train).contains(row)) << row;
  EXPECT_EQ(ids(loaded.held), ids(load_sources(both, 0.25, 5).held));
  EXPECT_NE(ids(loaded.held), ids(load_sources(both, 0.25, 6).held));
}

TEST(SourceGroups, ARowThatTwoSourcesReadIsNeverTrainedOnAndHeldOut) {
  const GroupSource both[] = {source("a", "x", 40), source("b", "x", 40)};
  const SourceGroups loaded = load_sources(both, 0.25, 5);
  const std::set<std::string> train = rows(loaded.train), held = rows(loaded.held);
  EXPECT_EQ(train.size() + held.size(), 40u);
  EXPECT_GT(held.size(), 10u);  // the two sources draw differently
  for (const std::string& row : held) EXPECT_FALSE(train.contains(row)) << row;
  EXPECT_EQ(loaded.train.size() + loaded.held.size(), 80u);
  EXPECT_EQ(loaded.parts[0].count + loaded.parts[1].count, std::ssize(loaded.train));
  const GroupSource tiny[] = {source("a", "x", 2), source("b", "x", 2)};
  bool refused = false;
  for (uint64_t seed = 0; seed < 20; ++seed)
    refused = refused ||
              error_of([&] { load_sources(tiny, 0.5, seed); }).find("hold all of its rows out") != std::string::npos;
  EXPECT_TRUE(refused);
  const GroupSource single[] = {source("a", "x", 4), source("b", "y", 1)};
  EXPECT_NE(error_of([&] { load_sources(single, 0.5, 1); }).find("source b has one row"), std::string::npos);
}

TEST(SourceGroups, MetricsGetTheNamesOfTheSources) {
  const MixturePart parts[] = {{.name = "1", .count = 1}, {.name = "0", .count = 1}};
  Metrics metrics{{"loss/0", 2}, {"loss/1", 3}, {"rewards/accuracies/0", 0.5}, {"epoch", 1}};
  name_sources(metrics, parts);
  EXPECT_EQ(metrics, (Metrics{{"loss/1", 2}, {"loss/0", 3}, {"rewards/accuracies/1", 0.5}, {"epoch", 1}}));
}

// Settings with sources of SFT rows.
struct Stage {
  SftSource own;
  Sources<SftSource> sources;
  void fields(Fields& f) {
    own.fields(f);
    sources.fields(f, own, [](Fields& g, SftSource& one) { one.source_fields(g); });
  }
};
Stage read(const std::string& text) { return Config::from_text(text, "r.toml").as<Stage>(); }

TEST(Sources, DefaultToTheStagesKeys) {
  const Stage stage = read(R"(prompt = "Q: {q}"
chat = "plain"
[[source]]
files = "data/gsm8k_train.jsonl.gz"
weight = 2
[[source]]
name = "code"
files = ["a.jsonl", "b.jsonl"]
prompt = "{task}"
weight = 1
when = { column = "language", equals = "c" })");
  const std::vector<DataSource<SftSource>> all = stage.sources.all(stage.own);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].name, "gsm8k_train");
  EXPECT_EQ(all[0].key, "source[0]");
  EXPECT_EQ(all[0].weight, 2);
  EXPECT_EQ(all[0].settings.prompt, "Q: {q}");
  EXPECT_EQ(all[1].settings.prompt, "{task}");
  EXPECT_EQ(all[1].settings.sample.format.chat, "plain");
  EXPECT_EQ(all[1].settings.rows.files.size(), 2u);
  EXPECT_TRUE(all[0].settings.rows.when.empty());
  EXPECT_EQ(all[1].settings.rows.when.column, "language");
  Stage copy = stage;
  const std::string written = to_toml([&](Fields& f) { copy.fields(f); });
  Stage again = read(written);
  EXPECT_EQ(to_toml([&](Fields& f) { again.fields(f); }), written);
}

TEST(Sources, WithoutOneTheStagesKeysAreTheOnlySource) {
  const Stage stage = read("files = 'a.jsonl'");
  const std::vector<DataSource<SftSource>> all = stage.sources.all(stage.own);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].name, "");
  EXPECT_EQ(all[0].key, "");
  EXPECT_EQ(all[0].settings.rows.files, std::vector<std::string>{"a.jsonl"});
}

TEST(Sources, RefuseWhatIsAmbiguous) {
  const auto refusal = [](const std::string& text) { return error_of([&] { read(text); }); };
  EXPECT_NE(refusal("files = 'a.jsonl'\n[[source]]\nfiles = 'b.jsonl'").find("r.toml:1:9: rows come from the stage's"),
            std::string::npos);
  EXPECT_NE(refusal("[[source]]\nfiles = 'a.jsonl'\n[[source]]\nfiles = 'x/a.jsonl'").find("two sources are named 'a'"),
            std::string::npos);
  EXPECT_NE(refusal("[[source]]\nfiles = 'a.jsonl'\nweight = 1\n[[source]]\nfiles = 'b.jsonl'")
                .find("1 of 2 sources have a weight"),
            std::string::npos);
  EXPECT_NE(refusal("[[source]]\nfiles = 'a.jsonl'\nweight = -1").find("r.toml:3:10: weight must be 0 or more"),
            std::string::npos);
  EXPECT_NE(refusal("[[source]]\nfile = 'a.jsonl'").find("unknown key 'file'; did you mean 'files'"), std::string::npos)
      << refusal("[[source]]\nfile = 'a.jsonl'");
}

}  // namespace
}  // namespace hone
