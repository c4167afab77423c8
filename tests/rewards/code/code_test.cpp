// The reward `code`: how it reads tests and programs, which programs pass, and programs that try to pass without being
// right.
#include <filesystem>
#include <thread>

#include "core/io/jsonl.h"
#include "rewards/answers/text.h"
#include "rewards/code/code_tests.h"
#include "tests/rewards/code/code_run.h"

namespace hone::test {
namespace {

constexpr const char* kAdd =
    R"({"test_list": ["assert add(1, 2) == 3", "assert add(-1, 1) == 0", "assert add(5, 5) == 10"]})";
// Longer than any limit here, but not endless.
constexpr const char* kLoop = "import time\nend = time.time() + 20\nwhile time.time() < end: pass";
constexpr const char* kEcho = R"({"inputs": ["1 2\n", "3 4\n"], "outputs": ["3\n", "7\n"]})";

TEST(CodeTests, RowsAreReadInTheirUsualForms) {
  const CodeTests humaneval = read_code_tests(
      task_of(R"({"prompt": "def f(x):\n", "entry_point": "f", "test": "def check(c): assert c(1) == 1"})"));
  EXPECT_EQ(humaneval.stub, "def f(x):\n");
  EXPECT_EQ(humaneval.asserts, std::vector<std::string>{"def check(c): assert c(1) == 1\ncheck(f)\n"});
  const CodeTests mbpp = read_code_tests(task_of(
      R"({"code": "import re\ndef sum(a, b):\n  def no(): pass\nclass Pair:\n  pass", "test_list": ["assert 1"], "test_setup_code": "x = 1", "test_imports": ["import math"]})"));
  EXPECT_EQ(mbpp.setup, "import math\nx = 1");
  EXPECT_EQ(mbpp.defines, (std::vector<std::string>{"sum", "Pair"}));
  for (const Task& task :
       {task_of(kEcho), task_of(R"({"input_output": "{\"inputs\": [[\"1 2\"], \"3 4\"], \"outputs\": [[3], \"7\"]}"})"),
        task_of(R"({"test_cases": {"inputs": ["1 2\n", "3 4"], "outputs": ["3\n", "7"]}})"), task_of("{}", kEcho)}) {
    const CodeTests tests = read_code_tests(task);
    ASSERT_EQ(tests.cases.size(), 2U);
    EXPECT_EQ(tests.cases[0].input, "1 2\n");
    EXPECT_EQ(tests.cases[0].output, "3\n");
  }
  const CodeTests calls =
      read_code_tests(task_of(R"({"fn_name": "f", "inputs": [[1, [2]], "1\n[2]\n"], "outputs": [3, "3"]})"));
  EXPECT_EQ(calls.function, "f");
  ASSERT_EQ(calls.calls.size(), 2U);
  EXPECT_EQ(calls.calls[0].dump(), "[[1, [2]], 3]");
  EXPECT_EQ(calls.calls[1].dump(), "[[1, [2]], 3]");
}

TEST(CodeTests, ARowWithoutTestsIsAnErrorThatNamesIt) {
  for (const char* row : {"{}", "[]", R"({"test_list": []})", R"({"test_list": 3})", R"({"test_list": [3]})",
                          R"({"inputs": ["a"], "outputs": []})", R"({"inputs": [], "outputs": []})",
                          R"({"fn_name": "f", "inputs": [3], "outputs": [3]})", R"({"input_output": "{"})"}) {
    try {
      read_code_tests(task_of(row));
      FAIL() << row;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("rows.jsonl:1"), std::string::npos) << error.what();
    }
  }
}

TEST(CodeTests, TheProgramIsTheLastBlockOrTheReplyBehindTheStub) {
  const CodeTests plain, stubbed{.stub = "def f():\n", .entry = "f"};
  EXPECT_EQ(program_text("x = 1", plain), "x = 1");
  EXPECT_EQ(program_text("    return 1\n", stubbed), "def f():\n    return 1\n");
  EXPECT_EQ(program_text("First\n```python\na = 1\n```\nthen\n  ```py\nb = 2\n  ```\nDone.", plain), "b = 2\n");
  EXPECT_EQ(program_text("```\na = 1\n```", stubbed), "def f():\n\na = 1\n");
  EXPECT_EQ(program_text("```python\na = 1\nb = 2", plain), "a = 1\nb = 2");  // cut off
  EXPECT_EQ(program_text("```python", plain), "");
  EXPECT_EQ(program_text("```python\r\na = 1\r\n```\r\n", plain), "a = 1\r\n");
}

TEST(CodeTests, BlocksMarkedAsPythonArePreferred) {
  const CodeTests plain, stubbed{.stub = "def f():\n", .entry = "f"};
  const auto expect = [&](const char* reply, const char* last, const char* first) {
    EXPECT_EQ(program_text(reply, plain), last) << reply;
    EXPECT_EQ(program_text(reply, plain, true), first) << reply;
  };
  expect("```python\na\n```\n```bash\nrm -r x\n```\n```\nout\n```", "a\n", "a\n");
  expect("```Python3 title=x\na\n```\n```py:solution.py\nb\n```\n```{.python}\nc\n```", "c\n", "a\n");
  expect("```\na\n```\n```text\nout\n```\n```\nb\n```", "b\n", "a\n");
  expect("```cpp\nint f();\n```\n~~~js\nf\n~~~", "", "");
  EXPECT_EQ(program_text("```java\nclass A {}\n```", stubbed), "");
  expect("```python\na\n```\n```python\n\n```", "a\n", "a\n");
  // cut off
  expect("```python\na\n```\nBetter:\n```python\nb", "b", "a\n");
  // fences of other kinds, nested fences, fences in a list, and three marks inside a text
  expect("~~~python\na\n```\n~~~", "a\n```\n", "a\n```\n");
  expect("````python\na\n```\nb\n````", "a\n```\nb\n", "a\n```\nb\n");
  expect("```markdown\n# Answer\n```python\na\n```\n```\nDone.", "a\n", "a\n");
  expect("````md\n```python\na\n```\n````\nDone.", "a\n", "a\n");
  expect("1. So:\n   ```python\n   def f():\n       return 1\n\n   ```", "def f():\n    return 1\n\n",
         "def f():\n    return 1\n\n");
  expect("```python\ndef f():\n    \"\"\"\n    ```\n    f()\n    ```\n    \"\"\"\n```",
         "def f():\n    \"\"\"\n    ```\n    f()\n    ```\n    \"\"\"\n",
         "def f():\n    \"\"\"\n    ```\n    f()\n    ```\n    \"\"\"\n");
  expect("Use ```x = 1``` and\n```python\na\n```", "a\n", "a\n");
}

TEST(CodeTests, FencesThatTouchEndOneBlockAndBeginTheNext) {
  const CodeTests plain;
  EXPECT_EQ(program_text("``````python\nb = 2\n```\nDone.", plain), "b = 2\n");
  EXPECT_EQ(program_text("``````python\nb = 2\n```", plain), "b = 2\n");
  EXPECT_EQ(program_text("```\na = 1\n``````python\nb = 2\n```\nDone.", plain), "b = 2\n");
  EXPECT_EQ(program_text("```python\na = 1\n``````python\nb = 2\n```", plain), "b = 2\n");
  EXPECT_EQ(program_text("```python\na = 1\n``````python\nb = 2\n```", plain, true), "a = 1\n");
  EXPECT_EQ(program_text("~~~~~~python\nb = 2\n~~~\n", plain), "b = 2\n");
  // A closed long fence contains shorter ones.
  EXPECT_EQ(program_text("``````python\ns = \"\"\"\n```\n\"\"\"\n``````\n", plain), "s = \"\"\"\n```\n\"\"\"\n");
}

TEST(CodeTests, AThinkingPartHoldsNoProgram) {
  const CodeTests plain, stubbed{.stub = "def f():\n", .entry = "f"};
  const std::string block = "```python\na\n```\n";
  EXPECT_EQ(program_text("<think>\n" + block + "</think>\n```python\nb\n```", plain, true), "b\n");
  EXPECT_EQ(program_text(block + "</think>\n```\nb\n```", plain), "b\n");  // the template wrote <think>
  EXPECT_EQ(program_text("```python\nopen\n</think>\n```python\nb\n```", plain), "b\n");
  EXPECT_EQ(trimmed(program_text("<think>\n" + block + "</think>\nI give up.", plain)), "I give up.");
  EXPECT_EQ(program_text("<think>\n" + block, plain), "");
  EXPECT_EQ(program_text("<think> hm", stubbed), "");
  EXPECT_EQ(program_text("<think>x</think>\n" + block + "<think>\n```python\nb\n```", plain), "a\n");
  EXPECT_EQ(program_text("<think>x</think>\n    return 1\n", stubbed), "def f():\n\n    return 1\n");
  EXPECT_EQ(program_text("```python\ns = '<think>'\n```", plain), "s = '<think>'\n");
  EXPECT_EQ(program_text("s = '<think>'\nt = 1", plain), "s = '<think>'\nt = 1");
}

TEST(CodeTests, OutputIsComparedByWords) {
  EXPECT_TRUE(same_output("1 2\n3\n", "1 2 \n3"));
  EXPECT_TRUE(same_output("", "\n"));
  EXPECT_TRUE(same_output("0.3333333", "0.33333334"));
  EXPECT_TRUE(same_output("1e3", "1000.0"));
  EXPECT_FALSE(same_output("1e-9223372036854775808", "1.5"));  // INT64_MIN has no absolute value
  EXPECT_FALSE(same_output("1000001", "1000002"));
  EXPECT_FALSE(same_output("0.3", "0.4"));
  EXPECT_FALSE(same_output("1", "1 2"));
  EXPECT_FALSE(same_output("nan", "1.5"));
  EXPECT_FALSE(same_output("Yes.", "yes."));
}

TEST(CodeTests, OnlyAnExpectedFractionHasATolerance) {
  for (const auto& [printed, expected] :
       std::vector<std::pair<const char*, const char*>>{{"1000000000.0", "1000000000"},
                                                        {"1e9", "1000000000"},
                                                        {"1000000000", "1e9"},
                                                        {"1.5E+3", "1500"},
                                                        {"-0.0", "0"},
                                                        {"0", "-0.0"},
                                                        {"3.0000001", "3.0"},
                                                        {"3", "3.0"},
                                                        {"1.0000005e-07", "1e-07"},
                                                        {"1000000000.5", "1000000001.0"},
                                                        {"5e-1", "0.5"},
                                                        {"nan", "nan"},
                                                        {"1e400", "10e399"},
                                                        {".5", "0.50"}})
    EXPECT_TRUE(same_output(printed, expected)) << printed << " " << expected;
  for (const auto& [printed, expected] :
       std::vector<std::pair<const char*, const char*>>{{"1000000999.5", "1000000000"},
                                                        {"1000000000.5", "1000000000"},
                                                        {"1000000001", "1e9"},
                                                        {"1.0000000001", "1"},
                                                        {"9007199254740993.0", "9007199254740992"},
                                                        {"0.0000001", "0"},
                                                        {"7", "007"},
                                                        {"+5", "5"},
                                                        {"-0", "0"},
                                                        {"NaN", "nan"},
                                                        {"inf", "1e999"},
                                                        {"1e999", "1e998"},
                                                        {"1.2.3", "1.2"},
                                                        {"1e", "1.0"},
                                                        {"e5", "0.0"},
                                                        {".", "0.0"},
                                                        {"1e5.0", "100000.0"},
                                                        {"1e99999999999999999999", "1.0"},
                                                        {"--1.0", "-1.0"},
                                                        {"0x1p3", "8.0"},
                                                        {"1e+-3", "0.001"}})
    EXPECT_FALSE(same_output(printed, expected)) << printed << " " << expected;
}

TEST_F(CodeReward, APassIsOneAndAFailureSaysWhy) {
  const Task add = task_of(kAdd);
  expect(add, "def add(a, b): return a + b", 1, "");
  expect(add, "Sure!\n```python\nimport math\nadd = lambda a, b: math.floor(a + b)\n```", 1, "");
  expect(add, "def add(a, b): return abs(a) + abs(b)", 0, "wrong answer on test 2");
  expect(add, "def add(a, b) return a + b", 0, "SyntaxError: line 1: expected ':'");
  expect(add, "def add(a, b): return a + c", 0, "NameError: name 'c' is not defined in test 1");
  expect(add, "def other(a, b): return a + b", 0, "NameError");
  expect(add, "", 0, "no program");
  expect(add, "x = '" + std::string(70 << 10, 'x') + "'", 0, "too long");
  expect(add, "def add(a, b): return len(bytes(10**10))", 0, "MemoryError");
  EXPECT_EQ(judge(add, "def add(a, b): return abs(a) + abs(b)", ", partial = true").score, 2.0 / 3.0);
  EXPECT_NE(judge(add, "import time\ndef add(a, b):\n  if a == 5: time.sleep(20)\n  return a + b",
                  ", sandbox = {wall_seconds = 1}")
                .note.find("out of time in test 3"),
            std::string::npos);
  EXPECT_NE(judge(add, kLoop, ", sandbox = {wall_seconds = 1}").note.find("out of time in the program itself"),
            std::string::npos);
}

TEST_F(CodeReward, AStubIsCompletedAndItsHelpersAreTheTasks) {
  const Task task =
      task_of(JsonObject{{"prompt", "def twice(x):\n    return 2 * x\n\ndef f(x):\n    \"\"\"Twice twice.\"\"\"\n"},
                         {"entry_point", "f"},
                         {"test", "def check(c):\n    for i in range(50): assert c(i) == twice(twice(i))"}});
  expect(task, "    return 4 * x\n", 1, "");
  expect(task, "```python\ndef f(x):\n    return 4 * x\n```", 1, "");
  expect(task, "    return 2 * x\n", 0, "wrong answer on test 1");
  expect(task, "    return 0\ndef twice(x):\n    return 0\n", 0, "wrong answer");
}

TEST_F(CodeReward, ClassesGeneratorsAndPlainDataComeBack) {
  const Task task = asserts(
      {"p = Pair(1, 2); p.b = 5; assert total([p, Pair(3, 4)]) == 13 and p.b == 5 and p.a == 1",
       "assert list(count(3)) == [0, 1, 2]", "assert tree(2) == {'a': [(1, 2.5), {3}], None: True, 'b': b'x'}",
       "assert word() == 'w' and len(word()) == 1", "from fractions import Fraction\nassert half() == Fraction(1, 2)",
       "assert math.pi > LIMIT", "assert point() == (1, 2)",
       "try:\n  fails()\n  assert False\nexcept ValueError as e: assert str(e) == 'no'"});
  expect(
      task,
      "import math, collections, fractions\nLIMIT = 3\nclass Pair:\n  def __init__(self, a, b): self.a, self.b = a, b\n"
      "def total(ps): return sum(p.a + p.b for p in ps)\ndef count(n): yield from range(n)\n"
      "def tree(n): return {'a': [(1, 2.5), {3}], None: True, 'b': b'x'}\nclass Word(str): pass\ndef word(): return "
      "Word('w')\n"
      "def half(): return fractions.Fraction(1, 2)\ndef point(): return collections.namedtuple('P', 'x y')(1, 2)\ndef "
      "fails(): raise "
      "ValueError('no')",
      1, "");
}

TEST_F(CodeReward, CallsMayBeMethodsOfSolution) {
  const Task task = task_of(R"({"fn_name": "pair", "inputs": [[1, 2], "3\n4"], "outputs": [[[1, 2]], "[3, 4]"]})");
  expect(task, "def pair(a, b): return (a, b)", 1, "");
  expect(task, "class Solution:\n  def pair(self, a, b): return [a, b]", 1, "");
  expect(task, "def pair(a, b): return [b, a]", 0, "wrong answer on test 1: expected [[1, 2]], got [2, 1]");
}

TEST_F(CodeReward, ProgramsReadAndPrint) {
  const Task task = task_of(kEcho);
  expect(task, "a, b = map(int, input().split())\nprint(a + b)", 1, "");
  expect(task, "import sys\nif __name__ == '__main__': print(sum(map(int, open('/dev/stdin').read().split())))", 1, "");
  expect(task, "print(3)", 0, "wrong answer on test 2");
  expect(task, "print(3); raise SystemExit(1)", 0, "on test 1");
  expect(task, "print(1 / 0)", 0, "ZeroDivisionError");
  EXPECT_EQ(judge(task, "print(3)", ", partial = true").score, 0.5);
  EXPECT_NE(judge(task, kLoop, ", sandbox = {wall_seconds = 0.5}").note.find("out of time on test 1"),
            std::string::npos);
}

TEST_F(CodeReward, WhatIsNotRightDoesNotPass) {
  const Task add = task_of(kAdd);
  for (const char* program : {
           "print('pass'); print('all tests passed')",
           "import sys\nsys.exit(0)",
           "import os\nos._exit(0)",
           "import os\ndef add(a, b): os._exit(0)",
           "def add(a, b): raise SystemExit(0)",
           "def add(a, b): raise StopIteration",
           "import atexit, os\natexit.register(os._exit, 0)",
           // equal to everything, or to a number
           "class Any:\n  def __eq__(self, other): return True\n  def __ne__(self, other): return False\n  __hash__ = "
           "None\ndef add(a, b): return "
           "Any()",
           "class Any(int):\n  def __eq__(self, other): return True\ndef add(a, b): return Any(0)",
           "import unittest.mock\ndef add(a, b): return unittest.mock.ANY",
           // builtins of Python in the tests' process
           "import builtins\nbuiltins.AssertionError = SystemExit\nbuiltins.int.__eq__ = lambda a, b: True\ndef add(a, "
           "b): return 0",
           "__builtins__ = {}\ndef add(a, b): return 0",
           "def exec(*a): pass\ndef compile(*a): pass\ndef len(x): return 3\nclass AssertionError(Exception): "
           "pass\ndef add(a, b): return 0",
           "import sys\nsys.modules['__main__'].judge = lambda *a: dict(passed=3, total=3, "
           "note='')\nsys.modules['__main__'].tell = print\ndef "
           "add(a, b): return 0",
           "import sys\nfor f in sys._current_frames().values():\n  while f: f.f_locals.update(passed=3); f = "
           "f.f_back\ndef add(a, b): return 0",
           // searching for the tests and the verdict's channel
           "import gc\nfound = [o for o in gc.get_objects() if isinstance(o, dict) and 'nonce' in o]\ndef add(a, b): "
           "return found[0]['calls']",
           "import os\nfor d in range(64):\n  try: os.write(d, b'{\"passed\": 3, \"total\": 3, \"note\": \"\"}\\n')\n  "
           "except OSError: pass\ndef "
           "add(a, b): return 0",
           "import os\nfor d in range(64):\n  try: os.close(d)\n  except OSError: pass\ndef add(a, b): return 0",
           "import os, signal\nos.kill(os.getppid(), signal.SIGINT)\ndef add(a, b): return 0",
           "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\ndef add(a, b): return 0",
           "open('json.py', 'w').write('raise SystemExit(0)')\ndef add(a, b): return 0",
           "f = open('/proc/%d/mem' % __import__('os').getppid(), 'r+b')\ndef add(a, b): return 0",
           // answering for the worker: two answers to one request, an object that is not data
           "import sys\nmain = sys.modules['__main__']\nmain.WorkerPickler.reducer_override = lambda self, v: (exec, "
           "(\"raise SystemExit\",))\ndef "
           "add(a, b): return add",
           "import sys, pickle\nmain = sys.modules['__main__']\nmain.WorkerPickler = pickle.Pickler\nclass E:\n  def "
           "__reduce__(self): return eval, "
           "('3',)\n"
           "def add(a, b): return E()",
       })
    EXPECT_EQ(judge(add, program).score, 0) << program;
  // Names that the tests take from Python.
  const Task sorted = asserts({"assert set(f(3)) == set([1, 2, 3])", "assert sorted(f(2)) == [1, 2]"});
  EXPECT_EQ(judge(sorted, "def set(x): return 0\ndef sorted(x): return [1, 2]\ndef f(n): return [9]").score, 0);
  EXPECT_EQ(
      judge(task_of(JsonObject{{"code", "def sum(a, b): pass"}, {"test_list", JsonArray{"assert sum(1, 2) == 3"}}}),
            "def sum(a, b): return a + b")
          .score,
      1);
  EXPECT_EQ(judge(task_of(kEcho), "import os\nprint(open('/proc/%d/environ' % os.getppid()).read())").score, 0);
}

TEST_F(CodeReward, ManyThreadsJudgeAtOnce) {
  const auto reward = make_reward("code");
  const Task add = task_of(kAdd);
  std::vector<std::thread> threads;
  std::array<double, 8> scores{};
  for (size_t i = 0; i < scores.size(); ++i)
    threads.emplace_back([&, i] {
      for (int k = 0; k < 3; ++k)
        scores[i] +=
            reward
                ->score(add, {.ids = {}, .text = concat("def add(a, b): return a + b + ", i % 2), .finish_reason = {}})
                .score;
    });
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < scores.size(); ++i) EXPECT_EQ(scores[i], i % 2 == 0 ? 3 : 0);
}

TEST_F(CodeReward, SomeOfHumanEvalAndMbppAreRightAndBrokenOnesAreNot) {
  HONE_SHARED_OR_SKIP(humaneval, "data/eval/humaneval.jsonl");
  HONE_SHARED_OR_SKIP(mbpp, "data/eval/mbpp.jsonl");
  const auto each = [](const std::filesystem::path& file, const char* solution, int64_t every) {
    read_jsonl(file, [&](const Json& row, int64_t line) {
      if (line % every != 0) return;
      const Task task{.id = concat(line), .prompt = {}, .messages = {}, .answer = {}, .columns = row};
      const std::string right = row.at(solution).as_string();
      EXPECT_EQ(judge(task, right).score, 1) << line << " " << judge(task, right).note;
      EXPECT_EQ(judge(task, right + "\n    return None if").score, 0) << line;
      EXPECT_EQ(judge(task, "    return None\n").score, 0) << line;
    });
  };
  each(humaneval, "canonical_solution", 20);
  each(mbpp, "code", 120);
}

TEST(CodeRewardSettings, WhatIsMissingIsRefusedBeforeARun) {
  const auto message = [](const std::string& spec) -> std::string {
    try {
      make_reward(spec);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(message("{kind = 'code', python = 'python3.999'}").find("python: there is no python3.999"),
            std::string::npos);
  EXPECT_NE(message("{kind = 'code', python = '/no/python3'}").find("there is no program /no/python3"),
            std::string::npos);
  EXPECT_NE(message("{kind = 'code', sandbox = {allow_missing = ['walls']}}").find("unknown guard 'walls'"),
            std::string::npos);
  EXPECT_NE(message("{kind = 'code', sandbox = {memory_mb = 1}}").find("memory_mb"), std::string::npos);
}

TEST(CodeRewardSettings, AMissingGuardIsRefusedWhereOneIsToJudgeAndNotWhereSettingsAreRead) {
  const PretendedGuards none(without_namespaces());
  for (const char* spec :
       {"{kind = 'code'}", "{kind = 'composite', parts = [{kind = 'exact'}, {kind = 'code', name = 'tests'}]}"}) {
    RewardSpec out;
    Config::from_text(std::string("reward = ") + spec, "recipe.toml").read([&](Fields& f) { f("reward", out, ""); });
    try {
      out.check();
      FAIL() << spec;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("guards are missing on this machine: user ("), std::string::npos)
          << error.what();
    }
    EXPECT_THROW(make_reward(spec), Error);
  }
  make_reward("{kind = 'code', sandbox = {allow_missing = ['user', 'pid', 'mount', 'net', 'ipc', 'seccomp']}}");
}

}  // namespace
}  // namespace hone::test
