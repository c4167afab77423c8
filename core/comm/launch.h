#pragma once
// Starts the ranks of a run: threads of this process, one per device.
#include <functional>
#include <string>
#include <vector>

#include "core/comm/ranks.h"

namespace hone {

struct LaunchOptions {
  double timeout = 600;  // seconds without progress after which a rank that others wait for counts as hanging
  double grace = 3;      // seconds that ranks have to end after one failed
  std::function<std::unique_ptr<Device>(const std::string& name)> open = open_device;
};

// Calls body(ranks, device) once for each name of `devices`, each on a thread of its own with a device of its own; the
// number of names is the number of ranks. Names may repeat: such ranks share a device. One name: body runs on the
// calling thread.
//
// Returns when all ranks have returned. If a rank throws, the others' calls throw RankFailed, and this function throws
// an Error "rank 3 (cuda:3): message". An AgreedError is thrown without a rank's name, and so is an error that every
// rank threw by itself, with the same message, while none waited for another. A rank that does not end within the grace
// period cannot be ended: the message is logged and the process exits with code 1.
void run_ranks(const std::vector<std::string>& devices, const LaunchOptions& options,
               const std::function<void(const Ranks&, Device&)>& body);

// Checks how other programs started this process. Their ranks would each be a run of its own, so this is an Error that
// says what to do instead.
void check_launcher();

}  // namespace hone
