// The program in the completion passes the task's tests, in the sandbox (docs/sandbox.md).
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "rewards/code_harness.h"
#include "rewards/code_tests.h"
#include "rewards/reward.h"
#include "rewards/sandbox.h"
#include "rewards/text.h"

namespace hone {

namespace {

struct Verdict {
  size_t passed = 0;
  std::string note;  // of the first test that failed
};

// The interpreter by its path: an absolute one, or a name in the folders that the sandbox shows; "" if there is none.
std::string find_python(const std::string& name) {
  for (const char* folder : {"/usr/local/bin/", "/usr/bin/", "/bin/"})
    if (std::string path = name.starts_with('/') ? name : folder + name; ::access(path.c_str(), X_OK) == 0) return path;
  return "";
}

// What a program cannot guess.
std::string make_nonce() {
  uint64_t words[2];
  HONE_CHECK(::getrandom(words, sizeof(words), 0) == sizeof(words), "getrandom failed");
  return concat(std::hex, words[0], "-", words[1]);
}

// The last line of a traceback.
std::string last_line(std::string_view text) {
  text = trimmed(text);
  const size_t begin = text.rfind('\n');
  return excerpt(begin == std::string_view::npos ? text : text.substr(begin + 1));
}

class Code : public Reward {
 public:
  void fields(Fields& f) override {
    f("partial", partial_, "the score is the share of tests passed; false: 1 if all pass, else 0");
    f("python", python_, "the interpreter (3.10 or newer): a name or an absolute path");
    f("max_code_kb", max_code_kb_, "KiB of a program; a longer one is not run");
    f.require("max_code_kb", max_code_kb_ >= 1 && max_code_kb_ <= 65536, "max_code_kb must be in [1, 65536]");
    f("sandbox", sandbox_config_, "limits of a run, which is one for each input, or one for all tests that are Python");
  }

  void prepare() override {
    interpreter_ = find_python(python_);
    sandbox_.emplace(sandbox_config_);
  }

  std::string refusal() const override {
    if (!interpreter_.empty()) return sandbox_->refusal();
    if (python_.starts_with('/')) return "python: there is no program " + python_;
    return concat("python: there is no ", python_,
                  " in /usr/local/bin, /usr/bin or /bin (Debian: apt-get install python3); one elsewhere is named by its whole path, its ",
                  "folder by sandbox.readable");
  }

  Score score(const Task& task, const Completion& completion) const override {
    const CodeTests tests = read_code_tests(task);
    const std::string program = program_text(completion.text, tests);
    if (trimmed(program).empty()) return {.score = 0, .note = "no program"};
    if (program.size() > static_cast<size_t>(max_code_kb_) * 1024) return {.score = 0, .note = "the program is too long"};
    const Verdict verdict = tests.cases.empty() ? judge_calls(task, tests, program) : judge_output(task, tests, program);
    const double share = static_cast<double>(verdict.passed) / static_cast<double>(tests.size());
    return {.score = partial_ ? share : verdict.passed == tests.size() ? 1.0 : 0.0, .note = verdict.note};
  }

 private:
  SandboxFinished run(const Task& task, SandboxJob job) const {
    job.environment = {"PYTHONHASHSEED=0", "PYTHONDONTWRITEBYTECODE=1", "PYTHONIOENCODING=utf-8"};
    SandboxOutcome outcome = sandbox_->run(job);
    if (const auto* refused = std::get_if<SandboxRefused>(&outcome)) fail(task.id, ": the sandbox refused: ", refused->reason);
    return std::get<SandboxFinished>(std::move(outcome));
  }

  // Tests that are Python, or calls of a function: one run of the harness.
  Verdict judge_calls(const Task& task, const CodeTests& tests, const std::string& program) const {
    const std::string nonce = make_nonce();
    const Json job = JsonObject{{"nonce", nonce},
                                {"solution", program},
                                {"stub", tests.stub},
                                {"entry", tests.entry},
                                {"setup", tests.setup},
                                {"tests", Json::array(tests.asserts)},
                                {"function", tests.function},
                                {"calls", tests.calls},
                                {"defines", Json::array(tests.defines)},
                                {"all", partial_}};
    // Without /proc the worker has no way into the judge's memory.
    const SandboxFinished finished =
        run(task, {.command = {interpreter_, "-s", "-B", "-c", std::string(code_harness())}, .input = job.dump(), .proc = false});
    int64_t test = -1;
    std::string_view rest = finished.out;
    while (!rest.empty()) {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(line.size() + 1, rest.size()));
      if (!line.starts_with(nonce + " ")) continue;
      const Json fact = parse_json(line.substr(nonce.size() + 1), "verdict");
      if (const Json* begun = fact.find("test")) {
        test = begun->as_int();
        continue;
      }
      return {.passed = static_cast<size_t>(fact.at("passed").as_int()), .note = fact.at("note").as_string()};
    }
    HONE_CHECK(test >= 0, task.id, ": python could not judge: ", describe(finished), " ", last_line(finished.err));
    return {.passed = 0, .note = describe(finished) + (test == 0 ? " in the program itself" : concat(" in test ", test))};
  }

  // Texts in, texts out: one run for each.
  Verdict judge_output(const Task& task, const CodeTests& tests, const std::string& program) const {
    Verdict verdict;
    for (size_t i = 0; i < tests.cases.size(); ++i) {
      const SandboxFinished finished =
          run(task, {.command = {interpreter_, "-s", "-B", "solution.py"}, .files = {{"solution.py", program}}, .input = tests.cases[i].input});
      std::string wrong;
      if (finished.how != SandboxFinished::How::exited)
        wrong = describe(finished) + " on";
      else if (finished.code != 0)
        wrong = last_line(finished.err) + " on";
      else if (finished.truncated || !same_output(finished.out, tests.cases[i].output))
        wrong = "wrong answer on";
      if (wrong.empty()) ++verdict.passed;
      if (!wrong.empty() && verdict.note.empty()) verdict.note = concat(wrong, " test ", i + 1);
      if (!wrong.empty() && !partial_) break;
    }
    return verdict;
  }

  bool partial_ = false;
  std::string python_ = "python3", interpreter_;
  int64_t max_code_kb_ = 64;
  SandboxConfig sandbox_config_;
  std::optional<Sandbox> sandbox_;
};

[[maybe_unused]] const bool added = rewards().add("code", [] { return std::unique_ptr<Reward>(new Code); });

}  // namespace

}  // namespace hone
