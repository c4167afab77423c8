// hone data convert, and commands that read rows of other containers.
#include "core/io/rows/rows.h"
#include "tests/cli/command_case.h"

namespace hone::test {
namespace {

class DataConvertTest : public CommandCase {
 protected:
  std::string path(const char* name) const { return (folder.path() / name).string(); }
};

TEST_F(DataConvertTest, WritesTheContainerOfTheNameAndTheForm) {
  const std::string in =
      write("in.json", R"([{"instruction": "a", "output": "b"}, {"instruction": "c", "output": "d"}])");
  ASSERT_EQ(run_hone({"data", "convert", in, "--to", path("out.parquet"), "--format", "openai"}).code, 0);
  const Finished shown = run_hone({"data", "convert", path("out.parquet"), "--to", "-", "--rows", "1"});
  EXPECT_EQ(shown.code, 0) << shown.err;
  EXPECT_EQ(shown.out,
            "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
            "\"content\": \"b\"}]}\n");
}

TEST_F(DataConvertTest, WrongArgumentsAndRowsAreErrors) {
  const std::string in = write("in.jsonl", "{\"a\": [1]}\n");
  expect_error({"data", "convert", in}, 2, {"--to"});
  expect_error({"data", "convert", "--to", path("x.jsonl")}, 2, {"files to read"});
  expect_error({"data", "convert", in, "--to", path("x.jsonl"), "--format", "opanai"}, 2, {"did you mean 'openai'"});
  expect_error({"data", "convert", in, "--to", path("x.doc")}, 1, {"must end in .jsonl"});
  expect_error({"data", "convert", in, "--to", path("x.csv")}, 1, {"in.jsonl:1: column 'a' is an array"});
  expect_error({"data", "convert", path("none.csv"), "--to", path("x.csv")}, 1, {"none.csv: cannot open"});
}

TEST_F(DataConvertTest, OtherCommandsReadTheSameContainers) {
  const std::string in = write("in.csv", "prompt,completion,answer\nx,\"so, 7\",7\nx,8,7\n");
  const Finished scored = run_hone({"reward", "--reward", "math", "--in", in});
  EXPECT_EQ(scored.code, 0) << scored.err;
  EXPECT_NE(scored.out.find("mean score 0.5 over 2 rows"), std::string::npos) << scored.out;
}

}  // namespace
}  // namespace hone::test
