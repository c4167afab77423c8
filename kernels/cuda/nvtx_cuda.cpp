// NVTX ranges of ops and step phases for Nsight. They are on if a profiler injects itself into the program or HONE_NVTX
// is set.
#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>

#include <cstdlib>

#include "kernels/op.h"

namespace hone {
namespace {

class Nvtx : public OpObserver {
 public:
  void begin(Context& context, const char* name) override {
    if (runs(context)) nvtxRangePushA(name);
  }
  void end(Context& context) override {
    if (runs(context)) nvtxRangePop();
  }

 private:
  // A captured op runs when the CUDA graph is launched, not here.
  static bool runs(Context& context) {
    if (context.kind() != DeviceKind::cuda) return false;
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    return cudaStreamIsCapturing(static_cast<cudaStream_t>(context.stream()), &status) == cudaSuccess &&
           status == cudaStreamCaptureStatusNone;
  }
};

[[maybe_unused]] const bool added = [] {
  if (!std::getenv("HONE_NVTX") && !std::getenv("NVTX_INJECTION64_PATH")) return false;
  static Nvtx nvtx;
  op_observer = &nvtx;
  return true;
}();

}  // namespace
}  // namespace hone
