#include "rollout/remote/config.h"

#include <algorithm>

#include "core/comm/device_link.h"
#include "core/net/http_client.h"

namespace hone {

void WorkerPoolConfig::fields(Fields& f) {
  f("workers", workers,
    "URLs of `hone worker` processes that generate the completions; empty = an engine of this process does");
  f("worker_key_file", worker_key_file,
    "key file as of hone serve, whose first key is sent to workers; empty = no key");
  f("worker_timeout", worker_timeout,
    "seconds without a response or without progress after which a worker is lost; a run without workers for as long "
    "stops");
  f("worker_request_timeout", worker_request_timeout,
    "seconds that one worker may take for a request, waiting included, before it is lost; a request that three tries "
    "did not finish has failed");
  f("weight_transport", weight_transport,
    "how weights reach workers: stream (changed chunks over HTTP) | nccl (between GPUs) | auto (nccl if both sides "
    "have it, else stream)");
  f.require("worker_timeout", worker_timeout > 0 && worker_timeout <= 1e6,
            "worker_timeout must be in (0, 1e6] seconds");
  f.require("worker_request_timeout", worker_request_timeout > 0 && worker_request_timeout <= 1e6,
            "worker_request_timeout must be in (0, 1e6] seconds");
  f.require("weight_transport",
            weight_transport == "auto" || weight_transport == "stream" || device_links().contains(weight_transport),
            concat(device_links().unknown(weight_transport), ", auto, stream"));
  for (size_t i = 0; i < workers.size(); ++i) {
    try {
      parse_url(workers[i]);
    } catch (const Error& error) {
      f.require("workers", false, error.what());
    }
    const auto here = workers.begin() + static_cast<std::ptrdiff_t>(i);
    f.require("workers", std::find(workers.begin(), here, workers[i]) == here,
              concat("workers has ", workers[i], " twice; list each URL once"));
  }
}

}  // namespace hone
