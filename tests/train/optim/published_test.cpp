// Every optimizer against its published code, step by step (tests/golden/make_optimizers.py).
#include <gtest/gtest.h>

#include <set>

#include "core/config/config.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "tests/support/support.h"
#include "tests/train/optim/tensors.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

std::vector<float> numbers_of(const Json& array) {
  std::vector<float> out;
  for (const Json& number : array.as_array()) out.push_back(static_cast<float>(number.as_double()));
  return out;
}

TEST(PublishedOptimizers, AreFollowedStepByStep) {
  const fs::path path = source_folder() / "tests/golden/optimizers.json";
  const Json golden = parse_json(read_file(path), path.string());
  const double learning_rate = golden.at("learning_rate").as_double();
  std::set<std::string> kinds;
  for (const Json& one : golden.at("cases").as_array()) {
    const std::string& kind = one.at("optimizer").as_string();
    kinds.insert(kind);
    SCOPED_TRACE(kind + ": " + one.at("settings").as_string());
    Tensors tensors;
    for (const auto& [name, shape] : golden.at("shapes").as_object()) {
      std::vector<int64_t> dims;
      for (const Json& dim : shape.as_array()) dims.push_back(dim.as_int());
      tensors.add(name, dims, numbers_of(golden.at("start").at(name)));
    }
    const auto optimizer = make_optimizer(kind, one.at("settings").as_string());
    optimizer->attach(tensors.context(), whole_parts(tensors.params()));
    const JsonArray &trace = one.at("trace").as_array(), &grads = golden.at("grads").as_array();
    for (size_t step = 0; step < trace.size(); ++step) {
      for (const auto& [name, values] : grads[step].as_object()) tensors.set_grad(name, numbers_of(values));
      tensors.update(*optimizer, static_cast<int64_t>(step) + 1, learning_rate);
      for (const auto& [name, values] : trace[step].as_object()) {
        const std::span<const float> own = tensors.values(name);
        const JsonArray& expected = values.as_array();
        ASSERT_EQ(own.size(), expected.size());
        for (size_t i = 0; i < own.size(); ++i)
          EXPECT_NEAR(own[i], expected[i].as_double(), 1e-6) << name << " " << i << " after step " << step + 1;
      }
    }
  }
  const std::vector<std::string> all = optimizers().names();
  EXPECT_EQ(std::vector<std::string>(kinds.begin(), kinds.end()), all) << "each optimizer has a case";
}

}  // namespace
}  // namespace hone::test
