// Old names of keys and values, and defaults that depend on other keys, in TOML and JSON.
#include <gtest/gtest.h>

#include "core/config/config.h"

namespace hone {
namespace {

struct Engine {
  int64_t max_num_seqs = 4;
  std::string recompute = "none";
  bool large = false;
  double rate = 1;
  void fields(Fields& f) {
    f.alias("max_sequences", "max_num_seqs");
    f("max_num_seqs", max_num_seqs, "sequences of a step");
    f.alias_value("recompute", "block", "full");
    f("recompute", recompute, "none | full");
    f("large", large, "a rate of 8 by default");
    if (large) f.default_if_absent("rate", 8);
    f("rate", rate, "how fast");
    f.require("max_num_seqs", max_num_seqs > 0, "max_num_seqs must be positive");
  }
};

Engine read(std::string_view text, std::vector<std::string> overrides = {}) {
  return Config::from_text(text, "e.toml", overrides).as<Engine>();
}
Engine read_json(std::string_view text) {
  Engine out;
  from_json(parse_json(text, "e"), "e", [&](Fields& f) { out.fields(f); });
  return out;
}
template <class Read>
std::string error_of(Read read) {
  try {
    read();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Alias, AnOldKeyIsReadAndNeverWritten) {
  Engine engine = read("max_sequences = 7");
  EXPECT_EQ(engine.max_num_seqs, 7);
  EXPECT_EQ(read_json(R"({"max_sequences": 7})").max_num_seqs, 7);
  EXPECT_EQ(to_toml([&](Fields& f) { engine.fields(f); }),
            "max_num_seqs = 7\nrecompute = \"none\"\nlarge = false\nrate = 1.0\n");
  EXPECT_NE(document_fields("e", [&](Fields& f) { engine.fields(f); })
                .find("| `max_num_seqs` | integer | `7` | sequences of a step (formerly `max_sequences`) |"),
            std::string::npos);
}

TEST(Alias, BothNamesAreAnErrorUnlessOneIsAnOverride) {
  EXPECT_EQ(error_of([] { read("max_num_seqs = 3\nmax_sequences = 7"); }),
            "e.toml:2:17: 'max_sequences' is the old name of 'max_num_seqs', and both are given: remove "
            "'max_sequences'");
  EXPECT_EQ(error_of([] { read_json(R"({"max_num_seqs": 3, "max_sequences": 7})"); }),
            "e: 'max_sequences' is the old name of 'max_num_seqs', and both are given: remove 'max_sequences'");
  EXPECT_EQ(read("max_num_seqs = 3", {"max_sequences=7"}).max_num_seqs, 7);
  EXPECT_EQ(read("max_sequences = 7", {"max_num_seqs=3"}).max_num_seqs, 3);
}

TEST(Alias, ErrorsOfAnOldKeyHaveItsPlace) {
  EXPECT_EQ(error_of([] { read("\nmax_sequences = 0"); }), "e.toml:2:17: max_num_seqs must be positive");
  EXPECT_EQ(error_of([] { read("max_sequences = true"); }),
            "e.toml:1:17: 'max_num_seqs' should be an integer, it is a boolean");
}

TEST(Alias, OneWarningForEachKey) {
  struct Other {
    int64_t value = 0;
    void fields(Fields& f) {
      f.alias("old_value_of_this_test", "value");
      f("value", value, "");
    }
  };
  testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) Config::from_text("old_value_of_this_test = 1", "o.toml").as<Other>();
  const std::string log = testing::internal::GetCapturedStderr();
  const size_t at = log.find("o.toml:1:26: old_value_of_this_test is now called value");
  EXPECT_NE(at, std::string::npos) << log;
  EXPECT_EQ(log.find("old_value_of_this_test", at + 20), std::string::npos) << log;
}

TEST(AliasValue, AnOldValueIsReadAsItsNewName) {
  EXPECT_EQ(read("recompute = 'block'").recompute, "full");
  EXPECT_EQ(read_json(R"({"recompute": "block"})").recompute, "full");
  EXPECT_EQ(read("recompute = 'none'").recompute, "none");
}

TEST(DefaultIfAbsent, CountsWhereTheKeyIsNotGiven) {
  EXPECT_EQ(read("large = true").rate, 8);
  EXPECT_EQ(read("rate = 2\nlarge = true").rate, 2);
  EXPECT_EQ(read("").rate, 1);
  EXPECT_EQ(read_json(R"({"large": true})").rate, 8);
  Engine engine = read("large = true");
  engine.rate = 3;
  EXPECT_NE(to_toml([&](Fields& f) { engine.fields(f); }).find("rate = 3.0"), std::string::npos);
  EXPECT_EQ(engine.rate, 3);
}

}  // namespace
}  // namespace hone
