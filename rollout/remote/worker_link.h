#pragma once
// WorkerLink: a learner's side of its talk with one worker, in a thread of its own: joins it, brings it weights, tells
// it what to write, and begins again when it was lost.
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "core/comm/device_link.h"
#include "core/net/http_channel.h"
#include "rollout/remote/dispatcher.h"

namespace hone {

class WorkerLink {
 public:
  struct Peer {
    std::string name;       // its URL
    std::string key;        // "" = none
    std::string setup;      // WorkerSetup as it is sent
    std::string transport;  // WorkerPoolConfig::weight_transport
    double timeout = 60;    // seconds
  };
  // The worker's place is the dispatcher's. The device is the learner's. Both outlive it.
  WorkerLink(Dispatcher& dispatcher, size_t place, Peer peer, Device& device);
  // Stops the dispatcher, and ends what is under way.
  ~WorkerLink();

 private:
  void run();
  void join();
  void serve();
  WorkerPollResult take_turn(const WorkerPoll& turn, int64_t awaited_tokens);
  void sync(const WeightSnapshot& image);
  bool send_over_link(const WeightSnapshot& image);
  void drop_device_link(const std::string& why);
  std::vector<int64_t> commit(int64_t version, std::span<const WeightChunks::Block> blocks, bool landed);
  void open_device_link(const Json& kinds);
  void leave();
  HttpHeaders headers_for(const Digest& digest) const;
  void push_weights(int64_t version, std::span<const WeightChunks::Block> blocks, bool landed);
  void send(std::span<const WeightChunks::Block> blocks, std::vector<int64_t> which);
  Deadline patience(double seconds) const;
  // max_body: bytes of the answer.
  Json ask(const std::string& what, const std::string& body, uint64_t max_body = most_bytes);
  Json post(HttpChannel& channel, const std::string& what, std::string_view body, const HttpHeaders& headers,
            uint64_t max_body = most_bytes);
  static constexpr uint64_t most_bytes = uint64_t{4} << 20;

  Dispatcher& dispatcher_;
  const size_t place_;
  const Peer peer_;
  Device& device_;
  std::deque<HttpChannel> channels_;  // the first for all messages, the others for blocks beside it
  std::string session_;
  int64_t version_ = -1;  // of the worker's weights; -1: none
  static constexpr double first_pause = 0.25;
  double next_pause_ =
      first_pause;  // seconds before it is joined again where it is lost; longer each time, until it finishes something
  std::optional<Context> context_;
  std::unique_ptr<DeviceLink> device_link_;
  int failed_openings_ = 0;
  std::thread thread_;
};

}  // namespace hone
