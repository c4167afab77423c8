#include "core/comm/device_link.h"

#include "core/base/check.h"

namespace hone {

Deadline::Deadline(double seconds, StillConnected there)
    : end_(std::chrono::steady_clock::now() +
           std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds))),
      there_(std::move(there)) {}

void Deadline::check() const {
  HONE_CHECK(!there_ || there_(), "the other side is gone");
  HONE_CHECK(std::chrono::steady_clock::now() < end_, "the other side has not done its part in time");
}

Registry<DeviceLinkKind>& device_links() {
  static Registry<DeviceLinkKind> all("kind of device link");
  return all;
}

}  // namespace hone
