// Policy losses, token selection and advantages against numbers of TRL and verl (tests/golden/make_policy_losses.py).
#include <gtest/gtest.h>

#include "core/io/file.h"
#include "tests/support/support.h"
#include "train/json/objective_json.h"

namespace hone {
namespace {

const Json& golden() {
  static const std::filesystem::path path = test::source_folder() / "tests" / "golden" / "policy_losses.json";
  static const Json json = parse_json(read_file(path), path.string());
  return json;
}

// The shared fields and those of the case.
Json input_of(const Json& of_case) {
  Json out = golden().at("input");
  for (const auto& [key, value] : of_case.at("input").as_object()) out.set(key, value);
  return out;
}

void expect_near(const Json& found, const Json& expected, double tolerance, const std::string& where) {
  if (!expected.is_array()) {
    EXPECT_NEAR(found.as_double(where), expected.as_double(where), tolerance) << where;
    return;
  }
  const JsonArray &a = found.as_array(where), &b = expected.as_array(where);
  ASSERT_EQ(a.size(), b.size()) << where;
  for (size_t i = 0; i < a.size(); ++i) expect_near(a[i], b[i], tolerance, concat(where, "[", i, "]"));
}

TEST(PolicyGolden, LossesGradientsAndAdvantagesAreTrlsAndVerls) {
  const JsonArray& cases = golden().at("cases").as_array();
  ASSERT_GT(cases.size(), 25u);
  for (const Json& of_case : cases) {
    SCOPED_TRACE(of_case.at("name").as_string());
    const Json out = evaluate_objective("grpo", input_of(of_case), "golden");
    if (const Json* advantages = of_case.find("advantages"))
      expect_near(out.at("advantages"), *advantages, 2e-6, "advantages");
    if (const Json* loss = of_case.find("loss")) {
      expect_near(out.at("loss"), *loss, 1e-7, "loss");
      expect_near(out.at("grad"), of_case.at("grad"), 1e-7, "grad");
    }
    if (const Json* metrics = of_case.find("metrics"))
      for (const auto& [name, value] : metrics->as_object()) expect_near(out.at("metrics").at(name), value, 1e-7, name);
  }
}

// The cases would be equal if a setting did nothing.
TEST(PolicyGolden, EachSettingChangesTheLoss) {
  for (const Json& of_case : golden().at("cases").as_array()) {
    SCOPED_TRACE(of_case.at("name").as_string());
    Json input = input_of(of_case);
    for (const char* key : {"off_policy_mask_threshold", "top_entropy_quantile", "rollout_rs"}) {
      if (!input.at("config").find(key)) continue;
      Json config = input.at("config"), without = input;
      config.set(key, nullptr);
      config.set("rollout_rs_threshold", nullptr);
      without.set("config", config);
      EXPECT_NE(evaluate_objective("grpo", without, "golden").at("loss").as_double(),
                evaluate_objective("grpo", input, "golden").at("loss").as_double())
          << key;
    }
  }
}

}  // namespace
}  // namespace hone
