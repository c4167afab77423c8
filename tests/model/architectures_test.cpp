// The shapes of configs/architectures: each is a valid model, and a token uses equally many parameters of all of them,
// so that a comparison is fair.
#include <cmath>

#include "core/io/file.h"
#include "tests/model/tiny_model.h"

namespace hone::test {
namespace {

double active_params(const std::filesystem::path& file) {
  const auto model = make_model(parse_json(read_file(file), file.string()), file.string());
  double out = 0;
  for (const Param* param : model->params()) out += static_cast<double>(param->num_elements()) * param->active_share;
  return out;
}

TEST(Architectures, ATokenUsesEquallyManyParametersOfEachShape) {
  const std::filesystem::path folder = source_folder() / "configs/architectures";
  const double dense = active_params(folder / "dense.json");
  int shapes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    EXPECT_NEAR(active_params(entry.path()) / dense, 1, 0.01) << entry.path();
    ++shapes;
  }
  EXPECT_GE(shapes, 10);
}

}  // namespace
}  // namespace hone::test
