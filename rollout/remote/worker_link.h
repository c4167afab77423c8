#pragma once
// WorkerLink: the learner's connection to one worker, with a thread of its own. It joins the worker, pushes weights,
// submits requests and collects completions. When the worker is lost, it joins again.
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
    std::string setup;      // WorkerSetup as JSON
    std::string transport;  // WorkerPoolConfig::weight_transport
    double timeout = 60;    // seconds
  };
  // worker_index is the dispatcher's. `device` is the learner's. The dispatcher and the device must outlive the link.
  WorkerLink(Dispatcher& dispatcher, size_t worker_index, Peer peer, Device& device);
  // Stops the dispatcher and aborts running messages.
  ~WorkerLink();

 private:
  void run();
  void join();
  void serve();
  WorkerPollResult poll(const WorkerPoll& message, int64_t awaited_tokens);
  void sync(const WeightSnapshot& snapshot);
  bool send_over_link(const WeightSnapshot& snapshot);
  void close_device_link(const std::string& why);
  std::vector<int64_t> commit(int64_t version, std::span<const WeightChunks::Chunk> chunks, bool sent_directly);
  void open_device_link(const Json& kinds);
  void leave();
  HttpHeaders headers_for(const Digest& digest) const;
  void push_weights(int64_t version, std::span<const WeightChunks::Chunk> chunks, bool sent_directly);
  void send(std::span<const WeightChunks::Chunk> chunks, std::vector<int64_t> which);
  Deadline deadline(double seconds) const;
  // Posts a message and returns the response's JSON, of at most max_body bytes.
  Json request(const std::string& what, const std::string& body, uint64_t max_body = kMaxResponseBytes);
  Json post(HttpChannel& channel, const std::string& what, std::string_view body, const HttpHeaders& headers,
            uint64_t max_body = kMaxResponseBytes);
  static constexpr uint64_t kMaxResponseBytes = uint64_t{4} << 20;

  Dispatcher& dispatcher_;
  const size_t worker_index_;
  const Peer peer_;
  Device& device_;
  std::deque<HttpChannel> channels_;  // the first for all messages, the others for concurrent weight chunks
  std::string session_;
  int64_t version_ = -1;  // of the worker's weights; -1: none
  static constexpr double kFirstJoinPause = 0.25;
  double next_pause_ = kFirstJoinPause;  // seconds before joining again; doubled each time until a request finishes
  std::optional<Context> context_;
  std::unique_ptr<DeviceLink> device_link_;
  int failed_openings_ = 0;
  std::thread thread_;
};

}  // namespace hone
