// Paired comparisons of sample files.
#include "eval/compare.h"

#include <gtest/gtest.h>

#include "core/base/check.h"
#include "core/io/file.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

class CompareTest : public ::testing::Test {
 protected:
  // A row for each digit of `right`, in the order of `ids`.
  std::filesystem::path samples(const std::string& name, const std::string& right,
                                const std::string& extra = "") const {
    std::string text;
    for (size_t i = 0; i < right.size(); ++i)
      text += concat("{\"doc_id\": ", i, ", \"doc_hash\": \"", static_cast<char>('a' + i), "\", \"where\": \"x:", i + 1,
                     "\", \"metrics\": {\"acc\": ", right[i], extra, "}}\n");
    write_file_atomic(folder.path() / name, text);
    return folder.path() / name;
  }
  static void expect_error(const std::function<void()>& call, const std::string& words) {
    try {
      call();
      FAIL() << words;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  }
  TemporaryFolder folder;
};

TEST_F(CompareTest, PairsAreCountedAndTested) {
  const auto found = compare_evaluations(samples("a.jsonl", "1100000011"), samples("b.jsonl", "0111111111"), 1000, 1);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].metric, "acc");
  EXPECT_EQ(found[0].num_problems, 10);
  EXPECT_EQ(found[0].only_first, 1);
  EXPECT_EQ(found[0].only_second, 6);
  EXPECT_NEAR(found[0].mcnemar_p, 2 * (1 + 7) / 128.0, 1e-12);
  EXPECT_DOUBLE_EQ(found[0].paired.difference, 0.5);
  EXPECT_NE(comparison_table(found).find("1 : 6, p = 0.1250"), std::string::npos) << comparison_table(found);
  EXPECT_EQ(found[0].to_json().at("mcnemar").at("only_second").as_int(), 6);
}

TEST_F(CompareTest, TheOrderOfRowsDoesNotMatter) {
  const auto forward = samples("a.jsonl", "110");
  write_file_atomic(folder.path() / "b.jsonl", R"({"doc_id": 0, "doc_hash": "c", "where": "y:1", "metrics": {"acc": 1}}
{"doc_id": 1, "doc_hash": "a", "where": "y:2", "metrics": {"acc": 1}}
{"doc_id": 2, "doc_hash": "b", "where": "y:3", "metrics": {"acc": 0}}
)");
  const auto found = compare_evaluations(forward, folder.path() / "b.jsonl", 100, 1);
  EXPECT_EQ(found[0].only_first, 1);
  EXPECT_EQ(found[0].only_second, 1);
}

TEST_F(CompareTest, WeightedFiguresAreRatiosWithoutAMcNemarTest) {
  const auto a = samples("a.jsonl", "12", R"(, "none": 1}, "weights": {"acc": 4)"),
             b = samples("b.jsonl", "32", R"(, "other": 1}, "weights": {"acc": 4)");
  const auto found = compare_evaluations(a, b, 100, 1);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_FALSE(found[0].binary);
  EXPECT_DOUBLE_EQ(found[0].paired.difference, 5.0 / 8 - 3.0 / 8);
}

TEST_F(CompareTest, RowsOfOneProblemArePairedAsOne) {
  const auto rows = [&](const std::string& name, bool second) {
    std::string text;
    for (int i = 0; i < 24; ++i)
      text += concat("{\"doc_id\": ", i, ", \"doc_hash\": \"", i / 8, "\", \"where\": \"x:", i + 1,
                     "\", \"metrics\": {\"acc\": ", second && i / 8 == 1 ? 1 : 0, "}}\n");
    write_file_atomic(folder.path() / name, text);
    return folder.path() / name;
  };
  const auto found = compare_evaluations(rows("a.jsonl", false), rows("b.jsonl", true), 2000, 1);
  EXPECT_EQ(found[0].num_problems, 3);
  EXPECT_DOUBLE_EQ(found[0].paired.difference, 1.0 / 3);
  EXPECT_NEAR(*found[0].paired.stderr_value, 1.0 / 3, 1e-12);
  EXPECT_GT(*found[0].paired.p, 0.3);  // (2/3)^3 of the resamples show no difference
  EXPECT_FALSE(found[0].binary);
}

TEST_F(CompareTest, OneProblemHasADifferenceAndNothingElse) {
  const auto found = compare_evaluations(samples("a.jsonl", "0"), samples("b.jsonl", "1"), 100, 1);
  const Json json = found[0].to_json();
  EXPECT_EQ(json.at("difference").as_double(), 1);
  for (const char* name : {"stderr", "bootstrap95", "p"}) EXPECT_TRUE(json.at(name).is_null()) << name;
  EXPECT_EQ(comparison_table(found).find("nan"), std::string::npos);
}

TEST_F(CompareTest, SamplesThatDoNotMatchAreErrors) {
  const auto a = samples("a.jsonl", "1100");
  expect_error([&] { compare_evaluations(a, samples("b.jsonl", "110"), 100, 1); }, "4 samples and 3");
  write_file_atomic(folder.path() / "c.jsonl",
                    R"({"doc_id": 0, "doc_hash": "z", "where": "y:1", "metrics": {"acc": 1}})");
  expect_error([&] { compare_evaluations(samples("d.jsonl", "1"), folder.path() / "c.jsonl", 100, 1); },
               "samples are of different rows");
  write_file_atomic(folder.path() / "e.jsonl",
                    R"({"doc_id": 0, "doc_hash": "a", "where": "y:1", "metrics": {"loss": 1}})");
  expect_error([&] { compare_evaluations(samples("d.jsonl", "1"), folder.path() / "e.jsonl", 100, 1); },
               "no metric in common");
  write_file_atomic(folder.path() / "f.jsonl", R"({"doc_id": 0, "metrics": {}})");
  expect_error([&] { compare_evaluations(a, folder.path() / "f.jsonl", 100, 1); }, "doc_hash");
  expect_error([&] { compare_evaluations(a, folder.path() / "none", 100, 1); }, "no such file");
  make_folder(folder.path() / "one"), make_folder(folder.path() / "two"), make_folder(folder.path() / "empty");
  samples("one/samples_x.jsonl", "1"), samples("two/samples_y.jsonl", "1");
  expect_error([&] { compare_evaluations(folder.path() / "one", folder.path() / "two", 100, 1); },
               "the tasks must be the same");
  expect_error([&] { compare_evaluations(folder.path() / "one", folder.path() / "empty", 100, 1); },
               "no samples_TASK.jsonl");
}

}  // namespace
}  // namespace hone::test
