#pragma once
// Libraries that a device's ops load when they first need them. Each is one entry of device_libraries(), added by the
// file that uses the library. `hone doctor` lists them.
#include <cstdint>
#include <string>

#include "core/base/registry.h"
#include "core/device/device.h"

namespace hone {

struct DeviceLibrary {
  DeviceKind device = DeviceKind::cuda;
  bool trains = false;    // training needs it
  std::string used_for;   // "gradients of matrix products"
  std::string (*load)();  // loads the library and returns its version and file; throws Error if it is not there
};
Registry<DeviceLibrary>& device_libraries();

// "13.1.0" of 130100: how cuBLASLt and NCCL number their versions.
std::string nvidia_version_text(int64_t version);

// Loads the libraries that training on the device needs. Throws the Error of one that is not there. A run calls it
// before it computes anything.
void require_training_libraries(const Device& device);

}  // namespace hone
