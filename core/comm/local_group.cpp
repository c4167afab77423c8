// The thread transport. A receiver pulls: it copies from the sender's memory on its own stream, behind the sender's
// event; the sender's stream then waits for the receiver's event, and may overwrite what it sent. Streams wait only for
// events that are recorded already, so a failed rank never leaves a GPU waiting.
#include "core/comm/local_group.h"

#include <exception>
#include <thread>

#include "core/device/device_peers.h"

namespace hone {
namespace {

// Links of equal machines are used evenly if each rank begins with its neighbor.
int neighbor(int rank, int distance, int size) { return (rank + distance) % size; }

}  // namespace

class LocalExchange {
 public:
  explicit LocalExchange(LocalHub& hub)
      : hub_(hub), boxes_(size() * size()), slots_{Slots(size()), Slots(size())}, calls_(size()) {}

  // A part on its way from one rank to another. The sender fills it; the receiver queues its copy and sets `read`.
  struct Box {
    bool full = false, taken = false;
    bool copying = false;  // the receiver reads the part: its memory must stay
    Tensor part = {};
    std::string what = {};
    Event* ready = nullptr;                 // recorded when the part is complete
    std::shared_ptr<Event> read = nullptr;  // recorded behind the receiver's copy, whose rank may end before the sender
  };
  struct Slot {
    std::string bytes, what;
    uint64_t call = 0;  // the call that wrote it, counted from 1
  };
  using Slots = std::vector<Slot>;

  LocalHub& hub() { return hub_; }
  Box& box(int from, int to) { return boxes_[static_cast<size_t>(from) * size() + static_cast<size_t>(to)]; }

  // A slot of call k is free again at call k + 2: then every rank has come to call k + 1, and so has read call k.
  std::vector<std::string> all_gather(int rank, std::string own, const std::string& what) {
    auto lock = hub_.lock();
    const uint64_t call = ++calls_[static_cast<size_t>(rank)];
    Slots& slots = slots_[call % 2];
    slots[static_cast<size_t>(rank)] = {std::move(own), what, call};
    hub_.notify();
    hub_.wait(lock, rank, what, [&] {
      for (size_t other = 0; other < size(); ++other) {
        if (slots[other].call != call) return static_cast<int>(other);
        check_same(slots[other].what, what, static_cast<int>(other), rank);
      }
      return -1;
    });
    std::vector<std::string> out;
    for (const Slot& slot : slots) out.push_back(slot.bytes);
    return out;
  }

  // Empties the boxes of a sender that failed, and waits for receivers that copy just now.
  void retract(int rank) {
    auto lock = hub_.lock();
    for (size_t to = 0; to < size(); ++to) {
      Box& own = box(rank, static_cast<int>(to));
      own.full = false;
      while (own.copying) {
        lock.unlock();
        std::this_thread::yield();
        lock.lock();
      }
    }
  }

  void check_same(const std::string& theirs, const std::string& mine, int other, int rank) const {
    if (theirs == mine) return;
    for (const int one : {other, rank}) hub_.throw_if_noted(one);
    throw RankFailed(concat("ranks are at different calls: ", hub_.label(rank), " at '", mine, "', ", hub_.label(other),
                            " at '", theirs, "'"));
  }

 private:
  size_t size() const { return static_cast<size_t>(hub_.size()); }

  LocalHub& hub_;
  std::vector<Box> boxes_;
  Slots slots_[2];
  std::vector<uint64_t> calls_;  // of the control channel, by rank
};

std::shared_ptr<LocalExchange> make_local_exchange(LocalHub& hub) { return std::make_shared<LocalExchange>(hub); }

namespace {

class LocalChannel : public ControlChannel {
 public:
  LocalChannel(LocalExchange& exchange, int rank) : exchange_(exchange), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return exchange_.hub().size(); }
  std::string label() const override { return exchange_.hub().label(rank_); }
  std::vector<std::string> all_gather(std::string own, const std::string& what) override {
    return exchange_.all_gather(rank_, std::move(own), what);
  }
  void set_phase(const std::string& phase) override { exchange_.hub().set_phase(rank_, phase); }
  void note_failure(const std::string& error) override { exchange_.hub().note_failure(rank_, error); }
  void abort(const std::string& message) override { exchange_.hub().abort(message); }

 private:
  LocalExchange& exchange_;
  const int rank_;
};

class LocalGroup : public ProcessGroup {
 public:
  LocalGroup(std::shared_ptr<LocalExchange> exchange, int rank, Device& device)
      : exchange_(std::move(exchange)),
        channel_(*exchange_, rank),
        rank_(rank),
        peers_(peers_of(device.kind())),
        ready_(device.make_event()) {
    for (int i = 0; i < channel_.size(); ++i) read_.push_back(device.make_event());
    reached_.resize(read_.size());
  }
  ControlChannel& control() override { return channel_; }

  void all_gather(Context& context, std::span<const Tensor> all, Tensor own, const std::string& what) override {
    check_parts(context, all, what);
    check_part(context, own, what);
    const Tensor& place = all[static_cast<size_t>(rank_)];
    HONE_CHECK(place.bytes() == own.bytes(), what, ": rank ", rank_, " has ", own.bytes(), " bytes, its place ",
               place.bytes());
    const std::vector<Tensor> to(all.size(), own);
    exchange(context, all, to, what);
  }

  void all_to_all(Context& context, std::span<const Tensor> from, std::span<const Tensor> to,
                  const std::string& what) override {
    check_parts(context, from, what);
    check_parts(context, to, what);
    const Tensor &in = from[static_cast<size_t>(rank_)], &out = to[static_cast<size_t>(rank_)];
    HONE_CHECK(in.bytes() == out.bytes(), what, ": rank ", rank_, " keeps ", out.bytes(), " bytes and expects ",
               in.bytes());
    exchange(context, from, to, what);
  }

  void send(Context& context, Tensor x, int to, const std::string& what) override {
    check_peer(to, what);
    check_part(context, x, what);
    ready_->record(context.stream());
    const Retraction retraction(*this);
    put(to, x, what);
    wait_until_read(context, to, what);
  }

  void receive(Context& context, Tensor x, int from, const std::string& what) override {
    check_peer(from, what);
    check_part(context, x, what);
    pull(context, from, x, what);
  }

 private:
  // Takes back this rank's parts if an exception leaves the scope: the caller frees their memory then.
  class Retraction {
   public:
    explicit Retraction(LocalGroup& group) : group_(group) {}
    Retraction(const Retraction&) = delete;
    Retraction& operator=(const Retraction&) = delete;
    ~Retraction() {
      if (std::uncaught_exceptions() > exceptions_) group_.exchange_->retract(group_.rank_);
    }

   private:
    LocalGroup& group_;
    const int exceptions_ = std::uncaught_exceptions();
  };

  void exchange(Context& context, std::span<const Tensor> from, std::span<const Tensor> to, const std::string& what) {
    const int size = channel_.size();
    ready_->record(context.stream());
    const Retraction retraction(*this);
    for (int i = 1; i < size; ++i) {
      const int other = neighbor(rank_, i, size);
      put(other, to[static_cast<size_t>(other)], what);
    }
    copy(context, from[static_cast<size_t>(rank_)], to[static_cast<size_t>(rank_)]);
    for (int i = 1; i < size; ++i) {
      const int other = neighbor(rank_, i, size);
      pull(context, other, from[static_cast<size_t>(other)], what);
    }
    for (int i = 1; i < size; ++i) wait_until_read(context, neighbor(rank_, i, size), what);
  }

  void copy(Context& context, const Tensor& to, const Tensor& from) const {
    if (to.bytes() == 0 || to.data == from.data || context.kind() == DeviceKind::meta) return;
    context.device().copy(to.data, from.data, to.bytes(), context.stream());
  }

  // The box is empty: the last part was read before the call that sent it returned.
  void put(int to, const Tensor& part, const std::string& what) {
    const auto lock = exchange_->hub().lock();
    LocalExchange::Box& box = exchange_->box(rank_, to);
    box = {.full = true, .part = part, .what = what, .ready = ready_.get()};
    exchange_->hub().notify();
  }

  void pull(Context& context, int from, const Tensor& to, const std::string& what) {
    LocalExchange::Box& box = exchange_->box(from, rank_);
    auto lock = exchange_->hub().lock();
    exchange_->hub().wait(lock, rank_, what, [&] {
      if (box.full && !box.taken) return -1;
      exchange_->hub().throw_if_noted(from);
      return from;
    });
    exchange_->check_same(box.what, what, from, rank_);
    if (box.part.bytes() != to.bytes())
      throw RankFailed(concat("ranks disagree at '", what, "': ", exchange_->hub().label(from), " sends ",
                              box.part.bytes(), " bytes, ", exchange_->hub().label(rank_), " expects ", to.bytes()));
    box.copying = true;
    const LocalExchange::Box sent = box;
    lock.unlock();  // the sender waits for `taken` or, if it fails, for the end of `copying`
    const std::shared_ptr<Event>& read = read_[static_cast<size_t>(from)];
    std::exception_ptr failure;
    try {
      if (to.bytes() > 0) {
        reach(from, sent.part.data);
        if (peers_) peers_->make_stream_wait(*sent.ready, context.stream());
        copy(context, to, sent.part);
      }
      read->record(context.stream());
    } catch (...) {  // thrown again once the sender is free
      failure = std::current_exception();
    }
    lock.lock();
    box.copying = false;
    if (failure) std::rethrow_exception(failure);
    box.read = read;
    box.taken = true;
    exchange_->hub().notify();
  }

  void wait_until_read(Context& context, int to, const std::string& what) {
    LocalExchange::Box& box = exchange_->box(rank_, to);
    auto lock = exchange_->hub().lock();
    exchange_->hub().wait(lock, rank_, what, [&] {
      if (box.taken) return -1;
      exchange_->hub().throw_if_noted(to);
      return to;
    });
    const std::shared_ptr<Event> read = box.read;
    box = {};
    lock.unlock();
    if (peers_ && read) peers_->make_stream_wait(*read, context.stream());
  }

  // Gives this rank's device access to the memory of a sender's device, once.
  void reach(int from, const void* memory) {
    if (!peers_ || reached_[static_cast<size_t>(from)]) return;
    peers_->reach(memory);
    reached_[static_cast<size_t>(from)] = true;
  }

  std::shared_ptr<LocalExchange> exchange_;
  LocalChannel channel_;
  const int rank_;
  const DevicePeers* peers_;
  std::unique_ptr<Event> ready_;              // of this rank's parts in the current call
  std::vector<std::shared_ptr<Event>> read_;  // by sender: this rank's copy of the sender's last part
  std::vector<bool> reached_;                 // by sender
};

}  // namespace

std::unique_ptr<ProcessGroup> make_local_group(std::shared_ptr<LocalExchange> exchange, int rank, Device& device) {
  return std::make_unique<LocalGroup>(std::move(exchange), rank, device);
}

}  // namespace hone
