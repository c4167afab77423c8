#pragma once
// A run of configs/NAME.toml in a temporary folder, and its log.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "core/io/jsonl.h"
#include "tests/support/process.h"
#include "tests/support/support.h"

namespace hone::test {

class RecipeRun {
 public:
  // The command that runs the recipe as `folder`/run.
  static std::vector<std::string> arguments(const std::string& name, const std::filesystem::path& folder,
                                            const std::vector<std::string>& overrides) {
    std::vector<std::string> out = {"run", (source_folder() / "configs" / (name + ".toml")).string(),
                                    "runs=" + folder.string(), "name=run"};
    out.insert(out.end(), overrides.begin(), overrides.end());
    return out;
  }
  RecipeRun(const std::filesystem::path& data, const std::string& name, const std::vector<std::string>& overrides) {
    const Finished done = run_hone(arguments(name, folder_.path(), overrides), {"HONE_DATA=" + data.string()});
    EXPECT_EQ(done.code, 0) << done.err;
  }
  std::filesystem::path path() const { return folder_.path() / "run"; }
  // The values of a metric in the rows that have it.
  std::vector<double> values(const std::string& metric) const {
    std::vector<double> out;
    read_jsonl(path() / "metrics.jsonl", [&](const Json& row, int64_t) {
      if (const Json* value = row.find(metric)) out.push_back(value->as_double());
    });
    return out;
  }
  // Means over the first and the last `count` values.
  std::pair<double, double> first_and_last(const std::string& metric, size_t count) const {
    const std::vector<double> all = values(metric);
    EXPECT_GE(all.size(), 2 * count) << metric;
    const auto mean = [&](size_t begin) {
      double sum = 0;
      for (size_t i = begin; i < begin + count && i < all.size(); ++i) sum += all[i];
      return sum / static_cast<double>(count);
    };
    return {mean(0), mean(all.size() - std::min(all.size(), count))};
  }

 private:
  TemporaryFolder folder_;
};

}  // namespace hone::test
