#pragma once
// Ranks as threads on the CPU, for tests.
#include <functional>
#include <string>
#include <vector>

#include "core/comm/launch.h"

namespace hone::test {

// Calls body(ranks, context) on `count` rank threads. A failed rank's error leaves it, as from run_ranks().
inline void on_ranks(int count, const std::function<void(const Ranks&, Context&)>& body, double timeout = 20) {
  run_ranks(std::vector<std::string>(static_cast<size_t>(count), "cpu"), {.timeout = timeout},
            [&](const Ranks& ranks, Device& device) {
              Context context(device);
              body(ranks, context);
            });
}

}  // namespace hone::test
