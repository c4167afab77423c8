#include "core/device/device_library.h"

namespace hone {

Registry<DeviceLibrary>& device_libraries() {
  static Registry<DeviceLibrary> all("library");
  return all;
}

std::string nvidia_version_text(int64_t version) {
  return concat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

void require_training_libraries(const Device& device) {
  for (const std::string& name : device_libraries().names()) {
    const DeviceLibrary& library = device_libraries().at(name);
    if (library.trains && library.device == device.kind()) library.load();
  }
}

}  // namespace hone
