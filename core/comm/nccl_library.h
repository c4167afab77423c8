#pragma once
// The functions of NCCL that hone calls, from libnccl.so.2, which is loaded at the first call.
#include <nccl.h>

namespace hone {

struct NcclLibrary {
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetErrorString) get_error_string = nullptr;
  decltype(&ncclGetLastError) get_last_error = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) comm_init_rank_config = nullptr;
  decltype(&ncclCommGetAsyncError) comm_get_async_error = nullptr;
  decltype(&ncclCommAbort) comm_abort = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) recv = nullptr;
};

// Throws Error if the library is missing, or older than its configurable communicators (2.14).
const NcclLibrary& nccl();
// Returns false if the library cannot be used. The first call then logs why.
bool nccl_is_present();

}  // namespace hone
