// Teachers of distillation in complete runs: a folder, workers, a server and stored log-probs; with contexts; on
// several ranks and after a kill the same bits; and a teacher's filtered texts as SFT data.
#include <cmath>
#include <sstream>

#include "tests/e2e/ranks_run.h"
#include "tests/e2e/workers_run.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

const std::string teacher_recipe = tiny_recipe("teacher", 2, R"(
[[stage]]
kind = "pretrain"
generator = { kind = "arithmetic", digits = 1, heldout = 20, worked = 0.0 }
packing = "documents"
max_length = 32
batch_size = 16
steps = 20
learning_rate = 1e-2
[[stage]]
kind = "sft"
files = ["FOLDER/rows.jsonl"]
limit = 14                      # it knows a half of the sums
batch_size = 14
steps = 60
learning_rate = 1e-2
lr_scheduler_type = "constant"
)");

const std::string student_head = R"(
seed = 3
tokenizer = "FOLDER/teacher/checkpoints/sft/step-60"
[model]
hidden_size = 32
intermediate_size = 64
num_attention_heads = 2
max_position_embeddings = 64
num_hidden_layers = 1
)";

const std::string gkd_stage = R"(
[[stage]]
kind = "sft"
name = "gkd"
objective = "distill"
teacher = "FOLDER/teacher/checkpoints/sft/step-60"
files = ["FOLDER/rows.jsonl"]
steps = 4
batch_size = 5
micro_batch_tokens = 48
learning_rate = 1e-2
eval_share = 0.2
eval_steps = 2
save_steps = 1
save_total_limit = 0
)";

const std::string sampled_stage = R"(
[[stage]]
kind = "rl"
name = "sampled"
objective = "distill"
teacher = "FOLDER/teacher/checkpoints/sft/step-60"
loss = "sampled"
lmbda = 1.0
files = ["FOLDER/rows.jsonl"]
prompts_per_step = 3
num_generations = 2
steps = 3
save_steps = 1
save_total_limit = 0
micro_batch_tokens = 48
learning_rate = 1e-2
sampling = { max_tokens = 6 }
reward = { kind = "number" }
)";

class DistillTeachers : public ::testing::Test {
 protected:
  DistillTeachers() {
    write("teacher.toml", teacher_recipe);
    std::ofstream rows(path("rows.jsonl"));
    for (int i = 0; i < 30; ++i) {
      const int a = i % 7, b = i % 4;
      rows << R"({"prompt": ")" << a << "+" << b << R"(=", "completion": ")" << a + b << R"(", "answer": ")" << a + b
           << R"(", "hint": "The sum is )" << a + b << R"(.\n"})" << '\n';
    }
    rows.close();
    const Finished done = run_hone({"run", path("teacher.toml").string(), "runs=" + folder_.path().string()});
    EXPECT_EQ(done.code, 0) << done.err;
  }
  fs::path path(const std::string& name) const { return folder_.path() / name; }
  fs::path teacher() const { return path("teacher/checkpoints/sft/step-60"); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name)) << in_folder(text, folder_.path());
  }
  std::vector<std::string> arguments(const std::string& stages, const std::string& name,
                                     const std::vector<std::string>& more = {}) const {
    write(name + ".toml", concat("name = \"", name, "\"", student_head, stages));
    std::vector<std::string> out{"run", path(name + ".toml").string(), "runs=" + folder_.path().string()};
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }
  fs::path run(const std::string& stages, const std::string& name, const std::vector<std::string>& more = {}) const {
    const Finished done = run_hone(arguments(stages, name, more));
    EXPECT_EQ(done.code, 0) << done.err;
    return path(name);
  }
  std::string failure(const std::string& stages, const std::vector<std::string>& more) const {
    const Finished done = run_hone(arguments(stages, "failing", more));
    EXPECT_NE(done.code, 0);
    return done.err;
  }
  static std::vector<double> column(const fs::path& run, const std::string& metric) {
    std::vector<double> out;
    read_jsonl(run / "metrics.jsonl", [&](const Json& row, int64_t) {
      if (const Json* value = row.find(metric)) out.push_back(value->as_double());
    });
    return out;
  }
  TemporaryFolder folder_;
};

TEST_F(DistillTeachers, AnyNumberOfRanksHasTheSameBits) {
  const std::string full = R"(
loss = "full"
teacher_context = "hint"
)";
  std::string on_policy = sampled_stage;
  on_policy.replace(on_policy.find("loss = \"sampled\"\n"), 17, full);
  on_policy.replace(on_policy.find("\"sampled\""), 9, "\"context\"");
  const std::string stages = gkd_stage + sampled_stage + on_policy;
  const std::vector<std::string> keys{"parallel.micro_batch_multiple=2"};
  const fs::path one = run(stages, "one", keys);
  EXPECT_EQ(column(one, "distill/divergence").size(), 7u);
  EXPECT_EQ(column(one, "eval_loss").size(), 2u);
  for (const auto& [ranks, zero] : {std::pair(2, 2), {3, 2}, {2, 3}, {3, 3}}) {
    SCOPED_TRACE(concat(ranks, " ranks, ZeRO-", zero));
    std::vector<std::string> more = keys;
    more.insert(more.end(), {concat("parallel.ranks=", ranks), concat("parallel.zero=", zero)});
    expect_same_run(one, run(stages, concat("on-", ranks, "-", zero), more));
  }
}

TEST_F(DistillTeachers, AKilledRunGoesOnWithTheSameBits) {
  const std::string stages = gkd_stage + sampled_stage;
  const fs::path whole = run(stages, "whole");
  for (const auto& [name, checkpoint] : {std::pair("early", "gkd/step-2"), {"late", "sampled/step-2"}}) {
    end_at_checkpoint(arguments(stages, name), path(name), checkpoint, SIGKILL);
    const Finished done = run_hone({"run", "--resume", path(name).string()});
    ASSERT_EQ(done.code, 0) << done.err;
    expect_same_checkpoints(whole, path(name), {"gkd/step-4/model.safetensors", "sampled/step-3/model.safetensors"});
  }
}

TEST_F(DistillTeachers, WorkersHaveTheFoldersBits) {
  const WorkerProcess one, two;
  const fs::path here = run(sampled_stage, "here"),
                 there = run(sampled_stage, "there",
                             {concat("stage.sampled.teacher_workers=[\"", one.url(), "\", \"", two.url(), "\"]"),
                              "rollout.worker_key_file=" + key_file()});
  expect_same_checkpoints(here, there, {"sampled/step-3/model.safetensors"});
  EXPECT_EQ(column(here, "distill/reverse_kl"), column(there, "distill/reverse_kl"));
}

TEST_F(DistillTeachers, AServerHasTheFoldersLogProbs) {
  const Process serving({"serve", "--model", teacher().string(), "--port", "0", "--device", "cpu"});
  const std::string address = concat("http://127.0.0.1:", serving.port(), "/v1"),
                    endpoint = concat("stage.sampled.teacher_endpoint={base_url=\"", address, "\", model=\"",
                                      teacher().filename().string(), "\", max_retries=1, max_retry_wait=0.1}");
  const fs::path here = run(sampled_stage, "here"),
                 there = run(sampled_stage, "there", {"stage.sampled.teacher=", endpoint});
  const std::vector<double> a = column(here, "distill/reverse_kl"), b = column(there, "distill/reverse_kl");
  ASSERT_EQ(a.size(), 3u);
  ASSERT_EQ(b.size(), 3u);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-4 * (1 + std::fabs(a[i])));
  const fs::path ranks =
      run(sampled_stage, "ranks",
          {"stage.sampled.teacher=", endpoint, "parallel.ranks=2", "parallel.micro_batch_multiple=1"});
  expect_same_checkpoints(there, ranks, {"sampled/step-3/model.safetensors"});
  const std::string both = failure(sampled_stage, {endpoint});
  EXPECT_NE(both.find("remove teacher_endpoint, or teacher"), std::string::npos) << both;
  const std::string unnamed = failure(
      sampled_stage, {"stage.sampled.teacher=", concat("stage.sampled.teacher_endpoint={base_url=\"", address, "\"}")});
  EXPECT_NE(unnamed.find("model is missing"), std::string::npos) << unnamed;
  const std::string full = failure(sampled_stage, {"stage.sampled.teacher=", endpoint, "stage.sampled.loss=full"});
  EXPECT_NE(full.find("set loss to 'sampled', or use a teacher's folder"), std::string::npos) << full;
  const std::string hot =
      failure(sampled_stage, {"stage.sampled.teacher=", endpoint, "stage.sampled.sampling.temperature=0.5"});
  EXPECT_NE(hot.find("gives log-probs of temperature 1, and sampling.temperature is 0.5"), std::string::npos) << hot;
}

TEST_F(DistillTeachers, AServerThatIsGoneEndsTheRun) {
  std::string address;
  {
    const Process serving({"serve", "--model", teacher().string(), "--port", "0", "--device", "cpu"});
    address = concat("http://127.0.0.1:", serving.port(), "/v1");
  }
  const std::string problem =
      failure(sampled_stage, {"stage.sampled.teacher=", concat("stage.sampled.teacher_endpoint={base_url=\"", address,
                                                               "\", model=\"m\", max_retries=1, max_retry_wait=0.1}")});
  EXPECT_NE(problem.find("distill: the teacher at " + address), std::string::npos) << problem;
  EXPECT_NE(problem.find("failed after 2 attempts"), std::string::npos) << problem;
}

// hone logprobs writes what loss = "top_k" reads.
TEST_F(DistillTeachers, StoredLogProbsTeachToo) {
  const Finished wrote = run_hone({"logprobs", "--model", teacher().string(), "--in", path("rows.jsonl").string(),
                                   "--top-logprobs", "6", "--out", path("stored.jsonl").string(), "--device", "cpu"});
  ASSERT_EQ(wrote.code, 0) << wrote.err;
  std::string stage = gkd_stage;
  stage.replace(stage.find("teacher = "), stage.find("files = ") - stage.find("teacher = "), "loss = \"top_k\"\n");
  stage.replace(stage.find("rows.jsonl"), 10, "stored.jsonl");
  const std::vector<std::string> more{"stage.gkd.steps=30", "stage.gkd.save_steps=10", "stage.gkd.eval_steps=10"};
  const fs::path whole = run(stage, "whole", more);
  const std::vector<double> divergence = column(whole, "distill/divergence"), held = column(whole, "eval_loss");
  ASSERT_EQ(divergence.size(), 30u);
  EXPECT_LT(divergence.back(), 0.7 * divergence.front());
  ASSERT_EQ(held.size(), 3u);
  EXPECT_LT(held.back(), divergence.front());
  std::vector<std::string> two = more;
  two.insert(two.end(), {"parallel.ranks=2", "parallel.micro_batch_multiple=1"});
  expect_same_checkpoints(whole, run(stage, "two", two), {"gkd/step-30/model.safetensors"});

  // Other tokens than the stage's, and rows without log-probs, are errors before anything runs.
  const std::string other = failure(stage, {"stage.gkd.completion='{completion} ?'"});
  EXPECT_NE(other.find("stored.jsonl:1"), std::string::npos) << other;
  EXPECT_NE(other.find("write the log-probs with the tokenizer and prompt format of the stage"), std::string::npos)
      << other;
  std::string without = stage;
  without.replace(without.find("stored.jsonl"), 12, "rows.jsonl");
  EXPECT_NE(failure(without, {}).find("rows.jsonl:1"), std::string::npos);
}

// Sequence level: the teacher writes, a check filters, the stage sft trains.
TEST_F(DistillTeachers, FilteredTextsOfTheTeacherAreSftData) {
  const Finished wrote = run_hone({"generate", "--model", teacher().string(), "--prompts", path("rows.jsonl").string(),
                                   "--temperature", "0", "--max-tokens", "6", "--json", "--device", "cpu"});
  ASSERT_EQ(wrote.code, 0) << wrote.err;
  std::vector<Json> rows;
  read_jsonl(path("rows.jsonl"), [&](const Json& row, int64_t) { rows.push_back(row); });
  std::ofstream written(path("written.jsonl"));
  std::istringstream lines(wrote.out);
  size_t i = 0;
  for (std::string line; std::getline(lines, line); ++i) {
    Json row = rows.at(i);
    row.set("completion", parse_json(line, "line").at("text").as_string());
    written << row.dump() << '\n';
  }
  written.close();
  ASSERT_EQ(i, rows.size());
  const Finished scored = run_hone(
      {"reward", "--reward", "number", "--in", path("written.jsonl").string(), "--out", path("scored.jsonl").string()});
  ASSERT_EQ(scored.code, 0) << scored.err;
  int right = 0;
  read_jsonl(path("scored.jsonl"), [&](const Json& row, int64_t) { right += row.at("score").as_double() == 1; });
  ASSERT_GT(right, 0) << "the teacher solves none of its sums: " << wrote.out;
  ASSERT_LT(right, 30) << "nothing is filtered";
  const fs::path student = run(R"(
[[stage]]
kind = "sft"
files = ["FOLDER/scored.jsonl"]
when = { column = "score", equals = "1.0" }
steps = 20
batch_size = 8
learning_rate = 1e-2
)",
                               "student");
  const std::vector<double> loss = column(student, "loss");
  ASSERT_EQ(loss.size(), 20u);
  EXPECT_LT(loss.back(), 0.7 * loss.front());
  EXPECT_NE(read_file(student / "hone.log").find(concat("sft: ", right, " samples")), std::string::npos)
      << "trained on other rows than the right ones";
}

}  // namespace
}  // namespace hone::test
