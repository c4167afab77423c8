#include "core/io/metrics_json.h"

#include <gtest/gtest.h>

#include <limits>

namespace hone {
namespace {

TEST(MetricsJson, LeavesOutWhatJsonHasNoNumberFor) {
  const Metrics metrics{{"a", 0.1}, {"b", std::numeric_limits<double>::infinity()}, {"c", -2}};
  EXPECT_EQ(metrics_of(metrics_json(metrics)), (Metrics{{"a", 0.1}, {"c", -2}}));
}

}  // namespace
}  // namespace hone
