// Shared libraries as rewards: the example, and one that breaks in every way.
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "core/base/check.h"
#include "rewards/reward.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

std::string library(const std::string& name, const std::string& options = "") {
  const std::string path = (hone_binary().parent_path() / "tests" / (name + ".so")).string();
  return "{kind = 'library', path = '" + path + "'" + (options.empty() ? "" : ", options = '" + options + "'") + "}";
}

std::string error_of(const std::string& spec, const char* what = nullptr) {
  if (what) ::setenv("HONE_TEST_LIBRARY", what, 1);
  std::string out;
  try {
    make_reward(spec);
  } catch (const Error& error) {
    out = error.what();
  }
  ::unsetenv("HONE_TEST_LIBRARY");
  return out;
}

RewardScore score_of(const std::string& options, const Task& task = {}, const Completion& completion = {}) {
  return make_reward(library("broken_reward", options))->score(task, completion);
}

TEST(PluginLibrary, TheExampleScoresByCloseness) {
  const auto reward = make_reward(library("example_reward", "{\"span\": 4}"));
  Task task;
  task.answer = "12";
  const std::vector<Completion> completions{{.ids = {}, .text = "it is 11.", .finish_reason = "stop"},
                                            {.ids = {}, .text = "none", .finish_reason = "stop"},
                                            {.ids = {}, .text = "12", .finish_reason = "stop"}};
  std::vector<RewardScore> scores(3);
  reward->score_group(task, completions, scores);
  EXPECT_EQ(scores[0].score, 0.75);
  EXPECT_EQ(scores[0].note, "expected 12, got 11");
  EXPECT_EQ(scores[1].score, 0);
  EXPECT_EQ(scores[2].score, 1);
  task.answer = "twelve";
  EXPECT_TRUE(reward->score(task, completions[0]).skipped);
}

TEST(PluginLibrary, WhatIsNoLibraryOfThisVersionIsRefusedByName) {
  const auto names = [](const std::string& message, const char* word) {
    return message.find(word) != std::string::npos;
  };
  EXPECT_TRUE(names(error_of("{kind = 'library'}"), "path"));
  EXPECT_TRUE(names(error_of("{kind = 'library', path = '/nowhere/x.so'}"), "/nowhere/x.so"));
  EXPECT_TRUE(names(error_of("{kind = 'library', path = 'x.so'}"), "./x.so"));
  EXPECT_TRUE(names(error_of(library("no_reward")), "does not export hone_reward_plugin"));
  EXPECT_TRUE(names(error_of(library("broken_reward"), "speaks nothing"), "does not speak version 1"));
  EXPECT_TRUE(names(error_of(library("broken_reward"), "other version"), "it speaks version 2"));
  EXPECT_TRUE(names(error_of(library("broken_reward"), "no score"), "lacks create, score or destroy"));
  EXPECT_TRUE(names(error_of(library("broken_reward", "not JSON")), "options"));
  EXPECT_TRUE(names(error_of(library("broken_reward", "\"refuses\"")), "these options are no good"));
  EXPECT_TRUE(names(error_of(library("broken_reward", "\"nothing\"")), "failed without a message"));
  EXPECT_TRUE(names(error_of(library("broken_reward", "\"fills the error\"")), "eeee"));
  EXPECT_TRUE(names(error_of(library("example_reward", "{\"span\": -1}")), "a positive number"));
}

TEST(PluginLibrary, WhatBreaksHasFailedAndSaysWhy) {
  for (const auto& [how, why] : {std::pair{"throws", "it threw: oh dear"},
                                 {"fails", "the disk is full"},
                                 {"says nothing", "it gave no score"},
                                 {"another status", "it gave no score"},
                                 {"nan", "its score is nan"},
                                 {"infinite", "its score is inf"},
                                 {"huge", "its score is 1e+300"}}) {
    const RewardScore score = score_of("\"" + std::string(how) + "\"");
    EXPECT_TRUE(score.failed) << how;
    EXPECT_EQ(score.note, why);
  }
  const RewardScore full = score_of("\"fills the note\"");
  EXPECT_EQ(full.score, 1);
  EXPECT_EQ(full.note, std::string(255, 'n'));
}

TEST(PluginLibrary, GetsAllThereIsOfATaskAndACompletion) {
  Task task{.id = "",
            .prompt = "p\n",
            .messages = {{.role = "user", .content = "m", .extra = {}}},
            .answer = "a",
            .columns = JsonObject{{"k", 1}}};
  EXPECT_EQ(score_of("\"what it got\"", task, {.ids = {42}, .text = "c", .finish_reason = "length"}).note,
            "p |[{\"role\": \"user\", \"content\": \"m\"}]|a|{\"k\": 1}|c|length|42");
  EXPECT_EQ(score_of("\"what it got\"").note, "||||||-1");
}

TEST(PluginLibrary, OneThatWantsOneThreadHasOne) {
  const auto reward = make_reward(library("broken_reward", "\"one thread\""));
  std::atomic<int> overlaps{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int k = 0; k < 5; ++k) overlaps += reward->score({}, {}).score != 1;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(overlaps, 0);
}

}  // namespace
}  // namespace hone::test
