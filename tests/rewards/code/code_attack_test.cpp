// Programs that try to pass without being right: by return values, by bytes in the channel to the judge, by access to
// other objects. Each runs in the three styles of tests, with all guards and with only seccomp and limits.
#include <thread>

#include "tests/rewards/code/code_run.h"

namespace hone::test {
namespace {

class CodeAttack : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists("/usr/bin/python3")) GTEST_SKIP() << "no /usr/bin/python3";
    if (GetParam() && !Sandbox({}).refusal().empty()) GTEST_SKIP() << Sandbox({}).refusal();
    if (!available_guards().guards.seccomp) GTEST_SKIP() << "no seccomp";
    if (!GetParam()) few_.emplace(without_namespaces());
  }
  std::string keys(double wall_seconds = 10) const {
    return concat(", sandbox = {wall_seconds = ", wall_seconds,
                  GetParam() ? "" : ", processes = 1024, allow_missing = ['user', 'pid', 'mount', 'net', 'ipc']", "}");
  }
  void expect_no_pass(const Task& task, const std::string& program, double wall_seconds = 10) const {
    const RewardScore got = judge_program(task, program, keys(wall_seconds));
    EXPECT_EQ(got.score, 0) << program;
    EXPECT_FALSE(got.failed) << got.note << "\n" << program;
    EXPECT_FALSE(got.note.empty()) << program;
  }
  void expect_no_pass_in_any_style(const std::string& program, const std::string& expected = "7",
                                   double wall_seconds = 10) const {
    std::vector<std::jthread> threads;  // such programs mostly wait
    for (const Task& task : in_all_styles(expected))
      threads.emplace_back([=, this] { expect_no_pass(task, program, wall_seconds); });
  }
  std::optional<PretendedGuards> few_;
};

// The tools of attackers: `channel`, the worker's end of the pipe to the judge; frame(ticket, message); the harness's
// functions in `main`.
constexpr const char* kTools = R"(
import os, sys, struct, threading, time
main = sys.modules['__main__']
frame_of_work = sys._getframe()
while 'link' not in frame_of_work.f_locals: frame_of_work = frame_of_work.f_back
link = frame_of_work.f_locals['link']
channel = link.sink.fileno()
def frame(ticket, message): return ticket + len(message).to_bytes(8, 'little') + message
def text(t): return b's' + len(t).to_bytes(4, 'little') + t
def pair(value): return b't\x02\0\0\0' + text(b'ok') + value
seven = b'i\x01\0\0\0\x07'
def answer_with(message):
  main.pack_value = lambda value, number_of: message
)";

TEST_P(CodeAttack, WhatIsReturnedIsDataOrFails) {
  for (const char* program : {
           "class Any:\n  def __eq__(self, o): return True\n  def __ne__(self, o): return False\n  __hash__ = "
           "None\ndef f(x): return Any()",
           "class Any:\n  def __eq__(self, o): return True\n  __class__ = int\n  def __int__(self): return 7\n  "
           "__index__ = __int__\ndef f(x): "
           "return Any()",
           "class Any(int):\n  def __eq__(self, o): return True\n  def __hash__(self): return 7\ndef f(x): return "
           "Any(0)",
           "class Any(str):\n  def __eq__(self, o): return True\n  def __hash__(self): return 7\ndef f(x): return "
           "Any()",
           "class Any(list):\n  def __eq__(self, o): return True\ndef f(x): return Any()",
           "class Any(tuple):\n  def __eq__(self, o): return True\ndef f(x): return [Any()]",
           "class Any(dict):\n  def __eq__(self, o): return True\ndef f(x): return Any()",
           "import fractions\nclass Any(fractions.Fraction):\n  def __eq__(self, o): return True\ndef f(x): return "
           "Any(1, 2)",
           "import decimal\nclass Any(decimal.Decimal):\n  def __eq__(self, o): return True\ndef f(x): return Any(1)",
           "import collections\nclass Any(collections.Counter):\n  def __eq__(self, o): return True\ndef f(x): return "
           "Any()",
           "import datetime\nclass Any(datetime.date):\n  def __eq__(self, o): return True\ndef f(x): return Any(1, 1, "
           "1)",
           "import unittest.mock\ndef f(x): return unittest.mock.ANY",
           "import unittest.mock\ndef f(x): return unittest.mock.MagicMock()",
           "import fractions\nfractions.Fraction.__eq__ = lambda a, b: True\ndef f(x): return fractions.Fraction(1, 2)",
           "class Meta(type):\n  def __eq__(self, o): return True\n  __hash__ = None\nclass f(metaclass=Meta):\n  def "
           "__init__(self, x): pass\n  def "
           "__eq__(self, o): return True",
           "class E:\n  def __reduce__(self): return eval, ('7',)\ndef f(x): return E()",
           "class E:\n  def __getattribute__(self, n): return lambda *a: True\ndef f(x): return E()",
           "def f(x): return lambda *a: True",
           "def f(x): return NotImplemented",
           "def f(x): return type('T', (), {'__eq__': lambda *a: True})",
           "import itertools\ndef f(x): return itertools.count()",
           "def f(x):\n  out = []\n  for i in range(10**5): out = [out]\n  return out",
           "def f(x):\n  out = []\n  out.append(out)\n  return out",
           "def f(x): return 1 << 10**8",
           "def f(x): return 10**(10**6)",
           "def f(x): return [0] * 10**8",
           "def f(x): return 'x' * (200 << 20)",
           "def f(x): return f(x)",
           "import sys\nsys.setrecursionlimit(10**9)\ndef f(x): return f(x)",
           "def f(x): return float('nan')",
           "def f(x): return {i * ((1 << 61) - 1) for i in range(1000)}",
       })
    expect_no_pass_in_any_style(program, "7", 2);
}

TEST_P(CodeAttack, MethodsOfAnObjectDoNotStandForThoseOfAValue) {
  const std::string yes =
      "class Yes:\n  def __getattr__(self, n): return lambda *a: True\n  def __getitem__(self, i): return True\n  def "
      "__contains__(self, i): return "
      "True\n"
      "  def startswith(self, *a): return True\n  def count(self, *a): return 2\n  def keys(self): return {'a'}\n";
  for (const char* test :
       {"assert f(3).startswith('abc')", "assert f(3).count(5) == 2", "assert f(3)['a']", "assert f(3).issubset({1})",
        "assert f(3).endswith('x') and f(3).isupper()", "assert 5 in f(3)", "assert f(3) != 4",
        "assert not (f(3) == 4)", "assert 4 != f(3)", "assert [f(3)] != [4]", "assert (f(3), 1) not in [(2, 1)]"})
    for (const char* made : {"def f(x): return Yes()", "class f(Yes):\n  def __init__(self, x): pass", "f = Yes"})
      expect_no_pass(asserts({test}), yes + made, 1);
}

TEST_P(CodeAttack, BytesInTheChannelAreNoVerdict) {
  const std::string tools = kTools;
  for (const char* program : {
           // the BUILD opcode of a pickle that sets Fraction.__eq__ in a judge that unpickles
           "answer_with(b'\\x80\\x04cfractions\\nFraction\\nN}\\x8c\\x06__eq__cbuiltins\\nlist\\ns\\x86b.')\ndef f(x): "
           "return 1",
           "message = "
           "b'\\x80\\x04cfractions\\nFraction\\nN}\\x8c\\x06__eq__cbuiltins\\nlist\\ns\\x86b.'\nos.write(channel, "
           "len(message).to_bytes(8, "
           "'little') + "
           "message)\ndef f(x): return 1",
           // unknown kinds, and parts that a kind does not have
           "def x(name, parts): return b'x' + text(name) + b't' + len(parts).to_bytes(4, 'little') + b''.join(parts)\n"
           "answer_with(pair(x(b'eval', [text(b'7')])))\ndef f(x): return 1",
           "def x(name, parts): return b'x' + text(name) + b't' + len(parts).to_bytes(4, 'little') + b''.join(parts)\n"
           "answer_with(pair(x(b'type', [text(b'eval')])))\ndef f(x): return 1",
           "def x(name, parts): return b'x' + text(name) + b't' + len(parts).to_bytes(4, 'little') + b''.join(parts)\n"
           "answer_with(pair(x(b'Fraction', [seven, b'i\\x01\\0\\0\\0\\0'])))\ndef f(x): return 1",
           "answer_with(pair(b'h' + seven))\ndef f(x): return 1",
           "answer_with(pair(b'h' + text(b'link')))\ndef f(x): return 1",
           "answer_with(pair(b'l\\xff\\xff\\xff\\xff'))\ndef f(x): return 1",
           "answer_with(pair(b's\\xff\\xff\\xff\\x7f'))\ndef f(x): return 1",
           "answer_with(pair(text(b'\\xff\\xfe')))\ndef f(x): return 1",
           "answer_with(pair(b'l\\x01\\0\\0\\0' * 100000 + seven))\ndef f(x): return 1",
           "answer_with(pair(b'e\\x01\\0\\0\\0l\\0\\0\\0\\0'))\ndef f(x): return 1",
           "answer_with(pair(b'l' + (60 << 20).to_bytes(4, 'little') + b'N' * (60 << 20)))\ndef f(x): return 1",
           "answer_with(pair(seven) + b'N')\ndef f(x): return 1",
           "answer_with(seven)\ndef f(x): return 1",
           "answer_with(b't\\x03\\0\\0\\0' + text(b'raise') + text(b'exec') + text(b'7'))\ndef f(x): return 1",
           "answer_with(b't\\x03\\0\\0\\0' + text(b'raise') + seven + seven)\ndef f(x): return 1",
           "answer_with(b'')\ndef f(x): return 1",
           // frames: too long, incomplete, without a request, for other requests
           "os.write(channel, bytes(8) + b'\\xff' * 8)\ndef f(x): return 1",
           "os.write(channel, bytes(8) + (1 << 40).to_bytes(8, 'little') + bytes(1000))\ndef f(x): return 1",
           "for i in range(50): os.write(channel, frame(bytes(8), pair(seven)))\ndef f(x): return 1",
           "for i in range(50): os.write(channel, frame(bytes(8), pair(b'd\\x01\\0\\0\\0' + text(b'f') + b'h' + "
           "seven)))\ndef f(x): return 1",
           "def f(x):\n  for i in range(50): os.write(channel, frame(ticket, pair(seven)))\n  return 1\nticket = "
           "frame_of_work.f_locals['ticket']",
           // more names than requested
           "answer_with(pair(b'd\\x02\\0\\0\\0' + text(b'f') + b'h' + seven + text(b'abs') + b'h' + seven))\ndef f(x): "
           "return 1",
           // in the middle of another answer, from a thread, from a child, at the end
           "def write():\n  while True: os.write(channel, frame(bytes(8), "
           "pair(seven)))\nthreading.Thread(target=write, daemon=True).start()\ndef "
           "f(x):\n  "
           "time.sleep(0.1)\n  return 1",
           "def f(x):\n  if os.fork() == 0:\n    time.sleep(0.05); os.write(channel, frame(bytes(8), pair(seven))); "
           "os._exit(0)\n  os._exit(0)",
           "import atexit\natexit.register(lambda: os.write(channel, frame(bytes(8), pair(seven))))\ndef f(x): "
           "sys.exit(0)",
           "for d in range(64):\n  try: os.write(d, b'passed 1\\nNONCE passed 1\\n{\"passed\": 1}\\n')\n  except "
           "OSError: pass\ndef f(x): "
           "os._exit(0)",
           "os.close(channel)\ndef f(x): return 1",
           "os.dup2(os.open('/dev/null', os.O_RDWR), channel)\ndef f(x): return 1",
           "null = os.open('/dev/zero', os.O_RDWR)\nfor d in range(3, 16): os.dup2(null, d)\ndef f(x): return 1",
       })
    expect_no_pass_in_any_style(tools + program, "7", 1);
}

TEST_P(CodeAttack, RandomAnswersNeverPassAndNeverBreakTheJudge) {
  for (int seed = 0; seed < 24; ++seed)
    expect_no_pass(asserts({"assert f(3) == 7"}), concat(kTools, "import random\nr = random.Random(", seed, R"()
real = main.pack_value
def mangled(value, number_of):
  out = bytearray(real(value, number_of) if r.random() < 0.8 else r.randbytes(r.randrange(40)))
  for i in range(r.randrange(1, 4)):
    at = r.randrange(len(out) + 1)
    out[at:at + r.randrange(3)] = r.randbytes(r.randrange(3)) if r.random() < 0.5 else bytes([r.choice(b'NTFifsbltezdxh')])
  return bytes(out)
main.pack_value = mangled
def f(x): return {'a': [1.5, 'x', {2, 3}, (None, b'z')]}
)"),
                   2);
}

TEST_P(CodeAttack, TheJudgeIsOutOfReach) {
  for (const char* program : {
           "import sys\nsys.exit(0)",
           "import os\ndef f(x): os._exit(0)",
           "import os, signal\nfor p in (1, os.getppid(), 0, -1):\n  for s in (signal.SIGKILL, signal.SIGTERM, "
           "signal.SIGINT, signal.SIGSTOP):\n    "
           "try: p and p != -1 "
           "and os.kill(p, s)\n    except OSError: pass\ndef f(x): return 1",
           "import builtins\nbuiltins.AssertionError = SystemExit\nbuiltins.int.__eq__ = 1\ndef f(x): return 1",
           "import sys\nmain = sys.modules['__main__']\nfor n in dir(main):\n  if callable(getattr(main, n)) and n != "
           "'pack_value': setattr(main, n, "
           "lambda *a, **k: 7)\ndef f(x): return 1",
           "import sys\nsys.modules['builtins'] = sys.modules['__main__']\nsys.modules['_ast'] = "
           "sys.modules['solution']\ndef f(x): return 1",
           "import os\nfor n in ('json', 'random', 'math', 'ctypes', 'time', 'fractions'):\n  for d in ('.', "
           "os.environ['HOME']):\n    open(d + '/' "
           "+ n + '.py', "
           "'w').write('import os\\nos._exit(0)')\ndef f(x): return 1",
           "import ctypes, os\nlibc = ctypes.CDLL(None)\nfor p in (1, os.getppid()): libc.ptrace(16, p, 0, 0); "
           "libc.ptrace(0x4206, p, 0, 0)\ndef "
           "f(x): return 1",
           "import ctypes, fcntl, os\nfor d in range(3, 16):\n  try: fcntl.fcntl(d, fcntl.F_SETOWN, os.getppid()); "
           "fcntl.fcntl(d, fcntl.F_SETFL, "
           "os.O_ASYNC)\n  except OSError: pass\n"
           "def f(x): return 1",
           "import gc\nfor o in gc.get_objects():\n  if isinstance(o, dict) and ('passed' in o or 'tests' in o): "
           "o['passed'] = 1\ndef f(x): return 1",
       })
    expect_no_pass_in_any_style(program, "7", 2);
}

TEST_P(CodeAttack, ExpectedValuesCannotBeRead) {
  // Searches all memory and readable files of this process for the text and returns it.
  const std::string program = R"(
import gc, os, sys
begin = b's3c' + b'ret-'
found = []
def look(t):
  t = t.encode('utf-8', 'replace') if isinstance(t, str) else t
  at = t.find(begin)
  while at >= 0 and not found:
    if t[at + len(begin):at + len(begin) + 5].isdigit(): found.append(t[at:at + len(begin) + 5].decode())
    at = t.find(begin, at + 1)
def read(path):
  try: file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
  except OSError: return
  try: look(os.read(file, 1 << 22))
  except OSError: pass
  os.close(file)
def search():
  for o in gc.get_objects():
    try: look(repr(o)[:10000])
    except Exception: pass
  frame = sys._getframe()
  while frame:
    look(repr(frame.f_locals)[:100000] + repr(frame.f_globals)[:100000])
    frame = frame.f_back
  look(repr(sys.argv) + repr(dict(os.environ)))
  for d in range(64):
    try:
      if not os.get_blocking(d): continue
      look(os.pread(d, 1 << 20, 0))
    except OSError: pass
  for p in {1, os.getppid(), os.getpid() - 1, os.getpid() + 1}:
    for n in ('environ', 'cmdline', 'fd/0', 'fd/3', 'fd/4', 'fd/5', 'fd/6'): read('/proc/%d/%s' % (p, n))
    try:
      with open('/proc/%d/maps' % p) as maps, open('/proc/%d/mem' % p, 'rb', 0) as memory:
        if p == os.getpid(): continue
        for line in maps:
          if found or ' rw' not in line: continue
          low, high = (int(a, 16) for a in line.split()[0].split('-'))
          try: memory.seek(low); look(memory.read(min(high - low, 1 << 24)))
          except (OSError, ValueError, OverflowError): pass
    except OSError: pass
  for folder in ('.', '/tmp', os.environ['HOME'], '/dev/shm'):
    for n in os.listdir(folder) if os.path.isdir(folder) and os.access(folder, os.R_OK) else (): read(os.path.join(folder, n))
search()
def f(x):
  search()
  return found[0] if found else 'nothing'
)";
  for (const Task& task : in_all_styles("\"s3cret-31415\"")) {
    expect_no_pass(task, program);
    EXPECT_EQ(judge_program(task, "def f(x): return 's3cret-31415'", keys()).score, 1);
  }
}

TEST_P(CodeAttack, ATestThatExpectsAnExceptionIsNotPassedByDying) {
  for (const char* test : {"try:\n  f(-1)\nexcept Exception: pass\nelse: assert False",
                           "try:\n  f(-1)\n  ok = False\nexcept: ok = True\nassert ok",
                           "import contextlib\nwith contextlib.suppress(BaseException): assert f(-1)"})
    for (const char* end : {"os._exit(0)", "os.abort()", "os.closerange(3, 64)"})
      expect_no_pass(asserts({test}), concat("import os\ndef f(x): ", end), 2);
  EXPECT_EQ(judge_program(asserts({"try:\n  f(-1)\nexcept ValueError: pass\nelse: assert False"}),
                          "def f(x): raise ValueError", keys())
                .score,
            1);
}

TEST_P(CodeAttack, NamesThatATestDoesNotImportAreNeverTheProgram) {
  const std::string liar =
      "class Liar:\n  def __getattr__(self, n): return lambda *a, **k: True\n  def __call__(self, *a, **k): return "
      "True\n";
  for (const auto& [name, test] :
       std::vector<std::pair<const char*, const char*>>{{"math", "assert math.isclose(f(3), 7)"},
                                                        {"isclose", "assert isclose(f(3), 7)"},
                                                        {"sorted", "assert sorted(f(3)) == [7]"},
                                                        {"len", "assert len(f(3)) == 7"},
                                                        {"abs", "assert abs(f(3) - 7) < 1e-6"},
                                                        {"isinstance", "assert isinstance(f(3), float)"},
                                                        {"all", "assert all(f(3))"},
                                                        {"re", "assert re.fullmatch('a+', f(3))"},
                                                        {"np", "assert np.allclose(f(3), 7)"},
                                                        {"close", "assert close(f(3), 7)"},
                                                        {"close", "got = f(3)\nassert close(got, 7)"},
                                                        {"set", "assert set(f(3)) == {7}"},
                                                        {"Counter", "assert Counter(f(3)) == {7: 1}"},
                                                        {"__builtins__", "assert abs(f(3)) == 7"},
                                                        {"eval", "assert eval('f(3) == 7')"},
                                                        {"__import__", "import math\nassert math.sqrt(f(3)) == 7"}}) {
    const std::string program = concat(liar, name, " = Liar()\ndef f(x): return 1\n");
    expect_no_pass(asserts({test}), program);
    expect_no_pass(task_of(JsonObject{{"code", "import math\ndef f(x): return 7"}, {"test_list", JsonArray{test}}}),
                   program);
    std::string body = test;
    for (size_t at = 0; (at = body.find('\n', at)) != std::string::npos;) body.replace(at, 1, "\n  "), at += 3;
    expect_no_pass(task_of(JsonObject{
                       {"prompt", "def f(x):\n"}, {"entry_point", "f"}, {"test", concat("def check(f):\n  ", body)}}),
                   program);
  }
  // The names belong to Python's library or to the reference solution's imports.
  EXPECT_EQ(judge_program(asserts({"assert isclose(f(3), math.sqrt(49))"}), "def f(x): return 7", keys()).score, 1);
  EXPECT_EQ(judge_program(task_of(JsonObject{{"code", "from statistics import median\ndef f(x): return 7"},
                                             {"test_list", JsonArray{"assert f(3) == median([7])"}}}),
                          "def f(x): return 7", keys())
                .score,
            1);
  EXPECT_EQ(judge_program(asserts({"assert gcd(4, 6) == 2"}), "def gcd(a, b): return 2", keys()).score, 1);
  EXPECT_EQ(judge_program(asserts({"assert total([Pair(1, 2)]) == 3"}),
                          "class Pair:\n  def __init__(self, a, b): self.a, self.b = a, b\ndef total(p): return "
                          "sum(x.a + x.b for x in p)",
                          keys())
                .score,
            1);
}

TEST_P(CodeAttack, OfTwoNamesThatMeetNeitherIsTheProgram) {
  // One name states the verdict on the other's result in any form of test, or receives the expected value.
  const std::string liar =
      "class Liar:\n  def __getattr__(self, n): return lambda *a, **k: SAID\n  def __call__(self, *a, **k): return "
      "SAID\n";
  for (const auto& [name, test] : std::vector<std::pair<const char*, const char*>>{
           {"same", "assert same(f(3), 7) == True"},
           {"same", "assert same(f(3), 7) and True"},
           {"same", "ok = same(f(3), 7)\nassert ok"},
           {"same", "if not same(f(3), 7): raise AssertionError"},
           {"same", "if same(7): assert f(3) == 7"},
           {"same", "assert all(same(f(x), y) for x, y in [(3, 7)])"},
           {"same", "assert (lambda a, b: same(a, b))(f(3), 7)"},
           {"same", "def judge(g):\n  got = g(3)\n  assert same(got, 7)\njudge(f)"},
           {"same", "def run(x):\n  return f(x)\nassert same(run(3), 7)"},
           {"same", "got = []\ngot.append(f(3))\nassert same(got, [7])"},
           {"same", "for got in [f(3)]:\n  assert same(got, 7)"},
           {"same", "assert same(f(3))"},
           {"check", "check(f, 3, 7)"},
           {"assert_equal", "assert_equal(f(3), 7)"},
           {"self", "self.assertEqual(f(3), 7)"},
           {"torch", "assert torch.allclose(f(3), 7)"},
           {"pytest", "assert f(3) == pytest.approx(7)"},
           {"approx", "assert f(3) == approx(7)"},
           {"Approx", "assert f(3) == Approx(7)"},
           {"wanted", "assert max(f(3), wanted(7)) == 7"},
           {"norm", "assert norm(f(3)) == norm(7)"},
           {"cases", "for x, y in cases():\n  assert f(x) == y"},
       })
    for (const char* said : {"True", "1", "7"}) {
      std::string program = concat(liar, name, " = Liar()\ndef f(x): return 1\n");
      for (size_t at = 0; (at = program.find("SAID", at)) != std::string::npos;) program.replace(at, 4, said);
      expect_no_pass(asserts({test}), program);
    }
  // Names in separate statements belong to the program, and so do the names of the row.
  const std::string two = "def add(a, b): return a + b\ndef sub(a, b): return a - b";
  for (const std::vector<std::string>& tests : std::vector<std::vector<std::string>>{
           {"assert add(1, 2) == 3", "assert sub(3, 1) == 2"},
           {"got = add(1, 2)\nassert got == 3", "got = sub(3, 1)\nassert got == 2"},
           {"def check(f, x, y, want):\n  assert f(x, y) == want\ncheck(add, 1, 2, 3)\ncheck(sub, 3, 1, 2)"},
           {"assert add(add(1, 2), 3) == 6"},
       })
    EXPECT_EQ(judge_program(asserts(tests), two, keys()).score, 1) << tests[0];
  EXPECT_EQ(judge_program(task_of(JsonObject{{"code", two}, {"test_list", JsonArray{"assert sub(add(1, 2), 2) == 1"}}}),
                          two, keys())
                .score,
            1);
}

TEST_P(CodeAttack, TextThatATestEvaluatesNamesNothing) {
  const Task task = asserts({"assert eval(f(3)) == 7"});
  for (const char* text : {"__import__('os')._exit(0)", "[c for c in ().__class__.__base__.__subclasses__()]", "f(3)",
                           "(lambda: 7)()", "f'{7}'", "9**9**9**9"})
    expect_no_pass(task, concat("def f(x): return ", Json(text).dump()), 2);
  EXPECT_EQ(judge_program(task, "def f(x): return '(1 + 2.5) * 2'", keys()).score, 1);
}

INSTANTIATE_TEST_SUITE_P(Guards, CodeAttack, ::testing::Bool(),
                         [](const auto& one) { return one.param ? "All" : "WithoutNamespaces"; });

}  // namespace
}  // namespace hone::test
