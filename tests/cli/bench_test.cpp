// hone bench: JSON rows for scripts, and the comparison with other programs.
#include <map>

#include "tests/cli/command_case.h"

namespace hone::test {
namespace {

class BenchCommandTest : public CommandCase {};

TEST_F(BenchCommandTest, BenchOfRewardsReportsScoresPerSecond) {
  const Finished bench = run_hone({"bench", "rewards", "--filter", "math gsm8k", "--seconds", "0.01", "--json"});
  EXPECT_EQ(bench.code, 0) << bench.err;
  std::istringstream lines(bench.out);
  int rows = 0;
  for (std::string line; std::getline(lines, line); ++rows)
    EXPECT_GT(parse_json(line, "row").at("judgements_per_second").as_double(), 0) << line;
  EXPECT_EQ(rows, 2);
  expect_error({"bench", "rewards", "--filter", "nothing"}, 1, {"nothing"});
}

TEST_F(BenchCommandTest, BenchOfExchangesComparesThemWithPlainCopies) {
  const Finished bench = run_hone({"bench", "comm", "--device", "cpu", "--ranks", "3", "--seconds", "0.001", "--json"});
  ASSERT_EQ(bench.code, 0) << bench.err;
  std::map<std::string, int> found;
  for (const Json& row : rows(bench.out)) {
    ++found[row.at("what").as_string()];
    EXPECT_GT(row.at("bytes").as_int(), 0);
    EXPECT_GT(row.at("seconds").as_double(), 0);
    EXPECT_GT(row.at("bytes_per_second").as_double(), 0);
    if (row.at("what").as_string() == "copy") {
      EXPECT_EQ(row.at("share").as_double(), 1);
    }
  }
  EXPECT_EQ(found,
            (std::map<std::string, int>{{"copy", 3}, {"all_gather", 3}, {"all_to_all", 3}, {"send_receive", 3}}));
  expect_error({"bench", "comm", "--device", "cpu", "--ranks", "1"}, 2, {"--ranks is 1", "[2, 64]"});
}

TEST_F(BenchCommandTest, BenchOfTrainingDividesTheBatchBetweenRanks) {
  const std::vector<std::string> train{
      "bench", "train",    "--shape", "quickstart",           "--batch", "4",     "--tokens", "16", "--repeats",
      "1",     "--device", "cpu",     "--micro-batch-tokens", "32",      "--json"};
  const Finished one = run_hone(train);
  ASSERT_EQ(one.code, 0) << one.err;
  const Json a = rows(one.out).at(0);
  EXPECT_EQ(a.at("ranks").as_int(), 1);
  for (const int zero : {1, 2, 3}) {
    std::vector<std::string> two = train;
    two.insert(two.end(), {"--ranks", "2", "--zero", std::to_string(zero)});
    const Finished ranks = run_hone(two);
    ASSERT_EQ(ranks.code, 0) << ranks.err;
    const Json b = rows(ranks.out).at(0);
    EXPECT_EQ(b.at("ranks").as_int(), 2);
    EXPECT_EQ(b.at("zero").as_int(), zero);
    EXPECT_NEAR(a.at("loss").as_double(), b.at("loss").as_double(), 1e-4);  // one rank cuts the step otherwise
    EXPECT_GT(b.at("time/exchange").as_double(), 0);
  }
  expect_error({"bench", "train", "--ranks", "2", "--zero", "4"}, 2, {"--zero is 4", "1, 2 or 3"});
  expect_error({"bench", "decode", "--ranks", "2"}, 2, {"--ranks is for comm and train"});
}

TEST_F(BenchCommandTest, BenchOfRolloutsComparesWithOtherPrograms) {
  const std::string peers = write(
      "peers.jsonl", R"({"bench": "hf_generate", "model": "quickstart", "B": 4, "prompt": 8, "new": 5, "tok_s": 0.5})"
                     "\n"
                     R"({"bench": "hf_generate", "model": "quickstart", "B": 5, "prompt": 8, "new": 5, "tok_s": 0.5})"
                     "\n"
                     R"({"bench": "hf_generate_batch", "error": "no such thing"})"
                     "\n"
                     R"({"bench": "grpo_step_hf", "P": 2, "G": 2, "prompt": 8, "new": 5, "completion_tok_s": 1})"
                     "\n");
  const std::vector<std::string> size{"--shape",         "quickstart", "--prompts",    "2", "--num-generations", "2",
                                      "--prompt-tokens", "8",          "--new-tokens", "5", "--repeats",         "1",
                                      "--device",        "cpu",        "--json"};
  const auto bench = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "bench");
    arguments.insert(arguments.end(), size.begin(), size.end());
    return run_hone(arguments);
  };
  const Finished rollout = bench({"rollout", "--peer", peers, "--engine", "kv_block_size=4"});
  ASSERT_EQ(rollout.code, 0) << rollout.err;
  const Json row = rows(rollout.out).at(0);
  EXPECT_EQ(row.at("B").as_int(), 4);
  EXPECT_NEAR(
      row.at("prefill_share").as_double() + row.at("decode_share").as_double() + row.at("host_share").as_double(), 1,
      0.02);
  EXPECT_GT(row.at("decode_roofline").as_double(), 0);
  // 851968 weights of the layers and 36864 of lm_head; 1024 values of a token's K and V, and as many multiply-adds per
  // query and key.
  const double flops = row.at("limit_flops_per_second").as_double(),
               bandwidth = row.at("limit_bytes_per_second").as_double();
  const auto part = [&](double numbers, double products) {
    return std::max(4 * numbers / bandwidth, 2 * products / flops);
  };
  double least = part(851968, 851968. * 2 * 8) + part(36864, 36864. * 2) + part(1024. * 2 * 8, 1024. * 2 * 8 * 4.5);
  for (const double keys : {9., 10., 11., 12.})
    least += part(888832, 888832. * 4) + part(1024 * 4 * keys, 1024 * 4 * keys);
  EXPECT_NEAR(row.at("roofline_s").as_double(), least, 1e-9 * least);
  EXPECT_NEAR(row.at("roofline").as_double(), least / row.at("seconds").as_double(), 1e-6);
  ASSERT_EQ(row.at("peers").as_array().size(), 1u);
  EXPECT_DOUBLE_EQ(row.at("peers").as_array()[0].at("ratio").as_double(), row.at("tok_s").as_double() / 0.5);

  const Finished grpo = bench({"grpo"});
  ASSERT_EQ(grpo.code, 0) << grpo.err;
  const Json step = rows(grpo.out).at(0);
  EXPECT_NEAR(step.at("completion_tok_s").as_double(),
              20 / (step.at("gen_s").as_double() + step.at("train_s").as_double()), 1e-6);
  EXPECT_EQ(step.at("logp_difference_max").as_double(), 0);  // on-policy, exact

  // The measured step is of another model: rows without a model are of qwen2.5-0.5b.
  EXPECT_NE(bench({"grpo", "--peer", peers}).err.find("no row of grpo_step_hf"), std::string::npos);
}

// The roofline of a mixture counts the experts that the tokens of a pass choose.
TEST_F(BenchCommandTest, BenchOfDecodingCountsTheBytesOfTheChosenExperts) {
  const std::string config = write("mixture.json", R"({"model_type": "qwen3_moe", "vocab_size": 100, "hidden_size": 32,
    "intermediate_size": 64, "moe_intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 512, "num_experts": 16,
    "num_experts_per_tok": 2, "norm_topk_prob": true, "tie_word_embeddings": false})");
  double before = 0;
  for (const int batch : {1, 6}) {
    const Finished decode = run_hone({"bench", "decode", "--shape", config, "--batch", std::to_string(batch),
                                      "--tokens", "8", "--device", "cpu", "--json"});
    ASSERT_EQ(decode.code, 0) << decode.err;
    const Json row = rows(decode.out).at(0);
    const double share = row.at("experts_read").as_double();
    EXPECT_GT(share, before);
    EXPECT_LE(share, batch * 2 / 16.0);
    EXPECT_GE(share, 2 / 16.0);
    before = share;
    // Two layers: attention and router; experts. Then the lm_head, and the keys and values of 24 tokens.
    const double dense = 2 * (32 * (32 + 2 * 32) + 32 * 32 + 16 * 32), experts = 2 * 16 * 3 * 32 * 16, head = 100 * 32,
                 keys = 2 * 2 * 2 * 16 * 24. * batch, bytes = 4 * (dense + experts * share + head + keys);
    EXPECT_NEAR(row.at("bytes_per_second").as_double() * row.at("seconds").as_double(), bytes, 1e-6 * bytes);
  }
}

}  // namespace
}  // namespace hone::test
