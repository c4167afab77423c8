#pragma once
// DispatcherFixture: a dispatcher whose workers are calls of the test.
#include <gtest/gtest.h>

#include "rollout/remote/dispatcher.h"

namespace hone::test {

class DispatcherFixture : public ::testing::Test {
 protected:
  void make(size_t workers, const Dispatcher::Limits& limits = {}) {
    std::vector<std::string> names;
    for (size_t i = 0; i < workers; ++i) names.push_back(concat("http://worker-", i));
    dispatcher = std::make_unique<Dispatcher>(names, limits);
    sent.assign(workers, {});
    cancelled.assign(workers, {});
  }
  std::shared_ptr<const WeightSnapshot> weights(int64_t version) const {
    return std::make_shared<const WeightSnapshot>(version, *device, bytes, frozen, nullptr);
  }
  // Submits a request of `tokens` tokens in all.
  uint64_t submit(int64_t tokens, int64_t n = 1) {
    GenerationRequest request{.prompt = {1}, .n = n, .id = 7, .sampling = {}};
    request.sampling.max_tokens = (tokens - 1) / n;
    const size_t index = results.size();
    results.emplace_back();
    return dispatcher->submit(std::move(request),
                              [this, index](uint64_t id, std::vector<CompletionOutput> completions) {
                                EXPECT_EQ(id, 7u);
                                EXPECT_TRUE(results[index].empty()) << "finished twice";
                                results[index] = std::move(completions);
                              });
  }
  // Takes the worker's next work and records it.
  Dispatcher::Work poll_worker(size_t worker, int64_t version = 0) {
    Dispatcher::Work work = dispatcher->next_work(worker, version, 0);
    for (const WorkerPoll::Submission& submission : work.submit) sent[worker].push_back(submission.ticket);
    for (const uint64_t ticket : work.cancel) cancelled[worker].push_back(ticket);
    return work;
  }
  // Completions whose first id is the worker.
  static std::vector<CompletionOutput> completions_by(size_t worker, int64_t n = 1, int64_t version = 0) {
    CompletionOutput completion;
    completion.ids = {static_cast<int32_t>(worker)};
    completion.logp = completion.truncated_logp = completion.raw_logp = {-1};
    completion.versions = {version};
    return std::vector<CompletionOutput>(static_cast<size_t>(n), completion);
  }
  void finish(size_t worker, uint64_t ticket, int64_t n = 1, int64_t version = 0) {
    dispatcher->accept_result(worker, {ticket, completions_by(worker, n, version)});
  }
  size_t worker_of(size_t index) const { return static_cast<size_t>(results[index].at(0).ids.at(0)); }

  std::unique_ptr<Device> device = devices().at("cpu")(0);
  std::shared_ptr<const Buffer> bytes = std::make_shared<const Buffer>(*device, 8);
  std::shared_ptr<const WeightChunks> frozen =
      std::make_shared<const WeightChunks>(*device, Tensor(bytes->data(), DType::u8, DeviceKind::cpu, {int64_t{0}}));
  std::unique_ptr<Dispatcher> dispatcher;
  std::vector<std::vector<CompletionOutput>> results;  // by request
  std::vector<std::vector<uint64_t>> sent, cancelled;  // by worker
};

}  // namespace hone::test
