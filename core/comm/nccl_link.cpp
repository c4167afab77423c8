#include <cuda_runtime_api.h>
#include <nccl.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "core/base/function_ref.h"
#include "core/comm/device_link.h"
#include "core/device/cuda_check.h"

// Every NCCL call passes through here. What is in progress has not failed: no communicator here blocks.
#define HONE_NCCL_CHECK(call)                                                                                          \
  do {                                                                                                                 \
    if (const ncclResult_t hone_nccl_code = (call); hone_nccl_code != ncclSuccess && hone_nccl_code != ncclInProgress) \
        [[unlikely]]                                                                                                   \
      ::hone::fail("NCCL: ", ncclGetErrorString(hone_nccl_code), " (", ncclGetLastError(nullptr),                      \
                   ") in " #call " at " __FILE__ ":", __LINE__);                                                       \
  } while (false)

namespace hone {
namespace {

bool idle(cudaStream_t stream) {
  const cudaError_t code = cudaStreamQuery(stream);
  if (code == cudaErrorNotReady) {
    cudaGetLastError();  // it is kept there like an error
    return false;
  }
  HONE_CUDA_CHECK(code);
  return true;
}

class NcclLink : public DeviceLink {
 public:
  NcclLink(Device& device, const std::string& id, int rank, const Deadline& patience) : peer_(1 - rank) {
    Context context(device);  // which makes the device this thread's current one: NCCL takes that
    communicator_.reset(begin(id, rank));
    run(patience, nothing, always);
    // A direction is connected at its first use; later ones need the other side only once they are on the stream.
    const Tensor byte = context.scratch().take(DType::u8, {1});
    for (const bool out : {rank == 0, rank == 1}) queue(context, byte, out, patience);
    NcclLink::finish(context, patience);
  }

  void send(Context& context, Tensor x, const Deadline& patience) override { queue(context, x, true, patience); }
  void receive(Context& context, Tensor x, const Deadline& patience) override { queue(context, x, false, patience); }
  void finish(Context& context, const Deadline& patience) override {
    run(patience, nothing, [&] { return idle(static_cast<cudaStream_t>(context.stream())); });
  }

 private:
  struct Abort {
    void operator()(ncclComm_t communicator) const { ncclCommAbort(communicator); }
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
    HONE_NCCL_CHECK(ncclCommInitRankConfig(&out, 2, unique, rank, &config));
    return out;
  }

  void queue(Context& context, const Tensor& x, bool out, const Deadline& patience) {
    HONE_CHECK(x.device == DeviceKind::cuda && x.contiguous(), "NCCL: a tensor is on ", name_of(x.device),
               ", or its rows lie apart");
    const auto stream = static_cast<cudaStream_t>(context.stream());
    const auto move = [&] {
      return out ? ncclSend(x.data, x.bytes(), ncclInt8, peer_, communicator_.get(), stream)
                 : ncclRecv(x.data, x.bytes(), ncclInt8, peer_, communicator_.get(), stream);
    };
    run(patience, move, always);
  }

  // Starts something, and waits until NCCL has done its part of it on the host, and for `done`. What goes wrong aborts
  // the communicator at once: its kernels would hold up the stream, and whoever frees memory.
  void run(const Deadline& patience, FunctionRef<ncclResult_t()> start, FunctionRef<bool()> done) {
    HONE_CHECK(communicator_, "NCCL: the link has failed before");
    try {
      HONE_NCCL_CHECK(start());
      for (;;) {
        ncclResult_t state = ncclSuccess;
        HONE_NCCL_CHECK(ncclCommGetAsyncError(communicator_.get(), &state));
        HONE_NCCL_CHECK(state);
        if (state == ncclSuccess && done()) return;
        patience.check();
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
  HONE_NCCL_CHECK(ncclGetUniqueId(&id));
  return std::string(id.internal, sizeof id.internal);
}

std::unique_ptr<DeviceLink> open(Device& device, const std::string& id, int rank, const Deadline& patience) {
  return std::make_unique<NcclLink>(device, id, rank, patience);
}

[[maybe_unused]] const bool added = [] {
  // Now, while no thread reads the environment. NVLink multicast is of no use to two ranks, and what goes wrong in it
  // can put the GPUs of a whole host out of service.
  ::setenv("NCCL_NVLS_ENABLE", "0", 1);
  return device_links().add("nccl", {.serves = [](const Device& device) { return device.kind() == DeviceKind::cuda; },
                                     .new_id = new_id,
                                     .open = open});
}();

}  // namespace
}  // namespace hone
