#include "posttrain/rl/group_state.h"

#include <gtest/gtest.h>

#include <limits>

#include "core/io/json.h"
#include "tests/data/entries.h"

namespace hone {
namespace {

using test::entries;

Group example() {
  Group group;
  group.task.id = "rows:7";
  group.task.rendered = "<user>2 + 2\n";
  Sample& sample = group.samples.emplace_back();
  sample.tokens = {5, 6, 7, 8};
  sample.columns.set(columns::mask, {0, 0, 1, 1});
  sample.columns.set(columns::behavior_logp, {0, 0, -0.1f, -1e-30f});
  sample.versions = {3, 3, 3, 4};
  sample.weight_version = 3;
  sample.completion = {{7, 8}, "four", "stop"};
  sample.reward = 1.0 / 3;
  sample.reward_parts = {{"number", 1.0 / 3}};
  Sample& failed = group.samples.emplace_back();
  failed.tokens = {5, 6};
  failed.columns.set(columns::mask, {0, 0});
  failed.columns.set(columns::behavior_logp, {0, 0});
  failed.scored = false;
  failed.completion.finish_reason = "the prompt is too long";
  failed.counts = {{"rewards/number/failed", 1}};
  return group;
}

class SavedGroups : public ::testing::Test {
 protected:
  SavedGroups() {
    task.id = "rows:7", task.answer = "4";
    for (int i = 0; i < 2; ++i) saved.push_back(writer.add(example()));
    writer.save(section);
  }
  GroupStateReader reader() const {
    return GroupStateReader(section, [this](const std::string& id) -> const Task& {
      HONE_CHECK(id == task.id, "no task ", id);
      return task;
    });
  }
  Task task;
  GroupStateWriter writer;
  StateSection section;
  std::vector<Json> saved;
};

TEST_F(SavedGroups, AreWhatTheyWere) {
  GroupStateReader all = reader();
  for (const Json& of : saved) {
    const Group expected = example(), group = all.next(parse_json(of.dump(), "saved"));
    EXPECT_EQ(group.task.answer, "4");
    EXPECT_EQ(group.task.rendered, expected.task.rendered);
    ASSERT_EQ(group.samples.size(), 2u);
    for (size_t i = 0; i < 2; ++i) {
      const Sample &a = expected.samples[i], &b = group.samples[i];
      EXPECT_EQ(a.tokens, b.tokens);
      EXPECT_EQ(entries(a, columns::mask), entries(b, columns::mask));
      EXPECT_EQ(entries(a, columns::behavior_logp), entries(b, columns::behavior_logp));
      EXPECT_EQ(a.versions, b.versions);
      EXPECT_EQ(a.weight_version, b.weight_version);
      EXPECT_EQ(a.completion.ids, b.completion.ids);
      EXPECT_EQ(a.completion.text, b.completion.text);
      EXPECT_EQ(a.completion.finish_reason, b.completion.finish_reason);
      EXPECT_EQ(a.scored, b.scored);
      EXPECT_EQ(a.reward, b.reward);
      EXPECT_EQ(a.reward_parts, b.reward_parts);
      EXPECT_EQ(a.counts, b.counts);
    }
  }
}

TEST_F(SavedGroups, WhatDoesNotFitIsRefused) {
  const auto refuses = [&](const char* member, Json value, int groups = 1) {
    Json of = saved[0];
    JsonArray samples = of.at("samples").as_array();
    samples[0].set(member, std::move(value));
    of.set("samples", samples);
    GroupStateReader all = reader();
    for (int i = 1; i < groups; ++i) all.next(saved[0]);
    EXPECT_THROW(all.next(of), Error) << member;
  };
  refuses("tokens", -1);
  refuses("tokens", std::numeric_limits<int64_t>::max());
  refuses("tokens", 7, 2);  // past the end of the columns
  refuses("reply", 5);
  refuses("reward", "much");
  Json unknown = saved[0];
  unknown.set("task", "rows:8");
  EXPECT_THROW(reader().next(unknown), Error);
  section.tensors.pop_back();
  EXPECT_THROW(reader().next(saved[0]), Error);
}

}  // namespace
}  // namespace hone
