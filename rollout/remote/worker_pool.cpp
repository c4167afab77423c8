#include "rollout/remote/worker_pool.h"

#include <algorithm>

#include "core/comm/device_link.h"
#include "core/io/file.h"
#include "core/net/bearer_keys.h"
#include "rollout/remote/worker_link.h"

namespace hone {

constexpr double kJoinWaitSeconds = 10;  // a run then starts with the workers that have joined

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
    "have "
    "it, else stream)");
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

WorkerPool::WorkerPool(const WorkerPoolConfig& config, const WorkerSetup& setup, Device& device, Weights weights)
    : tokenizer_(setup.tokenizer.empty() ? std::nullopt : std::optional(tokenizer_of(setup.tokenizer))),
      dispatcher_(config.workers, {.max_tokens_per_worker = setup.engine.kv_cache_tokens,
                                   .timeout = config.worker_timeout,
                                   .request_timeout = config.worker_request_timeout,
                                   .requests = RequestLimits::of(make_model(setup.model, "the model")->shape(),
                                                                 setup.engine, tokenizer_ ? &*tokenizer_ : nullptr)}),
      weights_(std::move(weights)) {
  const std::string key = config.worker_key_file.empty() ? "" : read_keys(expand_path(config.worker_key_file)).front(),
                    body = setup.to_json().dump();
  for (size_t i = 0; i < config.workers.size(); ++i)
    links_.push_back(std::make_unique<WorkerLink>(dispatcher_, i,
                                                  WorkerLink::Peer{.name = config.workers[i],
                                                                   .key = key,
                                                                   .setup = body,
                                                                   .transport = config.weight_transport,
                                                                   .timeout = config.worker_timeout},
                                                  device));
  dispatcher_.wait_until_joined(std::min(kJoinWaitSeconds, config.worker_timeout));
}

WorkerPool::~WorkerPool() { dispatcher_.stop(); }

void WorkerPool::set_policy_version(int64_t version) {
  std::shared_ptr<const WeightSnapshot> snapshot = weights_(version);
  version_ = snapshot->version();
  dispatcher_.set_weights(std::move(snapshot));
}

}  // namespace hone
