#pragma once
// What devices of one kind can do for each other, for ranks that share a process (core/comm/local_group.cpp). A kind
// without an entry works synchronously: its streams never have to wait, and all its memory can be read.
#include "core/device/device.h"

namespace hone {

struct DevicePeers {
  // Devices of the kind that this process can open.
  int (*count)();
  // Lets copies on the calling thread's current device read this memory of another device, directly if the machine can.
  void (*reach)(const void* memory);
  // Work that is queued on the stream from here on waits for the event's last record(). The event may be another
  // device's.
  void (*make_stream_wait)(Event& event, void* stream);
};
Registry<DevicePeers>& device_peers();  // by the name of the kind
// Null for a kind without an entry.
inline const DevicePeers* peers_of(DeviceKind kind) { return device_peers().find(std::string(name_of(kind))); }

}  // namespace hone
