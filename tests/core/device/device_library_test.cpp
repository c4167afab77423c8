#include "core/device/device_library.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace hone::test {
namespace {

std::string missing() { fail("libfoo is missing: install it"); }
std::string present() { return "1.0 at /lib/libfoo.so"; }

// A library of the meta device, which has none of its own.
TEST(DeviceLibrary, TrainingNeedsTheLibrariesOfItsDevice) {
  const std::unique_ptr<Device> cpu = devices().at("cpu")(0), meta = devices().at("meta")(0);
  device_libraries().add("test-for-rollouts",
                         {.device = DeviceKind::meta, .trains = false, .used_for = "rollouts", .load = missing});
  device_libraries().add("test-present",
                         {.device = DeviceKind::meta, .trains = true, .used_for = "training", .load = present});
  EXPECT_NO_THROW(require_training_libraries(*meta));
  device_libraries().add("test-training",
                         {.device = DeviceKind::meta, .trains = true, .used_for = "training", .load = missing});
  EXPECT_NO_THROW(require_training_libraries(*cpu));
  try {
    require_training_libraries(*meta);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "libfoo is missing: install it");
  }
}

}  // namespace
}  // namespace hone::test
