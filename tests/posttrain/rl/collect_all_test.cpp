#include <gtest/gtest.h>

#include "posttrain/rl/collector.h"
#include "tests/model/characters.h"

namespace hone::test {
namespace {

class Length : public Reward {
 public:
  RewardScore score(const Task&, const Completion& completion) const override {
    return {.score = static_cast<double>(completion.ids.size())};
  }
};

class CollectAll : public ::testing::Test {
 protected:
  CollectAll() {
    config.num_generations = 2;
    config.sampling.max_tokens = 3;
    config.reward.reward.set("", std::make_shared<Length>());
    for (int i = 0; i < 300; ++i)
      tasks.push_back(
          {.id = std::to_string(i), .prompt = std::to_string(i % 7), .messages = {}, .answer = {}, .columns = {}});
  }
  // The completions, task by task.
  std::vector<std::vector<std::string>> completions(std::span<const Task> asked, std::span<const uint64_t> ids) {
    LocalBackend sampler(context, *model, tokenizer, {});
    Collector actor(sampler, tokenizer, config);
    std::vector<std::vector<std::string>> out;
    collect_all(actor, asked, ids, "test", [&](size_t i, const Group& group) {
      EXPECT_EQ(i, out.size());
      EXPECT_EQ(group.task.id, asked[i].id);
      for (const Sample& sample : group.samples)
        (out.size() == i ? out.emplace_back() : out.back()).push_back(sample.completion.text);
    });
    return out;
  }
  TemporaryFolder folder;
  Tokenizer tokenizer = character_tokenizer(folder.path());
  std::unique_ptr<Device> device = cpu_device();
  Context context{*device};
  std::unique_ptr<Model> model = character_model(context, tokenizer);
  CollectorConfig config;
  std::vector<Task> tasks;
};

TEST_F(CollectAll, EachTaskComesOnceInOrderAndIsDrawnByItsNumberAlone) {
  const auto all = completions(tasks, {});
  ASSERT_EQ(all.size(), 300u);
  std::vector<uint64_t> ids;
  for (uint64_t i = 290; i < 300; ++i) ids.push_back(i);
  const auto last = completions(std::span<const Task>(tasks).subspan(290), ids);
  EXPECT_TRUE(std::equal(last.begin(), last.end(), all.begin() + 290, all.end()));
  ids[0] = 7;
  EXPECT_NE(completions(std::span<const Task>(tasks).subspan(290), ids), last);
  EXPECT_THROW(completions(tasks, ids), Error);
  EXPECT_TRUE(completions({}, {}).empty());
}

}  // namespace
}  // namespace hone::test
