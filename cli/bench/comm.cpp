#include "cli/bench/comm.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <mutex>

#include "core/base/format.h"
#include "core/base/stopwatch.h"
#include "core/comm/launch.h"
#include "core/device/device_peers.h"

namespace hone {
namespace {

constexpr int64_t part_sizes[] = {int64_t{1} << 20, int64_t{8} << 20, int64_t{64} << 20};

double number_of(const std::string& text) {
  double out = 0;
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}

double slowest(const Ranks& ranks, double seconds) {
  double out = 0;
  for (const std::string& one : ranks.all_gather(Json(seconds).dump(), "seconds")) out = std::max(out, number_of(one));
  return out;
}

// The median time of a call on the slowest rank. All ranks make equally many calls.
double measure(const Ranks& ranks, Context& context, double seconds, const std::function<void()>& call) {
  call();  // connects and warms up
  context.synchronize();
  std::vector<double> times;
  const Stopwatch whole;
  for (bool more = true; more;) {
    ranks.all_gather("", "start");
    const Stopwatch watch;
    call();
    context.synchronize();
    times.push_back(slowest(ranks, watch.seconds()));
    more = ranks.any(ranks.is_first() && (whole.seconds() < seconds || times.size() < 3), "more");
  }
  std::ranges::nth_element(times, times.begin() + std::ssize(times) / 2);
  return times[times.size() / 2];
}

// One rank's memory and calls for one size of part.
class Exchanges {
 public:
  Exchanges(const Ranks& ranks, Device& device, int64_t bytes)
      : ranks_(ranks),
        size_(ranks.size()),
        bytes_(bytes),
        context_(device),
        sent_(device, static_cast<size_t>(size_ * bytes)),
        received_(device, static_cast<size_t>(size_ * bytes)),
        to_(parts_of(sent_)),
        from_(parts_of(received_)) {
    device.zero(sent_.data(), sent_.size(), context_.stream());
    device.zero(received_.data(), received_.size(), context_.stream());
    context_.synchronize();
    // Ranks are threads of this process, so an address has a meaning for all of them.
    const std::string own = std::to_string(reinterpret_cast<uintptr_t>(sent_.data()));
    other_ = reinterpret_cast<const void*>(std::stoull(ranks.all_gather(own, "buffers")[1]));
    if (const DevicePeers* peers = peers_of(device.kind()); peers && ranks.is_first()) peers->reach(other_);
  }

  std::vector<CommBench> run(double seconds) {
    ProcessGroup& group = *ranks_.group();
    const int next = (ranks_.rank() + 1) % size_, before = (ranks_.rank() + size_ - 1) % size_;
    const auto row = [&](const char* what, int64_t parts, const std::function<void()>& call) {
      const double time = measure(ranks_, context_, seconds, call);
      return CommBench{.what = what,
                       .bytes = bytes_,
                       .seconds = time,
                       .bytes_per_second = static_cast<double>(parts * bytes_) / time};
    };
    std::vector<CommBench> out;
    out.push_back(row("copy", 1, [&] {
      if (ranks_.is_first())
        context_.device().copy(received_.data(), other_, static_cast<size_t>(bytes_), context_.stream());
    }));
    out.push_back(row("all_gather", size_ - 1,
                      [&] { group.all_gather(context_, from_, to_[static_cast<size_t>(ranks_.rank())], "bench"); }));
    out.push_back(row("all_to_all", size_ - 1, [&] { group.all_to_all(context_, from_, to_, "bench"); }));
    // Around the ring; the first rank sends first, so that nobody waits for itself.
    out.push_back(row("send_receive", 1, [&] {
      if (ranks_.is_first()) group.send(context_, to_[0], next, "bench");
      group.receive(context_, from_[0], before, "bench");
      if (!ranks_.is_first()) group.send(context_, to_[0], next, "bench");
    }));
    out.back().seconds /= size_;  // the turns of the ring come one after another
    out.back().bytes_per_second *= size_;
    for (CommBench& one : out) one.share = one.bytes_per_second / out.front().bytes_per_second;
    return out;
  }

 private:
  std::vector<Tensor> parts_of(const Buffer& buffer) const {
    std::vector<Tensor> out;
    for (int64_t r = 0; r < size_; ++r)
      out.emplace_back(static_cast<char*>(buffer.data()) + r * bytes_, DType::u8, context_.kind(),
                       std::initializer_list<int64_t>{bytes_});
    return out;
  }

  const Ranks ranks_;
  const int size_;
  const int64_t bytes_;
  Context context_;
  Buffer sent_, received_;
  std::vector<Tensor> to_, from_;
  const void* other_ = nullptr;
};

}  // namespace

Json CommBench::json() const {
  return JsonObject{
      {"what", what}, {"bytes", bytes}, {"seconds", seconds}, {"bytes_per_second", bytes_per_second}, {"share", share}};
}

std::vector<CommBench> bench_comm(const std::vector<std::string>& devices, double seconds) {
  HONE_CHECK(devices.size() >= 2, "bench comm: ", devices.size(), " rank has nothing to exchange: set --ranks to 2 or ",
             "more");
  std::vector<CommBench> out;
  run_ranks(devices, {.timeout = 60}, [&](const Ranks& ranks, Device& device) {
    for (const int64_t bytes : part_sizes) {
      const std::vector<CommBench> rows = Exchanges(ranks, device, bytes).run(seconds);
      if (ranks.is_first()) out.insert(out.end(), rows.begin(), rows.end());
      ranks.all_gather("", "end of a size");  // other ranks read this one's memory until here
    }
  });
  return out;
}

std::string comm_table(const std::vector<CommBench>& rows, const std::vector<std::string>& devices) {
  std::string out = concat(devices.size(), " ranks: ", join(devices), "\n");
  out += format_text("%-14s %10s %12s %10s %8s\n", "what", "MiB", "time ms", "GB/s", "of copy");
  for (const CommBench& row : rows)
    out += format_text("%-14s %10.0f %12.3f %10.1f %7.0f%%\n", row.what.c_str(),
                       static_cast<double>(row.bytes) / (1 << 20), row.seconds * 1e3, row.bytes_per_second * 1e-9,
                       100 * row.share);
  return out;
}

}  // namespace hone
