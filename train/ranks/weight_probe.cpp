#include "train/ranks/weight_probe.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/base/rng.h"

namespace hone {

Tensor probed_weights(std::span<const Tensor> weights, int64_t step, int64_t count) {
  int64_t total = 0;
  for (const Tensor& one : weights) total += one.size();
  if (total == 0) return {};
  const uint64_t drawn = stream_of(concat("weights of step ", step).c_str());
  auto at = static_cast<int64_t>(drawn % static_cast<uint64_t>(total));
  for (const Tensor& one : weights) {
    const int64_t size = one.size();
    if (at < size) {
      const int64_t first = std::min(at, std::max<int64_t>(0, size - count));
      return one.view({size}).rows(first, std::min(count, size));
    }
    at -= size;
  }
  return {};
}

uint64_t digest_of(Tensor on_host) {
  uint64_t hash = 0xcbf29ce484222325u;
  const auto* bytes = static_cast<const unsigned char*>(on_host.data);
  for (size_t i = 0; i < on_host.bytes(); ++i) hash = (hash ^ bytes[i]) * 0x100000001b3u;
  return hash;
}

}  // namespace hone
