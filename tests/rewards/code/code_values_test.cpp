// The format between judge and worker: values arrive unchanged, and arbitrary bytes are rejected or are plain values.
#include "rewards/code/code_harness.h"
#include "tests/rewards/code/code_run.h"

namespace hone {

std::string_view code_values();

namespace test {
namespace {

// Returns the output of a script that runs after the text of code_values.py.
std::string run_after_values(const std::string& script) {
  SandboxConfig config;
  config.memory_mb = 2048;
  const SandboxOutcome outcome =
      Sandbox(config).run({.command = {"/usr/bin/python3", "-s", "-B", "-c", concat(code_values(), script)}});
  const auto* done = std::get_if<SandboxFinished>(&outcome);
  if (!done) return std::get<SandboxRefused>(outcome).reason;
  return done->out + done->err;
}

class CodeValues : public CodeReward {};

TEST_F(CodeValues, PlainValuesArriveAsTheyWere) {
  EXPECT_EQ(run_after_values(R"(
import collections, datetime, decimal, enum, fractions, math
def none(value): raise TypeError
def there(value): return unpack_value(pack_value(value, none), none)
Point = collections.namedtuple('Point', 'x y')
class Color(enum.IntEnum): RED = 7
class Word(str):
  def __eq__(self, o): return True
  def __str__(self): return 'other'
  __hash__ = None
utc = datetime.timezone.utc
for v in (None, True, False, 0, 1, -1, 127, 128, -128, -129, 255, 1 << 62, -(1 << 63), 1 << 4000, -(1 << 4000) + 1, 0.0, 1.5, -1e300, math.inf, -math.inf, '', 'x',
          'ä\ud800\0\U0010ffff', b'', b'\xff\0', [], [1, [2, [3]]], (), (1, 'a', None), set(), {1, 2}, frozenset({3}), {}, {'a': 1, None: [2], (1, 2): {}},
          2 + 3j, bytearray(b'x'), range(3), range(10, 0, -3), fractions.Fraction(-3, 4), decimal.Decimal('-1.50'), decimal.Decimal('Infinity'),
          collections.OrderedDict([(2, 1), (1, 2)]), collections.Counter('abca'), collections.deque([1, 2], 5), collections.deque(),
          datetime.date(2020, 2, 29), datetime.time(1, 2, 3, 4), datetime.timedelta(-1, 2, 3), datetime.datetime(2020, 1, 2, 3, 4, 5, 6),
          datetime.datetime(2020, 1, 2, tzinfo=utc), int, list):
  got = there(v)
  if type(got) is not type(v) or got != v or repr(got) != repr(v): print('differs', repr(v), repr(got))
for v, plain in ((Point(1, 2), (1, 2)), (Color.RED, 7), (Word('a'), 'a'), (collections.defaultdict(int, a=1), {'a': 1})):
  if type(there(v)) is not type(plain) or there(v) != plain: print('differs', v, there(v))
print(math.isnan(there(math.nan)), math.copysign(1, there(-0.0)), list(there({3: 1, 1: 2})))
)"),
            "True -1.0 [3, 1]\n");
}

TEST_F(CodeValues, BytesThatAreNoValueAreRefused) {
  EXPECT_EQ(run_after_values(R"(
import fractions, random
def plain(v, depth=0):
  if type(v) in (list, tuple, set, frozenset): return all(plain(m) for m in v)
  if type(v) is dict: return all(plain(k) and plain(m) for k, m in v.items())
  return v is None or type(v).__name__ in EXTENSIONS or type(v).__name__ in PLAIN or v in TYPES.values() or type(v) is str
def number(n): return 'object %d' % n
r = random.Random(1)
message = pack_value({'a': [1.5, 'x', {2, 3}, (None, b'z'), range(3)], 1 << 70: fractions.Fraction(1, 3), 'l': [[], ()]}, None)
kept = 0
for i in range(40000):
  data = bytearray(message if i % 2 else r.randbytes(r.randrange(1, 60)))
  for k in range(r.randrange(1, 4)):
    at = r.randrange(len(data) + 1)
    data[at:at + r.randrange(3)] = bytes([r.choice(b'NTFifsbltezdxh\0\1\2\xff')]) * r.randrange(3)
  try:
    value = unpack_value(bytes(data), number)
  except Refused: continue
  kept += 1
  if not plain(value): print('not plain', value)
for i in range(len(message)):
  try: print('cut', unpack_value(message[:i], number))
  except Refused: pass
for data in (b'l\1\0\0\0' * 200 + b'N', b'l\xff\xff\xff\xff', b'd\1\0\0\0l\0\0\0\0N', b's\1\0\0\0\xff', b'i\xff\xff\xff\x7f', b'NN', b'', b'?'):
  try: print('read', unpack_value(data, number))
  except Refused: pass
for value in ([[]] * (5 << 20), 1 << (9 << 20)):
  try: pack_value(value, None); print('packed')
  except ValueError: pass
print(kept > 0)
)"),
            "True\n");
}

TEST(CodeHarness, AJobIsWrittenInTheSameFormat) {
  EXPECT_EQ(harness_job(JsonArray{}), std::string("l\0\0\0\0", 5));
  EXPECT_EQ(harness_job("a\xff"), std::string("s\4\0\0\0a\xEF\xBF\xBD", 9));
  EXPECT_EQ(harness_job(JsonObject{{"n", JsonArray{nullptr, true, -2, 0.5}}}),
            std::string("d\1\0\0\0s\1\0\0\0nl\4\0\0\0NTi\10\0\0\0\xFE\xFF\xFF\xFF\xFF\xFF\xFF\xFF"
                        "f\0\0\0\0\0\0\xE0?",
                        40));
}

TEST(CodeHarness, AReportIsReadFromLinesThatBeginWithTheNonce) {
  const HarnessReport over =
      read_harness_report("x passed 9 no\nN test 0\nN test 1\nN passed 1 wrong answer\nnothing", "N");
  EXPECT_EQ(over.test, 1);
  EXPECT_EQ(over.passed, 1);
  EXPECT_EQ(over.note, "wrong answer");
  const HarnessReport cut = read_harness_report("N test 0\nN test 2", "N");
  EXPECT_EQ(cut.test, 2);
  EXPECT_FALSE(cut.passed);
  EXPECT_EQ(read_harness_report("", "N").test, -1);
  EXPECT_EQ(read_harness_report("N failed why", "N").failure, "why");
}

}  // namespace
}  // namespace test
}  // namespace hone
