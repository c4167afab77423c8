#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "core/base/function_ref.h"
#include "core/comm/device_link.h"
#include "core/comm/nccl_library.h"
#include "core/device/cuda_check.h"

// DeviceLink over NCCL. Every NCCL call passes through this check. ncclInProgress is no failure: the communicators here
// are non-blocking.
#define HONE_NCCL_CHECK(call)                                                                                          \
  do {                                                                                                                 \
    if (const ncclResult_t hone_nccl_code = (call); hone_nccl_code != ncclSuccess && hone_nccl_code != ncclInProgress) \
        [[unlikely]]                                                                                                   \
      ::hone::fail("NCCL: ", nccl().get_error_string(hone_nccl_code), " (", nccl().get_last_error(nullptr),            \
                   ") in " #call " at " __FILE__ ":", __LINE__);                                                       \
  } while (false)

namespace hone {
namespace {

bool idle(cudaStream_t stream) {
  const cudaError_t code = cudaStreamQuery(stream);
  if (code == cudaErrorNotReady) {
    cudaGetLastError();  // clears it: CUDA stores "not ready" like an error
    return false;
  }
  HONE_CUDA_CHECK(code);
  return true;
}

class NcclLink : public DeviceLink {
 public:
  NcclLink(Device& device, const std::string& id, int rank, const Deadline& deadline) : peer_(1 - rank) {
    Context context(device);  // sets this thread's current device, which NCCL uses
    communicator_.reset(begin(id, rank));
    run(deadline, nothing, always);
    // NCCL connects a direction at its first use. One byte each way now, so that later transfers do not wait on the
    // host.
    const Tensor byte = context.scratch().take(DType::u8, {1});
    for (const bool out : {rank == 0, rank == 1}) queue(context, byte, out, deadline);
    NcclLink::finish(context, deadline);
  }

  void send(Context& context, Tensor x, const Deadline& deadline) override { queue(context, x, true, deadline); }
  void receive(Context& context, Tensor x, const Deadline& deadline) override { queue(context, x, false, deadline); }
  void finish(Context& context, const Deadline& deadline) override {
    run(deadline, nothing, [&] { return idle(static_cast<cudaStream_t>(context.stream())); });
  }

 private:
  struct Abort {
    void operator()(ncclComm_t communicator) const { nccl().comm_abort(communicator); }
  };

  static constexpr auto nothing = [] { return ncclSuccess; };
  static constexpr auto always = [] { return true; };

  static ncclComm_t begin(const std::string& id, int rank) {
    ncclUniqueId unique;
    HONE_CHECK(rank == 0 || rank == 1, "a link has ranks 0 and 1, not ", rank);
    HONE_CHECK(id.size() == sizeof unique, "NCCL: an id has ", sizeof unique, " bytes, this one has ", id.size());
    std::memcpy(&unique, id.data(), sizeof unique);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t out = nullptr;
    HONE_NCCL_CHECK(nccl().comm_init_rank_config(&out, 2, unique, rank, &config));
    return out;
  }

  void queue(Context& context, const Tensor& x, bool out, const Deadline& deadline) {
    HONE_CHECK(x.device == DeviceKind::cuda && x.contiguous(), "NCCL: a tensor is on ", name_of(x.device),
               "; it must be contiguous and on cuda");
    const auto stream = static_cast<cudaStream_t>(context.stream());
    const auto move = [&] {
      return out ? nccl().send(x.data, x.bytes(), ncclInt8, peer_, communicator_.get(), stream)
                 : nccl().recv(x.data, x.bytes(), ncclInt8, peer_, communicator_.get(), stream);
    };
    run(deadline, move, always);
  }

  // Calls start(), then waits until NCCL has finished its host work and done() holds. A failure aborts the communicator
  // at once: its kernels would block the stream, and with it every call that frees memory.
  void run(const Deadline& deadline, FunctionRef<ncclResult_t()> start, FunctionRef<bool()> done) {
    HONE_CHECK(communicator_, "NCCL: the link has failed before");
    try {
      HONE_NCCL_CHECK(start());
      for (;;) {
        ncclResult_t state = ncclSuccess;
        HONE_NCCL_CHECK(nccl().comm_get_async_error(communicator_.get(), &state));
        HONE_NCCL_CHECK(state);
        if (state == ncclSuccess && done()) return;
        deadline.check();
        std::this_thread::sleep_for(std::chrono::microseconds(20));
      }
    } catch (...) {
      communicator_.reset();
      throw;
    }
  }

  const int peer_;
  std::unique_ptr<ncclComm, Abort> communicator_;
};

std::string new_id() {
  ncclUniqueId id;
  HONE_NCCL_CHECK(nccl().get_unique_id(&id));
  return std::string(id.internal, sizeof id.internal);
}

std::unique_ptr<DeviceLink> open(Device& device, const std::string& id, int rank, const Deadline& deadline) {
  return std::make_unique<NcclLink>(device, id, rank, deadline);
}

[[maybe_unused]] const bool added = [] {
  // NVLink multicast gains two ranks nothing, and a failure in it can take all GPUs of a host out of service. Set the
  // variable at start-up, while no other thread reads the environment.
  ::setenv("NCCL_NVLS_ENABLE", "0", 1);
  return device_links().add(
      "nccl", {.serves = [](const Device& device) { return device.kind() == DeviceKind::cuda && nccl_is_present(); },
               .new_id = new_id,
               .open = open});
}();

}  // namespace
}  // namespace hone
