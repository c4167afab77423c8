#include "core/device/device_peers.h"

namespace hone {

Registry<DevicePeers>& device_peers() {
  static Registry<DevicePeers> all("kind of device with peers");
  return all;
}

}  // namespace hone
