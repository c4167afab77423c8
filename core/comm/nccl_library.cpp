#include "core/comm/nccl_library.h"

#include "core/base/log.h"
#include "core/base/shared_library.h"
#include "core/device/device_library.h"

namespace hone {
namespace {

constexpr int kMinVersion = NCCL_VERSION(2, 14, 0);
constexpr const char* kAdvice =
    "; sending weights from GPU to GPU needs it (weight_transport = \"stream\" does not): install NVIDIA's package "
    "libnccl2, or set HONE_CUDA_LIBRARIES to the folder that has it";

struct Loaded {
  SharedLibrary library;
  NcclLibrary functions;
  int version = 0;
};

Loaded load() {
  Loaded out{.library = SharedLibrary({.name = "NCCL 2",
                                       .files = {"libnccl.so.2"},
                                       .folders_variable = "HONE_CUDA_LIBRARIES",
                                       .folders = cuda_library_folders(),
                                       .advice = kAdvice}),
             .functions = {}};
  NcclLibrary& f = out.functions;
  out.library.find(f.get_version, "ncclGetVersion");
  HONE_CHECK(f.get_version(&out.version) == ncclSuccess, out.library.path(), ": NCCL does not tell its version",
             kAdvice);
  HONE_CHECK(out.version >= kMinVersion, "NCCL at ", out.library.path(), " is ", nvidia_version_text(out.version),
             ", and hone needs ", nvidia_version_text(kMinVersion), " or newer", kAdvice);
  out.library.find(f.get_error_string, "ncclGetErrorString");
  out.library.find(f.get_last_error, "ncclGetLastError");
  out.library.find(f.get_unique_id, "ncclGetUniqueId");
  out.library.find(f.comm_init_rank_config, "ncclCommInitRankConfig");
  out.library.find(f.comm_get_async_error, "ncclCommGetAsyncError");
  out.library.find(f.comm_abort, "ncclCommAbort");
  out.library.find(f.send, "ncclSend");
  out.library.find(f.recv, "ncclRecv");
  return out;
}

// A failed load is tried again at the next call.
const Loaded& loaded() {
  static const Loaded& library = *new Loaded(load());  // never destroyed: communicators may outlive static objects
  return library;
}

[[maybe_unused]] const bool added = device_libraries().add(
    "NCCL", {.used_for = "weights from GPU to GPU (weight_transport = \"nccl\")",
             .load = [] { return concat(nvidia_version_text(loaded().version), " at ", loaded().library.path()); }});

}  // namespace

const NcclLibrary& nccl() { return loaded().functions; }

bool nccl_is_present() {
  static const bool present = [] {
    try {
      nccl();
      return true;
    } catch (const Error& error) {  // weights have another way
      log::warning(error.what());
      return false;
    }
  }();
  return present;
}

}  // namespace hone
