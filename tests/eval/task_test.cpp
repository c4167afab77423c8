// Evaluation: every task in configs/tasks reads, and runs on the data it names where that is there; each kind counts
// what it says it counts.
#include "eval/task.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>

#include "core/config/config.h"
#include "model/token_logprobs.h"
#include "tests/support/errors.h"
#include "tests/support/guards.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

constexpr const char* characters = R"({"char_ords": [97, 98, 99, 32, 46], "model_max_length": 64})";
constexpr const char* shape =
    R"({"model_type": "llama", "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
  "num_key_value_heads": 1, "head_dim": 8, "vocab_size": 9, "max_position_embeddings": 12, "rms_norm_eps": 1e-6, "initializer_range": 0.5})";

// A random model of twelve positions over the characters "abc .".
class EvalTest : public ::testing::Test {
 protected:
  EvalTest() {
    std::ofstream(folder.path() / "tokenizer_config.json") << characters;
    tokenizer.emplace(Tokenizer::load(folder.path()));
    model = make_model(parse_json(shape, "config.json"), "config.json");
    model->allocate(context, DType::f32, false);
    model->initialize(context, 7);
  }
  EvalResult run(const std::string& task, const std::string& rows, const EvalOptions& options = {}) {
    std::ofstream(folder.path() / "rows.jsonl") << rows;
    EvalTarget on{context, *model, *tokenizer, engine};
    EvalResult out =
        Config::from_text("files = ['" + (folder.path() / "rows.jsonl").string() + "']\n" + task, "task.toml")
            .as<EvalTaskSpec>()
            .evaluate(on, options);
    records.clear();
    for (const EvalSample& sample : out.samples) records.push_back(sample.to_json());
    return out;
  }
  // The log-prob of tail after head, each encoded alone; after the EOS token if head is empty.
  double logp(const std::string& head, const std::string& tail) {
    std::vector<int32_t> ids = tokenizer->encode_document(head);
    if (ids.empty()) ids.push_back(tokenizer->eos().value());
    const size_t given = ids.size();
    for (const int32_t id : tokenizer->encode(tail)) ids.push_back(id);
    double sum = 0;
    const std::vector<TokenLogprobs> scores =
        compute_logprobs(context, *model, std::vector<std::vector<int32_t>>{ids}, {});
    for (size_t t = given; t < ids.size(); ++t) sum += scores[0].logp[t];
    return sum;
  }

  TemporaryFolder folder;
  EngineConfig engine;
  std::unique_ptr<Device> device = devices().at("cpu")(0);
  Context context{*device};
  std::optional<Tokenizer> tokenizer;
  std::unique_ptr<Model> model;
  std::vector<Json> records;
};

TEST_F(EvalTest, AChoiceIsScoredBehindItsPrompt) {
  run("kind = 'multiple_choice'\nprompt = '{q}'\nchoice = '{choice}'",
      R"({"q": "ab", "choices": ["c", "a."], "gold": 1})");
  const JsonArray& found = records.at(0).at("logp").as_array();
  EXPECT_NEAR(found[0].as_double(), logp("ab", "c"), 1e-6);
  EXPECT_NEAR(found[1].as_double(), logp("ab", "a."), 1e-6);
}

TEST_F(EvalTest, AContinuationIsScoredBehindEveryChoice) {
  run("kind = 'multiple_choice'\nprompt = ''\nchoice = '{choice}'\ncontinuation = ' {rest}'",
      R"({"choices": ["ab", "ba"], "rest": "c.", "gold": 0})");
  const JsonArray& found = records.at(0).at("logp").as_array();
  EXPECT_NEAR(found[0].as_double(), logp("ab", " c."), 1e-6);
  EXPECT_NEAR(found[1].as_double(), logp("ba", " c."), 1e-6);
}

TEST_F(EvalTest, TheRightChoiceIsAnIndexALetterOrAText) {
  const std::string task = "kind = 'multiple_choice'\nprompt = 'a'\nchoice = '{choice}'";
  for (const char* gold : {"1", "\"B\"", "\"b\""}) {
    run(task, concat(R"({"choices": ["a", "b"], "gold": )", gold, "}"));
    EXPECT_EQ(records.at(0).at("gold").as_int(), 1);
  }
  for (const char* gold : {"2", "\"C\"", "\"x\"", "-1"})
    EXPECT_THROW(run(task, concat(R"({"choices": ["a", "b"], "gold": )", gold, "}")), Error) << gold;
}

TEST_F(EvalTest, APromptThatDoesNotFitIsCutAtTheBeginningAndCounted) {
  const EvalResult result = run("kind = 'multiple_choice'\nprompt = '{q}'\nchoice = '{choice}'",
                                R"({"q": "bbcccaabbaabbaa", "choices": ["c", "b"], "gold": 0})");
  EXPECT_EQ(result.metrics.at("cut"), 1);
  EXPECT_NEAR(records.at(0).at("logp").as_array()[0].as_double(), logp("ccaabbaabbaa", "c"),
              1e-6);  // the last token is predicted and not an input
}

TEST_F(EvalTest, PerplexityIsTheMeanOverPredictedTokensAndBitsAreABytes) {
  const EvalResult result = run("kind = 'perplexity'", R"({"text": "abcab"})");
  const double nats = -logp("", "abcab");
  EXPECT_NEAR(result.metrics.at("nats_per_token"), nats / 5, 1e-6);
  EXPECT_NEAR(result.metrics.at("bits_per_byte"), nats / std::log(2.0) / 5, 1e-6);
}

TEST_F(EvalTest, ALongDocumentIsSplitIntoWindowsTheLastOfWhichReachesBack) {
  const EvalResult result = run("kind = 'perplexity'", R"({"text": "abcabcabcabcabc"})");
  EXPECT_EQ(result.metrics.at("predicted_tokens"), 15);
  EXPECT_NEAR(result.metrics.at("nats_per_token") * 15, -logp("", "abcabcabcabc") - logp("cabcabcabc", "abc"), 1e-5);
}

TEST_F(EvalTest, MaxLengthCutsADocumentAndItsBytes) {
  const EvalResult result = run("kind = 'perplexity'\nmax_length = 3", R"({"text": "abcab"})");
  EXPECT_NEAR(result.metrics.at("bits_per_byte"), -logp("", "ab") / std::log(2.0) / 2, 1e-6);  // eos, a, b
}

TEST_F(EvalTest, PerplexitiesPerByteAndPerWord) {
  const EvalResult result = run("kind = 'perplexity'", "{\"text\": \"abc ab\"}\n{\"text\": \"cab\"}");
  const double nats = -logp("", "abc ab") - logp("", "cab");
  EXPECT_NEAR(result.figures.at("byte_perplexity").value, std::exp(nats / 9), 1e-5);
  EXPECT_NEAR(result.figures.at("word_perplexity").value, std::exp(nats / 3), 1e-3);
  EXPECT_FALSE(result.figures.at("bits_per_byte").higher_is_better);
  EXPECT_FALSE(result.accuracy.has_value());
}

TEST_F(EvalTest, ATextsLikelihoodAndWhetherGreedyDecodingGeneratesIt) {
  const std::string task = "kind = 'loglikelihood'\nprompt = '{p}'\ntarget = '{t}'";
  std::string rows;
  for (const char* target : {"a", "b", "c", " ", "."}) rows += concat(R"({"p": "abc", "t": ")", target, "\"}\n");
  const EvalResult result = run(task, rows);
  std::vector<double> found;
  int64_t written = 0;
  for (const Json& row : records) {
    found.push_back(row.at("logp").as_double());
    written += row.at("correct").as_bool();
    EXPECT_NEAR(found.back(), logp("abc", row.at("target").as_string()), 1e-6);
  }
  const auto best = static_cast<size_t>(std::max_element(found.begin(), found.end()) - found.begin());
  EXPECT_LE(written, 1);  // ids without a character may be the most likely
  if (written == 1) {
    EXPECT_TRUE(records[best].at("correct").as_bool());
  }
  double sum = 0;
  for (const double one : found) sum += one;
  EXPECT_NEAR(result.figures.at("perplexity").value, std::exp(-sum / 5), 1e-6);
  EXPECT_NEAR(result.figures.at("bits_per_byte").value, -sum / std::log(2.0) / 5, 1e-6);
  EXPECT_EQ(result.figures.at("acc").value, static_cast<double>(written) / 5);
  EXPECT_GT(result.figures.at("perplexity").stderr_value.value_or(0), 0);
}

TEST_F(EvalTest, SpacesThatEndTheContextBeginTheContinuation) {
  run("kind = 'multiple_choice'\nprompt = '{q}'\nchoice = '{choice}'",
      R"({"q": "ab  ", "choices": ["c", "a."], "gold": 1})");
  EXPECT_NEAR(records.at(0).at("logp").as_array()[0].as_double(), logp("ab", "  c"), 1e-6);
}

TEST_F(EvalTest, AnEmptyContextIsTheEosTokenWhereThereIsNoBos) {
  run("kind = 'multiple_choice'\nprompt = ''\nchoice = '{choice}'", R"({"choices": ["abc", "b a"], "gold": 1})");
  EXPECT_NEAR(records.at(0).at("logp").as_array()[0].as_double(), logp("", "abc"), 1e-6);
}

TEST_F(EvalTest, NormalizationIsByCharactersAndByBytesOfTheChoice) {
  const EvalResult result = run("kind = 'multiple_choice'\nprompt = 'ab'\nchoice = ' {choice}'",
                                R"({"choices": ["c", "abcabc"], "gold": 1})");
  const double one = logp("ab", " c"), six = logp("ab", " abcabc") / 6;
  EXPECT_EQ(result.figures.at("acc_norm").value, six > one ? 1 : 0);
  EXPECT_EQ(result.figures.at("acc_bytes").value, six > one ? 1 : 0);
  EXPECT_EQ(result.figures.at("acc").value, 6 * six > one ? 1 : 0);
}

TEST_F(EvalTest, SubtasksAreReportedEachAndTogether) {
  const EvalResult result = run("kind = 'multiple_choice'\nprompt = 'ab'\nchoice = '{choice}'\nsubtask = '{s}'",
                                "{\"s\": \"x\", \"choices\": [\"a\", \"b\"], \"gold\": 0}\n{\"s\": \"y\", \"choices\": "
                                "[\"a\", \"b\"], \"gold\": 1}\n"
                                "{\"s\": \"y\", \"choices\": [\"a\", \"c\"], \"gold\": 1}\n");
  ASSERT_EQ(result.subtasks.size(), 2u);
  EXPECT_EQ(result.subtask_sizes.at("y"), 2);
  EXPECT_DOUBLE_EQ(result.figures.at("acc").value,
                   (result.subtasks.at("x").at("acc").value + 2 * result.subtasks.at("y").at("acc").value) / 3);
}

TEST_F(EvalTest, FiltersScoreGreedyCompletionsAndEstimatorsSampledOnes) {
  const EvalResult result =
      run("kind = 'generate'\nprompt = '{q}'\nanswer = '{a}'\nsampling = { max_tokens = 3 }\n"
          "filters = [{ name = 'letter', pattern = '[abc]' }]",
          "{\"q\": \"ab\", \"a\": \"a\"}\n{\"q\": \"b c\", \"a\": \"b\"}\n", {.samples = 6});
  ASSERT_EQ(records.size(), 2u);
  double mean = 0, pass2 = 0, greedy = 0;
  for (const Json& row : records) {
    const auto right = [&](const Json& reply) {
      const size_t at = reply.at("completion").as_string().find_first_of("abc");
      return at != std::string::npos &&
             reply.at("completion").as_string().substr(at, 1) == row.at("target").as_string();
    };
    greedy += right(row);
    int64_t count = 0;
    for (const Json& reply : row.at("sampled").as_array()) {
      EXPECT_EQ(reply.at("correct").as_bool(), right(reply));
      count += right(reply);
    }
    mean += static_cast<double>(count) / 6;
    pass2 += pass_at_k(6, count, 2);
  }
  EXPECT_DOUBLE_EQ(result.figures.at("exact_match,letter").value, greedy / 2);
  EXPECT_DOUBLE_EQ(result.accuracy->value, greedy / 2);
  EXPECT_DOUBLE_EQ(result.figures.at("mean@6").value, mean / 2);
  EXPECT_DOUBLE_EQ(result.figures.at("pass@1").value, mean / 2);
  EXPECT_DOUBLE_EQ(result.figures.at("pass@2").value, pass2 / 2);
  EXPECT_DOUBLE_EQ(result.sampled_accuracy->value, mean / 2);
  for (const char* name : {"pass@4", "pass@6", "maj@1", "maj@2", "maj@4", "maj@6"})
    EXPECT_TRUE(result.figures.contains(name)) << name;
}

// A row of three questions and one of a single question.
TEST_F(EvalTest, AProblemIsRightIfAllItsQuestionsAre) {
  const std::string task =
      "kind = 'generate'\nquestions = 'test'\nprompt = '{p}{test.q}'\nanswer = '{test.a}'\nsampling = { max_tokens = 1 "
      "}\nfilters = [{ name = 'letter', pattern = '[abc]' }]";
  const std::string rows =
      "{\"p\": \"a\", \"test\": [{\"q\": \"b\", \"a\": \"a\"}, {\"q\": \"c\", \"a\": \"b\"}, {\"q\": \"b\", \"a\": "
      "\"a\"}]}\n{\"p\": \"b\", \"test\": [{\"q\": \"c\", \"a\": \"c\"}]}\n";
  const EvalResult result = run(task, rows, {.samples = 8});
  ASSERT_EQ(records.size(), 4u);
  EXPECT_EQ(result.num_problems, 2);
  EXPECT_EQ(records[0].at("prompt").as_string(), "ab");
  EXPECT_EQ(records[1].at("prompt").as_string(), "ac");
  EXPECT_EQ(records[1].at("question_index").as_int(), 1);
  EXPECT_EQ(records[1].at("doc_hash").as_string(), records[0].at("doc_hash").as_string());
  EXPECT_NE(records[0].at("sampled").dump(), records[2].at("sampled").dump());  // other draws for an equal question
  for (const char* name : {"exact_match,letter", "avg@8", "pass@2", "maj@4"}) {
    const std::string question = concat("question_", name);
    double all = 1, sum = 0;
    for (size_t i = 0; i < 4; ++i) {
      const double one = records[i].at("metrics").at(question).as_double();
      sum += one;
      if (i < 3) all *= one;
    }
    EXPECT_DOUBLE_EQ(result.figures.at(name).value, (all + records[3].at("metrics").at(question).as_double()) / 2);
    EXPECT_DOUBLE_EQ(result.figures.at(question).value, sum / 4);
  }
  EXPECT_EQ(result.accuracy->count, 2);
  for (const char* bad : {R"({"p": "a", "test": []})", R"({"p": "a", "test": "x"})", R"({"p": "a"})"})
    EXPECT_NE(error_of([&] { run(task, bad); }).find("test"), std::string::npos) << bad;
}

TEST_F(EvalTest, CompletionsVoteOnlyIfTheRewardReadsAnswers) {
  const std::string rows = "{\"q\": \"ab\", \"a\": \"A\"}\n{\"q\": \"b c\", \"a\": \"B\"}\n",
                    task = "kind = 'generate'\nprompt = '{q}'\nanswer = '{a}'\nsampling = { max_tokens = 1 }\n";
  const EvalResult voted = run(task + "reward = { kind = 'choice', letters = 'ABC' }", rows, {.samples = 64});
  double expected = 0;
  int voted_on = 0;
  for (const Json& row : records) {
    std::map<char, std::pair<int, int>> votes;  // by letter: count, and the negative index of the first
    const JsonArray& sampled = row.at("sampled").as_array();
    for (size_t i = 0; i < sampled.size(); ++i) {
      const std::string text = sampled[i].at("completion").as_string();
      const bool answered = text == "a" || text == "b" || text == "c";
      EXPECT_EQ(sampled[i].at("answer").is_null(), !answered) << text;
      if (!answered) continue;
      auto [place, first] = votes.try_emplace(text[0], 0, -static_cast<int>(i));
      ++place->second.first;
    }
    const auto winner =
        std::max_element(votes.begin(), votes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    if (winner == votes.end()) continue;  // no votes: counts as wrong
    ++voted_on;
    expected += row.at("target").as_string() == std::string(1, static_cast<char>(std::toupper(winner->first)));
  }
  EXPECT_GT(voted_on, 0);
  EXPECT_DOUBLE_EQ(voted.figures.at("maj@64").value, expected / 2);

  const EvalResult unvoted = run(task + "reward = { kind = 'length' }", rows, {.samples = 4});
  EXPECT_TRUE(unvoted.figures.contains("pass@4"));
  for (const auto& [name, figure] : unvoted.figures) EXPECT_FALSE(name.starts_with("maj@")) << name;
  EXPECT_TRUE(records.at(0).at("sampled").as_array().at(0).at("answer").is_null());
}

std::string problem_of(const std::string& toml) {
  try {
    Config::from_text(toml, "options.toml").as<EvalOptions>();
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST(EvalOptionsTest, OptionsThatContradictEachOtherSayWhatWouldBeRight) {
  for (const char* good : {"samples = 4\ntemperature = 0.6\ntop_p = 0.9\ntop_k = 20\nmin_p = 0.1\ngreedy = false",
                           "max_tokens = 5\nstop = ['x']\nthinking_budget = 0", "samples = 1\ntemperature = 0", ""})
    EXPECT_EQ(problem_of(good), "none") << good;
  const std::pair<const char*, const char*> bad[] = {
      {"greedy = false", "set samples to 1 or more, or greedy to true"},
      {"temperature = 0.6", "temperature is of sampled completions, but samples is 0: set samples to 1 or more"},
      {"top_p = 0.6", "top_p is of sampled completions"},
      {"samples = 4\ntemperature = 0", "temperature = 0 makes all 4 samples equal"},
      {"samples = 4\ntop_p = 1.5", "top_p must be in (0, 1], or -1"},
      {"samples = 4\ntemperature = -0.5", "temperature must be in [0, 1e6], or -1"},
      {"max_tokens = -1", "max_tokens must be in [0, 2^31)"}};
  for (const auto& [toml, words] : bad) EXPECT_NE(problem_of(toml).find(words), std::string::npos) << problem_of(toml);
}

TEST_F(EvalTest, OptionsReplaceTheTasksSampling) {
  const std::string rows = "{\"q\": \"ab\", \"a\": \"A\"}\n{\"q\": \"b c\", \"a\": \"B\"}\n",
                    task =
                        "kind = 'generate'\nprompt = '{q}'\nanswer = '{a}'\nsampling = { max_tokens = 1 }\n"
                        "reward = { kind = 'exact' }";
  EvalOptions options{.greedy = false, .samples = 3, .max_tokens = 4};
  const EvalResult result = run(task, rows, options);
  EXPECT_FALSE(result.accuracy);
  EXPECT_FALSE(result.figures.contains("accuracy"));
  EXPECT_TRUE(result.sampled_accuracy);
  for (const char* name : {"avg@3", "pass@1", "pass@3", "maj@3"}) EXPECT_TRUE(result.figures.contains(name)) << name;
  size_t longest = 0;
  for (const Json& row : records)
    for (const Json& one : row.at("sampled").as_array())
      longest = std::max(longest, one.at("completion").as_string().size());
  EXPECT_GT(longest, 1U);
}

TEST_F(EvalTest, PartsOfTheRewardAreFigures) {
  const EvalResult result = run(
      "kind = 'generate'\nprompt = '{prompt}'\nanswer = ''\nsampling = { max_tokens = 8 }\nreward = { kind = 'ifeval', "
      "counts = true }\npart_figures = [{ name = 'strict', part = 'strict' }, { name = 'inst', part = 'num_strict', of "
      "= 'num_instructions' }]",
      R"({"prompt": "cab", "instruction_id_list": ["punctuation:no_comma", "startend:quotation"], "kwargs": [{}, {}]})"
      "\n"
      R"({"prompt": "b", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]})");
  double strict = 0, followed = 0, all = 0;
  for (const Json& record : records) {
    const Json& parts = record.at("parts");
    strict += parts.at("strict").as_double();
    followed += parts.at("num_strict").as_double();
    all += parts.at("num_instructions").as_double();
  }
  EXPECT_EQ(all, 3);
  EXPECT_DOUBLE_EQ(result.figures.at("strict").value, strict / 2);
  EXPECT_DOUBLE_EQ(result.figures.at("inst").value, followed / all);
  EXPECT_EQ(result.accuracy->value, strict / 2);
}

TEST_F(EvalTest, ChoicesMayBeAnObjectOfVerdictsAndProbabilitiesAreCalibrated) {
  const std::string task = "kind = 'multiple_choice'\nprompt = 'a'\nchoice = '{choice}'\n",
                    row = R"({"choices": {"b": 1, "c": 0, ".": 1}})";
  std::vector<double> p{std::exp(logp("a", "b")), std::exp(logp("a", "c")), std::exp(logp("a", "."))};
  const double sum = p[0] + p[1] + p[2];
  for (double& one : p) one /= sum;
  const EvalResult plain = run(task, row);
  EXPECT_EQ(plain.figures.at("acc").value, p[1] > p[0] && p[1] > p[2] ? 0 : 1);
  EXPECT_NEAR(plain.figures.at("brier").value, 2 * p[1] * p[1], 1e-6);
  EXPECT_FALSE(plain.figures.at("brier").higher_is_better);
  EXPECT_NEAR(plain.metrics.at("ece"), std::abs(plain.figures.at("acc").value - *std::max_element(p.begin(), p.end())),
              1e-6);
  EXPECT_NEAR(run(task + "mass = true", row).figures.at("acc").value, p[0] + p[2], 1e-6);
  EXPECT_THROW(run(task, R"({"choices": {"b": 0, "c": 0}})"), Error);
}

// A sample without the position of its row.
std::map<std::string, std::string> by_hash(const std::vector<Json>& records) {
  std::map<std::string, std::string> out;
  for (Json row : records) {
    row.set("doc_id", 0), row.set("where", "");
    out[row.at("doc_hash").as_string()] = row.dump();
  }
  return out;
}

TEST_F(EvalTest, ResultsDoNotDependOnBatchSizeOrderOrLimit) {
  std::vector<std::string> rows;
  for (const char* q : {"ab", "b c", "cab.", "a", "bb a", "c.c"})
    rows.push_back(
        concat(R"({"q": ")", q, R"(", "a": "b", "choices": ["a", "bc", "c."], "gold": )", rows.size() % 3, "}"));
  const auto joined = [&](size_t rotated, size_t count) {
    std::string out;
    for (size_t i = 0; i < count; ++i) out += rows[(i * 5 + rotated) % rows.size()] + "\n";
    return out;
  };
  for (const std::string& task : {std::string("kind = 'generate'\nprompt = '{q}'\nanswer = '{a}'\nsampling = { "
                                              "max_tokens = 5 }\nreward = { kind = 'exact' }"),
                                  std::string("kind = 'multiple_choice'\nprompt = '{q}'\nchoice = '{choice}'"),
                                  std::string("kind = 'loglikelihood'\nprompt = '{q}'\ntarget = '{choices.1}'"),
                                  std::string("kind = 'perplexity'\ntext = '{q}{choices.2}'")}) {
    engine = {};
    const EvalOptions options{.samples = 4, .seed = 5, .bootstrap_iters = 50};
    const EvalResult first = run(task, joined(0, 6), options);
    const auto samples = by_hash(records);
    engine = {.kv_block_size = 4, .kv_cache_tokens = 32, .max_batch_tokens = 5, .max_sequences = 2};
    const EvalResult shuffled = run(task, joined(3, 6), options);
    EXPECT_EQ(by_hash(records), samples) << task;
    Json a = first.to_json(), b = shuffled.to_json();
    for (Json* json : {&a, &b}) json->set("seconds", 0);
    EXPECT_EQ(a.dump(), b.dump()) << task;
    EvalOptions fewer = options;
    fewer.limit = 2;
    run(task, joined(0, 6), fewer);
    ASSERT_EQ(records.size(), 2u);
    for (const auto& [hash, sample] : by_hash(records)) EXPECT_EQ(samples.at(hash), sample) << task;
  }
}

TEST(EvalTasks, EveryTaskFileReads) {
  ::setenv("HONE_DATA", "/nowhere", 0);
  ASSERT_FALSE(known_eval_tasks().empty());
  for (const std::string& name : known_eval_tasks()) EXPECT_EQ(load_eval_task(name).name, name);
}

// On a machine without namespaces a task whose completions are programs is read like any other; only run() fails.
TEST_F(EvalTest, ATaskThatRunsProgramsIsReadWithoutASandboxAndFailsToRun) {
  ::setenv("HONE_DATA", "/nowhere", 0);
  const PretendedGuards none(without_namespaces());
  const char* task =
      "kind = 'generate'\nprompt = 'a'\nanswer = ''\nreward = { kind = 'code' }\nsampling = { max_tokens = 2 }";
  const auto refusal = [](const auto& action) -> std::string {
    try {
      action();
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  };
  const std::string of_run = refusal([&] { run(task, R"({"test_list": ["assert True"]})"); });
  EXPECT_NE(of_run.find("code: guards are missing on this machine: user ("), std::string::npos) << of_run;
  for (const std::string& name : known_eval_tasks()) {
    const EvalTaskSpec spec = load_eval_task(name);
    const bool runs_programs = name == "humaneval" || name == "mbpp";
    EXPECT_EQ(refusal([&] { spec.task->check(); }), runs_programs ? of_run : "none") << name;
  }
}

TEST(EvalTasks, EveryTaskRunsOnItsFirstRows) {
  HONE_SHARED_OR_SKIP(data, "data");
  ::setenv("HONE_DATA", data.c_str(), 1);
  const std::unique_ptr<Device> device = devices().at("cpu")(0);
  Context context(*device);
  for (const std::string& name : known_eval_tasks()) {
    if (!available_guards().guards.user && (name == "humaneval" || name == "mbpp")) continue;  // they need the sandbox
    if (name == "wikitext2") continue;  // its first row is the whole test set, which takes half a minute
    const auto folder = data / "weights" / (name == "digit_completion" ? "verl_random_llama" : "stories260K");
    const auto model = load_model(context, folder);
    const Tokenizer tokenizer = Tokenizer::load(folder);
    EvalTarget on{context, *model, tokenizer, {}};
    const EvalTaskSpec spec = load_eval_task(name);
    const EvalResult result = spec.evaluate(on, {.limit = 2, .bootstrap_iters = 10});
    EXPECT_EQ(result.num_problems, spec.kind() == "group" ? 4 : 2) << name;
    EXPECT_GT(result.num_tokens, 0) << name;
    for (const auto& [metric, value] : result.metrics) EXPECT_TRUE(std::isfinite(value)) << name << " " << metric;
  }
}

}  // namespace
}  // namespace hone::test
