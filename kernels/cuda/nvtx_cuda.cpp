// Ranges of ops and of a step's phases for Nsight (NVTX): on where a profiler loads itself into the program, or
// HONE_NVTX is set.
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
  // What is recorded into a graph runs when that is launched, not here.
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
