#pragma once
// A link between two threads of one process instead of one between GPUs. It registers in device_links() as "local" when
// a test first uses it.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/comm/device_link.h"

namespace hone::test {

enum class LinkFault : uint8_t {
  none,
  never_opens,
  breaks,
  stalls,  // nothing arrives, and no side gets an error
  loses,   // nothing arrives, and the sender sees success
};

// The fault to inject, and counts: sides that tried to open, sides that opened, tensors that arrived, sides that wait
// for the other.
struct LocalLinks {
  static inline std::atomic<LinkFault> fault = LinkFault::none;
  static inline std::atomic<int> tried = 0, opened = 0, arrived = 0, waiting = 0;
  static void join_registry();
};

class LocalLink final : public DeviceLink {
 public:
  LocalLink(const std::string& id, int rank, const Deadline& patience) : rank_(rank) {
    ++LocalLinks::tried;
    {
      const std::lock_guard lock(mutex());
      std::weak_ptr<Wire>& known = wires()[id];
      wire_ = known.lock();
      if (!wire_) known = wire_ = std::make_shared<Wire>();
    }
    std::unique_lock lock(wire_->mutex);
    ++wire_->sides;
    wire_->changed.notify_all();
    wait(lock, patience, [&] { return wire_->sides == 2 && LocalLinks::fault != LinkFault::never_opens; });
    ++LocalLinks::opened;
  }
  void send(Context&, Tensor x, const Deadline&) override {
    HONE_CHECK(LocalLinks::fault != LinkFault::breaks, "the cable is cut");
    const std::lock_guard lock(wire_->mutex);
    wire_->to[1 - rank_].emplace_back(static_cast<char*>(x.data), static_cast<char*>(x.data) + x.bytes());
    wire_->changed.notify_all();
  }
  void receive(Context&, Tensor x, const Deadline&) override { awaited_.push_back(x); }
  void finish(Context&, const Deadline& patience) override {
    std::unique_lock lock(wire_->mutex);
    wait(lock, patience, [&] {
      return LocalLinks::fault != LinkFault::stalls && (LocalLinks::fault != LinkFault::loses || awaited_.empty());
    });
    for (const Tensor& x : std::exchange(awaited_, {})) {
      auto& come = wire_->to[rank_];
      wait(lock, patience, [&] { return !come.empty(); });
      HONE_CHECK(come.front().size() == x.bytes(), come.front().size(), " bytes came for ", x.bytes());
      std::memcpy(x.data, come.front().data(), x.bytes());
      come.pop_front();
      ++LocalLinks::arrived;
    }
  }

 private:
  struct Wire {
    std::mutex mutex;
    std::condition_variable changed;
    int sides = 0;
    std::deque<std::vector<char>> to[2];
  };
  template <class Fact>
  void wait(std::unique_lock<std::mutex>& lock, const Deadline& patience, Fact fact) {
    ++LocalLinks::waiting;
    try {
      for (; !fact(); wire_->changed.wait_for(lock, std::chrono::milliseconds(1))) patience.check();
    } catch (...) {
      --LocalLinks::waiting;
      throw;
    }
    --LocalLinks::waiting;
  }
  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }
  static std::map<std::string, std::weak_ptr<Wire>>& wires() {
    static std::map<std::string, std::weak_ptr<Wire>> all;
    return all;
  }
  const int rank_;
  std::shared_ptr<Wire> wire_;
  std::vector<Tensor> awaited_;
};

inline void LocalLinks::join_registry() {
  static std::atomic<int> next_id = 0;
  static const bool added = device_links().add(
      "local",
      {.serves = [](const Device& device) { return device.kind() == DeviceKind::cpu; },
       .new_id = [] { return std::to_string(next_id++); },
       .open = [](Device&, const std::string& id, int rank, const Deadline& patience) -> std::unique_ptr<DeviceLink> {
         return std::make_unique<LocalLink>(id, rank, patience);
       }});
  static_cast<void>(added);
}

}  // namespace hone::test
