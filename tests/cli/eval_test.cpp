// hone eval and hone data contamination: task files, comparisons, and rows that training files contain.
#include "tests/cli/command_case.h"
#include "tests/support/http_server.h"

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

TEST_F(EvalCommandTest, SamplesOnlyWithTheOptionsOfTheCommandLine) {
  const std::string model = model_folder(), data = write("q.jsonl", "{\"q\": \"the cat\", \"a\": \"4\"}\n");
  const std::string task =
      write("t.toml", "kind = \"generate\"\nfiles = [\"" + data +
                          "\"]\nprompt = \"{q}\"\nanswer = \"{a}\"\nreward = { kind = \"number\" }\n");
  const Finished done =
      run_hone({"eval",    "--model",       model,          "--task",  task,     "--no-greedy", "--samples",
                "3",       "--temperature", "0.7",          "--top-p", "0.9",    "--top-k",     "30",
                "--min-p", "0.01",          "--max-tokens", "2",       "--stop", "x",           "--json"});
  ASSERT_EQ(done.code, 0) << done.err;
  const Json metrics = parse_json(done.out, "output").at("metrics");
  EXPECT_TRUE(metrics.find("avg@3") && metrics.find("pass@3") && metrics.find("maj@3"));
  EXPECT_FALSE(metrics.find("accuracy"));
  EXPECT_LE(metrics.at("sampled/mean_length").as_double(), 2);
  expect_error({"eval", "--model", model, "--task", task, "--no-greedy"}, 2, {"set samples to 1 or more"});
  expect_error({"eval", "--model", model, "--task", task, "--samples", "4", "--temperature", "0"}, 2,
               {"all 4 samples"});
  expect_error({"eval", "--model", model, "--task", task, "--top-p", "0.5"}, 2, {"top_p is of sampled completions"});
}

TEST_F(EvalCommandTest, ADeviceThatComputesNothingIsRefused) {
  const std::string model = model_folder(), data = write("q.jsonl", "{\"text\": \"the cat\"}\n");
  const std::string task = write("t.toml", "kind = \"perplexity\"\nfiles = [\"" + data + "\"]\n");
  expect_error({"eval", "--model", model, "--task", task, "--device", "meta"}, 1, {"device meta computes nothing"});
}

TEST_F(EvalCommandTest, EvaluatesAServerAndReportsWhatItCost) {
  const HttpServer server([](const ReceivedRequest& request) {
    const Json body = parse_json(request.body, "body");
    if (body.at("prompt").as_string() == "bad") return http_response("{\"error\": {\"message\": \"no\"}}", 400);
    return http_response(R"({"choices": [{"text": "4", "finish_reason": "stop"}],
                             "usage": {"prompt_tokens": 500000, "completion_tokens": 1000000}})");
  });
  const std::string data = write("q.jsonl", "{\"q\": \"two and two\", \"a\": \"4\"}\n{\"q\": \"bad\", \"a\": \"5\"}\n");
  const std::string task =
      write("t.toml", "kind = \"generate\"\nfiles = [\"" + data +
                          "\"]\nprompt = \"{q}\"\nanswer = \"{a}\"\nreward = { kind = \"number\" }\n");
  const std::string out = (folder.path() / "evaluation").string();
  const Finished done = run_hone({"eval", "--base-url", server.url("127.0.0.1", "/v1"), "--model", "name", "--task",
                                  task, "--input-price", "2", "--output-price", "3", "--out", out});
  EXPECT_EQ(done.code, 1) << done.err;  // one request failed
  EXPECT_NE(done.err.find("status 400: no"), std::string::npos) << done.err;
  EXPECT_NE(done.out.find("| failed |"), std::string::npos) << done.out;
  const Json results = parse_json(read_file(out + "/results.json"), "results.json");
  const Json& metrics = results.at("hone").at("t").at("metrics");
  EXPECT_EQ(metrics.at("cost").as_double(), 4);
  EXPECT_EQ(metrics.at("accuracy").as_double(), 1);
  EXPECT_EQ(metrics.at("failed").as_double(), 1);
  EXPECT_EQ(results.at("config").at("model").as_string(), "name");
  const std::string page = read_file(out + "/report.html");
  for (const char* words : {"--base-url", "<td>version</td>", "<td>date</td>", "<td>settings</td>"})
    EXPECT_NE(page.find(words), std::string::npos) << words;
  expect_error({"eval", "--base-url", "ftp://x", "--model", "m", "--task", task}, 1, {"http://"});
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
