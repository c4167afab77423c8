#include "core/comm/device_link.h"

namespace hone {

Registry<DeviceLinkKind>& device_links() {
  static Registry<DeviceLinkKind> all("kind of device link");
  return all;
}

}  // namespace hone
