// stories260K's figures equal lm-evaluation-harness's, sample by sample, and so do the answers that filters extract
// from solutions of GSM8K. golden/make_lm_eval.py wrote golden/lm_eval.json.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "core/config/config.h"
#include "core/io/file.h"
#include "core/io/jsonl.h"
#include "eval/extraction.h"
#include "eval/prompts.h"
#include "eval/task.h"
#include "rewards/reward.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

// The harness's name of a figure or its standard error: "acc_stderr,none".
double golden_figure(const Json& task, const std::string& name) {
  return task.at("figures").at(name + ",none").as_double();
}

// The task of configs/tasks, or one like it with other rows or examples.
EvalTaskSpec task_of(const std::string& name) {
  if (name == "mmlu")
    return Config::from_text(R"(kind = "multiple_choice"
        files = ["${HONE_DATA}/eval/mmlu_test_570.jsonl"]
        prompt = "{question}\nA. {choices.0}\nB. {choices.1}\nC. {choices.2}\nD. {choices.3}\nAnswer:"
        choice = " {letter}"
        gold = "answer")",
                             name)
        .as<EvalTaskSpec>();
  if (name == "arc_challenge")
    return Config::from_text(R"(kind = "multiple_choice"
        files = ["${HONE_DATA}/eval/arc_challenge.jsonl"]
        prompt = "{query}\nAnswer:"
        num_fewshot = 2
        fewshot = { files = ["${HONE_DATA}/eval/arc_easy.jsonl"] })",
                             name)
        .as<EvalTaskSpec>();
  return load_eval_task(name);
}

class LmEvalTask : public ::testing::TestWithParam<const char*> {};

TEST_P(LmEvalTask, GivesTheSameFigures) {
  HONE_SHARED_OR_SKIP(data, "data");
  ::setenv("HONE_DATA", data.c_str(), 1);
  const std::string name = GetParam();
  const Json golden =
      parse_json(read_file(source_folder() / "tests/golden/lm_eval.json"), "lm_eval.json").at("tasks").at(name);
  const std::unique_ptr<Device> device = devices().at("cpu")(0);
  Context context(*device);
  const auto folder = data / "weights/stories260K";
  const auto model = load_model(context, folder);
  const Tokenizer tokenizer = Tokenizer::load(folder);
  EvalTarget on{context, *model, tokenizer, {}};
  const EvalResult result = task_of(name).evaluate(on, {.limit = golden.at("limit").as_int()});

  for (const char* metric : {"acc", "acc_norm", "perplexity", "bits_per_byte", "byte_perplexity", "word_perplexity"}) {
    if (!golden.at("figures").find(std::string(metric) + ",none")) continue;
    const Figure& figure = result.figures.at(metric);
    const double expected = golden_figure(golden, metric);
    EXPECT_NEAR(figure.value, expected, 1e-4 * std::abs(expected)) << metric;
    if (std::string(metric).starts_with("acc")) {
      EXPECT_NEAR(figure.stderr_value.value_or(0), golden_figure(golden, std::string(metric) + "_stderr"), 1e-12)
          << metric;
    }
  }
  const JsonArray& rows = golden.at("logp").as_array();
  ASSERT_EQ(rows.size(), result.samples.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const Json sample = result.samples[i].to_json();
    const JsonArray& expected = rows[i].as_array();
    const Json* logp = sample.find("logp");
    for (size_t c = 0; c < expected.size(); ++c) {
      const double found = !logp              ? -sample.at("metrics").at("nats_per_token").as_double()
                           : logp->is_array() ? logp->as_array().at(c).as_double()
                                              : logp->as_double();
      EXPECT_NEAR(found, expected[c].as_double(), 1e-4 * std::abs(expected[c].as_double()))
          << name << " row " << i << " choice " << c;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(LmEval, LmEvalTask,
                         ::testing::Values("arc_easy", "arc_challenge", "hellaswag", "mmlu", "winogrande", "lambada",
                                           "perplexity"),
                         [](const auto& task) { return std::string(task.param); });

// The harness's task mbpp (version 1.0): rows 11 to 510, first_n of three examples, target_delimiter "",
// fewshot_delimiter a blank line.
TEST(LmEval, PromptsForProgramsInTheSameWords) {
  HONE_SHARED_OR_SKIP(data, "data");
  ::setenv("HONE_DATA", data.c_str(), 1);
  PromptSource source;
  std::string kind, answer;
  SamplingParams sampling;
  RewardSpec reward;
  Config::from_file(source_folder() / "configs/tasks/mbpp.toml").read([&](Fields& f) {
    source.fields(f);
    f("kind", kind, ""), f("answer", answer, ""), f("sampling", sampling, ""), f("reward", reward, "");
  });
  const auto no_target = [](const Json&, const std::string&) -> std::string {
    throw Error("the task's examples have a target");
  };
  const std::vector<EvalExample> docs = source.load({}, no_target),
                                 bare = source.load({.limit = 1, .num_fewshot = 0}, no_target);
  ASSERT_EQ(docs.size(), 500u);
  EXPECT_EQ(docs.front().row.at("task_id").as_int(), 11);
  EXPECT_EQ(docs.back().row.at("task_id").as_int(), 510);
  const std::string examples =
      "You are an expert Python programmer, and here is your task: Write a function to find the similar elements from "
      "the given two tuple lists. "
      "Your "
      "code should pass these tests:\n\n"
      "assert similar_elements((3, 4, 5, 6),(5, 7, 4, 10)) == (4, 5)\n"
      "assert similar_elements((1, 2, 3, 4),(5, 4, 3, 7)) == (3, 4)\n"
      "assert similar_elements((11, 12, 14, 13),(17, 15, 14, 13)) == (13, 14)\n"
      "[BEGIN]\n"
      "def similar_elements(test_tup1, test_tup2):\r\n  res = tuple(set(test_tup1) & set(test_tup2))\r\n  return (res) "
      "\n"
      "[DONE]\n\n"
      "You are an expert Python programmer, and here is your task: Write a python function to identify non-prime "
      "numbers. Your code should pass "
      "these "
      "tests:\n\n"
      "assert is_not_prime(2) == False\nassert is_not_prime(10) == True\nassert is_not_prime(35) == True\n"
      "[BEGIN]\n"
      "import math\r\ndef is_not_prime(n):\r\n    result = False\r\n    for i in range(2,int(math.sqrt(n)) + 1):\r\n   "
      "     if n % i == 0:\r\n"
      "            result = True\r\n    return result\n"
      "[DONE]\n\n"
      "You are an expert Python programmer, and here is your task: Write a function to find the largest integers from "
      "a given list of numbers using "
      "heap queue algorithm. Your code should pass these tests:\n\n"
      "assert heap_queue_largest( [25, 35, 22, 85, 14, 65, 75, 22, 58],3)==[85, 75, 65] \n"
      "assert heap_queue_largest( [25, 35, 22, 85, 14, 65, 75, 22, 58],2)==[85, 75] \n"
      "assert heap_queue_largest( [25, 35, 22, 85, 14, 65, 75, 22, 58],5)==[85, 75, 65, 58, 35]\n"
      "[BEGIN]\n"
      "import heapq as hq\r\ndef heap_queue_largest(nums,n):\r\n  largest_nums = hq.nlargest(n, nums)\r\n  return "
      "largest_nums\n"
      "[DONE]\n\n";
  const std::string question =
      "You are an expert Python programmer, and here is your task: Write a python function to remove first and last "
      "occurrence of a given character "
      "from the string. Your code should pass these tests:\n\n"
      "assert remove_Occ(\"hello\",\"l\") == \"heo\"\nassert remove_Occ(\"abcda\",\"a\") == \"bcd\"\nassert "
      "remove_Occ(\"PHP\",\"P\") == \"H\"\n"
      "[BEGIN]\n";
  EXPECT_EQ(PromptRenderer(source, {}).task(docs.front()).prompt, examples + question);
  EXPECT_EQ(PromptRenderer(source, {}).task(bare.front()).prompt, question);
  EXPECT_EQ(sampling.stop, std::vector<std::string>{"[DONE]"});
}

TEST(LmEval, ReadsTheSameAnswersInSolutionsOfGsm8k) {
  HONE_SHARED_OR_SKIP(data, "data");
  const Json golden = parse_json(read_file(source_folder() / "tests/golden/lm_eval.json"), "lm_eval.json");
  std::vector<Json> solutions, tests;
  read_jsonl(data / "pref/gsm8k_test_model_solutions.jsonl.gz",
             [&](const Json& row, int64_t) { solutions.push_back(row); });
  read_jsonl(data / "eval/gsm8k_test.jsonl", [&](const Json& row, int64_t) { tests.push_back(row); });
  const auto filter = [](const std::string& toml) {
    AnswerFilter out = Config::from_text(toml, "filter.toml").as<AnswerFilter>();
    out.prepare();
    return out;
  };
  const AnswerFilter strict = filter(R"(pattern = '#### (\-?[0-9\.\,]+)')"),
                     flexible = filter(R"(pattern = '(-?[$0-9.,]{2,})|(-?[0-9]+)'
    group_select = -1)");
  ExactMatch match = Config::from_text(R"(ignore_case = true
    regexes_to_ignore = [',', '\$', '(?s).*#### ', '\.$'])",
                                       "match.toml")
                         .as<ExactMatch>();
  match.prepare();
  ASSERT_GT(golden.at("gsm8k").as_array().size(), 500u);
  for (const Json& entry : golden.at("gsm8k").as_array()) {
    const auto row = static_cast<size_t>(entry.at("row").as_int()),
               place = static_cast<size_t>(entry.at("solution").as_int());
    std::string text = solutions.at(row).at("solutions").as_array().at(place).at("solution").as_string();
    for (size_t at = 0; place % 2 == 1 && (at = text.find("\nA: ", at)) != std::string::npos; at += 6)
      text.replace(at, 4, "\n#### ");
    for (const auto& [name, reader] :
         {std::pair<std::string, const AnswerFilter&>{"strict-match", strict}, {"flexible-extract", flexible}}) {
      const JsonArray& expected = entry.at(name).as_array();
      const std::string answer = reader.extract(text);
      EXPECT_EQ(answer, expected[0].as_string()) << name << "\n" << text;
      EXPECT_EQ(match(answer, tests.at(row).at("answer").as_string()), expected[1].as_int() == 1) << name << "\n"
                                                                                                  << text;
    }
  }
}

}  // namespace
}  // namespace hone::test
