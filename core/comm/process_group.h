#pragma once
// ProcessGroup: exchanges tensors between ranks. It moves bytes and never adds: sums over ranks are ops with a fixed
// order, so that results do not depend on the transport.
//
//   local_group     ranks are threads of one process: copies on the CPU, copy engines on GPUs
//   counting_group  one rank of N on the meta device, alone: counts bytes
#include <span>
#include <string>

#include "core/comm/control_channel.h"
#include "core/device/device.h"

namespace hone {

// One rank's end. One thread. All ranks of the group make the same collective calls in the same order. Calls queue
// copies on the context's stream. When a call returns, later work of that stream may overwrite what was sent and read
// what was received. All tensors are contiguous, and on the context's device; empty ones (no elements) are allowed.
// `what` names the call in messages and in counts. Calls throw RankFailed as ControlChannel's do, and if two ranks
// disagree about a call or about the size of a part.
class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;
  virtual ControlChannel& control() = 0;
  int rank() { return control().rank(); }
  int size() { return control().size(); }
  // all[r] receives rank r's tensor. Sizes may differ. own may be all[rank()]; otherwise it is copied there, too.
  virtual void all_gather(Context& context, std::span<const Tensor> all, Tensor own, const std::string& what) = 0;
  // from[r] receives what rank r sends here; to[r] goes to rank r. Sizes may differ. from[rank()] may be to[rank()].
  virtual void all_to_all(Context& context, std::span<const Tensor> from, std::span<const Tensor> to,
                          const std::string& what) = 0;
  // send() waits on the host until the receiver has queued its copy: two ranks that both send first would wait for
  // each other. Equal pairs of calls match in order.
  virtual void send(Context& context, Tensor x, int to, const std::string& what) = 0;
  virtual void receive(Context& context, Tensor x, int from, const std::string& what) = 0;

 protected:
  // Checks that a call has one tensor per rank, and that each is contiguous and on the context's device.
  void check_parts(const Context& context, std::span<const Tensor> parts, const std::string& what);
  void check_part(const Context& context, const Tensor& part, const std::string& what);
  void check_peer(int peer, const std::string& what);
};

}  // namespace hone
