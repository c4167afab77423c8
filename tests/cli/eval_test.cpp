// hone eval and hone data contamination: task files, comparisons, and rows that training files contain.
#include "tests/cli/command_case.h"

namespace hone::test {
namespace {

class EvalCommandTest : public CommandCase {};

TEST_F(EvalCommandTest, EvaluatesATaskFile) {
  const std::string model = model_folder(),
                    data = write("q.jsonl", "{\"q\": \"the cat\", \"a\": \"4\"}\n{\"q\": \"the dog\", \"a\": \"5\"}\n");
  const std::string task = write(
      "t.toml",
      "kind = \"generate\"\nfiles = [\"" + data +
          "\"]\nprompt = \"{q}\"\nanswer = \"{a}\"\nsampling = { max_tokens = 4 }\nreward = { kind = \"number\" }\n");
  const std::string out = (folder.path() / "evaluation").string();
  const Finished done = run_hone({"eval", "--model", model, "--task", task, "--samples", "2", "--out", out, "--json"});
  ASSERT_EQ(done.code, 0) << done.err;
  const Json result = parse_json(done.out, "output");
  EXPECT_EQ(result.at("num_problems").as_int(), 2);
  EXPECT_TRUE(result.find("ci95") && result.find("sampled_accuracy"));
  EXPECT_EQ(rows(read_file(out + "/samples_t.jsonl")).size(), 2u);
  for (const char* file : {"report.md", "report.html", "results.json", "accuracy.svg"})
    EXPECT_TRUE(std::filesystem::exists(out + "/" + file)) << file;
  expect_error({"eval", "--model", model, "--task", "gsm9k"}, 1, {"gsm9k", "gsm8k"});
  expect_error({"eval", "--model", model, "--tasks", task + "," + task}, 2, {"two tasks have the name 't'"});
  expect_error({"eval", "--model", model}, 2, {"--tasks", "arc_easy"});
  expect_error({"eval", "--task", task}, 2, {"--model"});
}

TEST_F(EvalCommandTest, EvaluatesSeveralTasksAndAGroupInOneCall) {
  const std::string model = model_folder(),
                    data = write("q.jsonl",
                                 "{\"q\": \"the cat\", \"choices\": [\"sat\", \"on\"], \"gold\": 0}\n"
                                 "{\"q\": \"the dog\", \"choices\": [\"on\", \"sat\"], \"gold\": 1}\n");
  const std::string shared = "files = [\"" + data + "\"]\nprompt = \"{q}\"\nfewshot = { files = [\"" + data + "\"] }\n";
  const std::string choice = write("choice.toml", "kind = \"multiple_choice\"\n" + shared);
  const std::string text = write("text.toml", "kind = \"loglikelihood\"\ntarget = \" {choices.0}\"\n" + shared);
  const std::string both = write("both.toml", "kind = \"group\"\ntasks = [\"" + choice + "\", \"" + text + "\"]\n");
  const std::string out = (folder.path() / "evaluation").string();
  const Finished done =
      run_hone({"eval", "--model", model, "--tasks", choice + "," + text + "," + both, "--num-fewshot", "1",
                "--apply-chat-template", "--system-instruction", "Be.", "--bootstrap-iters", "20", "--out", out});
  ASSERT_EQ(done.code, 0) << done.err;
  const Json results = parse_json(read_file(out + "/results.json"), "results.json");
  const Json& figures = results.at("results");
  EXPECT_EQ(results.at("group_subtasks").at("both").dump(), R"(["choice", "text"])");
  EXPECT_EQ(results.at("n-shot").at("choice").as_int(), 1);
  EXPECT_DOUBLE_EQ(
      figures.at("both").at("acc,none").as_double(),
      (figures.at("choice").at("acc,none").as_double() + figures.at("text").at("acc,none").as_double()) / 2);
  const Json sample = rows(read_file(out + "/samples_choice.jsonl")).front();
  EXPECT_EQ(sample.at("prompt").as_array().at(0).at("content").as_string(), "Be.");
  EXPECT_EQ(sample.at("prompt").as_array().at(1).at("content").as_string(), "the dog sat\n\nthe cat");
}

TEST_F(EvalCommandTest, EvaluatesQuantizedWeights) {
  const std::string model = model_folder(),
                    data = write("q.jsonl", "{\"q\": \"the cat\", \"choices\": [\"sat\", \"on\"], \"gold\": 0}\n");
  const std::string task =
      write("choice.toml", "kind = \"multiple_choice\"\nfiles = [\"" + data + "\"]\nprompt = \"{q}\"\n");
  const auto logp = [&](const std::string& quantization) {
    const std::string out = (folder.path() / quantization).string();
    const Finished done =
        run_hone({"eval", "--model", model, "--task", task, "--quantization", quantization, "--out", out});
    EXPECT_EQ(done.code, 0) << done.err;
    std::vector<double> found;
    const Json sample = rows(read_file(out + "/samples_choice.jsonl")).front();
    for (const Json& one : sample.at("logp").as_array()) found.push_back(one.as_double());
    return found;
  };
  const std::vector<double> whole = logp("none");
  for (const char* quantization : {"int8", "fp8"}) {
    const std::vector<double> bytes = logp(quantization);
    ASSERT_EQ(bytes.size(), 2u);
    for (size_t i = 0; i < bytes.size(); ++i) {
      EXPECT_NE(bytes[i], whole[i]) << quantization;
      EXPECT_NEAR(bytes[i], whole[i], 0.5) << quantization;
    }
  }
}

TEST_F(EvalCommandTest, ComparesTwoEvaluationsOfTheSameRowsOnly) {
  const std::string model = model_folder(),
                    data = write("q.jsonl", "{\"q\": \"the cat\"}\n{\"q\": \"the dog\"}\n{\"q\": \"a cat\"}\n");
  const std::string task = write("t.toml", "kind = \"perplexity\"\nfiles = [\"" + data + "\"]\ntext = \"{q}\"\n");
  const auto folder_of = [&](const std::string& name, const std::string& limit) {
    std::string out = (folder.path() / name).string();
    EXPECT_EQ(run_hone({"eval", "--model", model, "--task", task, "--limit", limit, "--out", out}).code, 0);
    return out;
  };
  const std::string first = folder_of("first", "0"), second = folder_of("second", "0"),
                    shorter = folder_of("shorter", "2");
  const Finished table = run_hone({"eval", "--compare", first, second});
  EXPECT_EQ(table.code, 0) << table.err;
  EXPECT_NE(table.out.find("bits_per_byte"), std::string::npos) << table.out;
  const Finished json =
      run_hone({"eval", "--compare", first + "/samples_t.jsonl", second + "/samples_t.jsonl", "--json"});
  const Json row = parse_json(json.out.substr(0, json.out.find('\n')), "output");
  EXPECT_EQ(row.at("difference").as_double(), 0);
  EXPECT_EQ(row.at("p").as_double(), 1);
  expect_error({"eval", "--compare", first, shorter}, 1, {"match"});
  expect_error({"eval", "--compare", first}, 2, {"two evaluations"});
  expect_error({"eval", "--compare", first, (folder.path() / "none").string()}, 1, {"none"});
}

TEST_F(EvalCommandTest, FindsATasksRowsInTrainingFiles) {
  const std::string data =
      write("q.jsonl", "{\"q\": \"one two three four five six\"}\n{\"q\": \"seven eight nine ten eleven twelve\"}\n");
  const std::string task = write("t.toml", "kind = \"perplexity\"\nfiles = [\"" + data + "\"]\ntext = \"{q}\"\n");
  const std::string rows_file =
      write("train.jsonl",
            "{\"text\": \"nothing of it\"}\n{\"prompt\": \"so One, two three\", \"completion\": \"four five! six\"}\n");
  const std::string text = write("train.txt", "first line ends seven eight\nnine ten eleven begins the next");
  const std::string out = (folder.path() / "overlap.jsonl").string();
  const Finished rows_only =
      run_hone({"data", "contamination", "--task", task, "--in", rows_file, "--ngram", "5", "--out", out});
  ASSERT_EQ(rows_only.code, 0) << rows_only.err;
  EXPECT_EQ(parse_json(rows_only.out, "output").at("flagged").as_int(), 1);
  const Json flagged = parse_json(read_file(out), "rows");
  EXPECT_EQ(flagged.at("found_in").as_string(), rows_file + ":2");
  EXPECT_EQ(flagged.at("share").as_double(), 1);
  const Finished both =
      run_hone({"data", "contamination", "--task", task, "--in", rows_file, "--in", text, "--ngram", "5"});
  EXPECT_EQ(parse_json(both.out, "output").at("flagged").as_int(), 2);
  EXPECT_EQ(parse_json(both.out, "output").at("documents").as_int(), 3);
  const std::string model = model_folder(), tokens = (folder.path() / "train.tokens").string();
  ASSERT_EQ(run_hone({"data", "tokenize", "--in", text, "--tokenizer", model, "--out", tokens}).code, 0);
  const Finished decoded =
      run_hone({"data", "contamination", "--task", task, "--in", tokens, "--tokenizer", model, "--ngram", "5"});
  ASSERT_EQ(decoded.code, 0) << decoded.err;
  EXPECT_EQ(parse_json(decoded.out, "output").at("flagged").as_int(), 1);
  expect_error({"data", "contamination", "--task", task, "--in", tokens, "--ngram", "5"}, 1, {"tokenizer"});
  expect_error({"data", "contamination", "--in", tokens}, 2, {"--task"});
  expect_error({"data", "contamination", "--task", task, "--in", tokens, "--ngram", "0"}, 2, {"--ngram"});
}

}  // namespace
}  // namespace hone::test
