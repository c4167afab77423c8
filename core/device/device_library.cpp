#include "core/device/device_library.h"

namespace hone {

Registry<DeviceLibrary>& device_libraries() {
  static Registry<DeviceLibrary> all("library");
  return all;
}

void require_training_libraries(const Device& device) {
  for (const std::string& name : device_libraries().names()) {
    const DeviceLibrary& library = device_libraries().at(name);
    if (library.trains && library.device == device.kind()) library.load();
  }
}

}  // namespace hone
