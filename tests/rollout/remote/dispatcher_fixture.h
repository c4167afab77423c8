#pragma once
// A dispatcher asked, and answered for its workers, in plain calls.
#include <gtest/gtest.h>

#include "rollout/remote/dispatcher.h"

namespace hone::test {

class DispatcherFixture : public ::testing::Test {
 protected:
  void make(size_t workers, const Dispatcher::Limits& limits = {}) {
    std::vector<std::string> names;
    for (size_t i = 0; i < workers; ++i) names.push_back(concat("http://worker-", i));
    dispatcher = std::make_unique<Dispatcher>(names, limits);
    told.assign(workers, {});
    dropped.assign(workers, {});
  }
  std::shared_ptr<const WeightSnapshot> weights(int64_t version) const {
    return std::make_shared<const WeightSnapshot>(version, *device, bytes, frozen, nullptr);
  }
  // So many tokens in all.
  uint64_t ask(int64_t tokens, int64_t n = 1) {
    GenerationRequest request{.prompt = {1}, .n = n, .id = 7, .sampling = {}};
    request.sampling.max_tokens = (tokens - 1) / n;
    const size_t place = answers.size();
    answers.emplace_back();
    return dispatcher->submit(std::move(request), [this, place](uint64_t id, std::vector<CompletionOutput> replies) {
      EXPECT_EQ(id, 7u);
      EXPECT_TRUE(answers[place].empty()) << "answered twice";
      answers[place] = std::move(replies);
    });
  }
  // What the worker is told now.
  Dispatcher::Work look(size_t worker, int64_t version = 0) {
    Dispatcher::Work work = dispatcher->next(worker, version, 0);
    for (const WorkerPoll::Ask& of : work.submit) told[worker].push_back(of.ticket);
    for (const uint64_t ticket : work.cancel) dropped[worker].push_back(ticket);
    return work;
  }
  // Replies that say who wrote them.
  static std::vector<CompletionOutput> replies_of(size_t worker, int64_t n = 1, int64_t version = 0) {
    CompletionOutput reply;
    reply.ids = {static_cast<int32_t>(worker)};
    reply.logp = reply.truncated_logp = reply.raw_logp = {-1};
    reply.versions = {version};
    return std::vector<CompletionOutput>(static_cast<size_t>(n), reply);
  }
  void finish(size_t worker, uint64_t ticket, int64_t n = 1, int64_t version = 0) {
    dispatcher->finished(worker, {ticket, replies_of(worker, n, version)});
  }
  size_t writer_of(size_t answer) const { return static_cast<size_t>(answers[answer].at(0).ids.at(0)); }

  std::unique_ptr<Device> device = devices().at("cpu")(0);
  std::shared_ptr<const Buffer> bytes = std::make_shared<const Buffer>(*device, 8);
  std::shared_ptr<const WeightChunks> frozen =
      std::make_shared<const WeightChunks>(*device, Tensor(bytes->data(), DType::u8, DeviceKind::cpu, {int64_t{0}}));
  std::unique_ptr<Dispatcher> dispatcher;
  std::vector<std::vector<CompletionOutput>> answers;  // by request
  std::vector<std::vector<uint64_t>> told, dropped;    // by worker
};

}  // namespace hone::test
