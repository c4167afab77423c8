#include "core/comm/device_link.h"

#include "core/base/check.h"

namespace hone {

Deadline::Deadline(double seconds, StillConnected still_connected)
    : end_(std::chrono::steady_clock::now() +
           std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds))),
      still_connected_(std::move(still_connected)) {}

void Deadline::check() const {
  HONE_CHECK(!still_connected_ || still_connected_(), "the other side is gone");
  HONE_CHECK(std::chrono::steady_clock::now() < end_, "the other side has not done its part in time");
}

Registry<DeviceLinkKind>& device_links() {
  static Registry<DeviceLinkKind> all("kind of device link");
  return all;
}

}  // namespace hone
