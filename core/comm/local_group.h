#pragma once
// Ranks that are threads of one process. Several may share a device.
#include <memory>

#include "core/comm/local_hub.h"
#include "core/comm/process_group.h"

namespace hone {

// What the ends of one local group share: a mailbox for each ordered pair of ranks, and the slots of the control
// channel. The hub must outlive it.
class LocalExchange;
std::shared_ptr<LocalExchange> make_local_exchange(LocalHub& hub);

// The end of a rank, to be used by its thread. device: the rank's, on which its contexts are; must outlive the group.
std::unique_ptr<ProcessGroup> make_local_group(std::shared_ptr<LocalExchange> exchange, int rank, Device& device);

}  // namespace hone
