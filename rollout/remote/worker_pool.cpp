#include "rollout/remote/worker_pool.h"

#include <algorithm>

#include "core/io/file.h"
#include "core/net/bearer_keys.h"
#include "rollout/remote/worker_link.h"

namespace hone {

constexpr double kJoinWaitSeconds = 10;  // a run then starts with the workers that have joined

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
