#include "core/comm/launch.h"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "core/base/log.h"
#include "core/base/rank_thread.h"
#include "core/comm/local_group.h"

namespace hone {
namespace {

std::vector<std::string> labels_of(const std::vector<std::string>& devices) {
  std::vector<std::string> out;
  for (size_t r = 0; r < devices.size(); ++r) out.push_back(concat("rank ", r, " (", devices[r], ")"));
  return out;
}

class Launch {
 public:
  Launch(const std::vector<std::string>& devices, const LaunchOptions& options,
         const std::function<void(const Ranks&, Device&)>& body)
      : devices_(devices),
        options_(options),
        hub_(labels_of(devices), options.timeout),
        exchange_(make_local_exchange(hub_)),
        body_(body),
        errors_(devices.size()) {}

  void run() {
    std::vector<std::thread> threads;
    for (int r = 0; r < hub_.size(); ++r) threads.emplace_back([this, r] { run_rank(r); });
    wait();
    for (std::thread& thread : threads) thread.join();
    if (agreed_) std::rethrow_exception(agreed_);
    // Every rank found the same by itself, in a file that all of them read, for example: no rank is to blame.
    if (!errors_.front().empty() && std::ranges::all_of(errors_, [&](const auto& e) { return e == errors_.front(); }))
      fail(errors_.front());
    if (const std::string failure = hub_.failure(); !failure.empty()) fail(failure);
  }

 private:
  void run_rank(int rank) {
    set_rank_thread(
        {.rank = rank, .progress = &hub_.progress(rank), .device = devices_[static_cast<size_t>(rank)].c_str()});
    try {
      const std::unique_ptr<Device> device = options_.open(devices_[static_cast<size_t>(rank)]);
      const std::unique_ptr<ProcessGroup> group = make_local_group(exchange_, rank, *device);
      body_(Ranks(*group), *device);
    } catch (const AgreedError&) {
      const std::lock_guard lock(mutex_);
      if (!agreed_) agreed_ = std::current_exception();
    } catch (const RankFailed& error) {
      end_run(error.what());
    } catch (const std::exception& error) {
      errors_[static_cast<size_t>(rank)] = error.what();
      end_run(concat(hub_.label(rank), ": ", error.what()));
    } catch (...) {
      end_run(concat(hub_.label(rank), ": an unknown exception"));
    }
    hub_.leave(rank);
    const std::lock_guard lock(mutex_);
    ++ended_;
    changed_.notify_all();
  }

  void end_run(const std::string& message) {
    hub_.abort(message);
    const std::lock_guard lock(mutex_);
    failed_ = true;
    changed_.notify_all();
  }

  // Waits for the threads. One that hangs cannot be ended, and the caller's objects must stay while it runs.
  void wait() {
    std::unique_lock lock(mutex_);
    const auto ended = [this] { return ended_ == hub_.size(); };
    changed_.wait(lock, [&] { return failed_ || ended(); });
    if (changed_.wait_for(lock, std::chrono::duration<double>(options_.grace), ended)) return;
    log::error(hub_.failure());
    ::_exit(1);
  }

  const std::vector<std::string>& devices_;
  const LaunchOptions& options_;
  LocalHub hub_;
  const std::shared_ptr<LocalExchange> exchange_;
  const std::function<void(const Ranks&, Device&)>& body_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::exception_ptr agreed_;
  std::vector<std::string> errors_;  // by rank: what it threw
  bool failed_ = false;
  int ended_ = 0;
};

// The number in an environment variable; none if it is not set or no number.
std::optional<long> number_in(const char* variable) {
  const char* text = std::getenv(variable);
  if (!text || !*text) return std::nullopt;
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  return *end ? std::nullopt : std::optional(value);
}

}  // namespace

void run_ranks(const std::vector<std::string>& devices, const LaunchOptions& options,
               const std::function<void(const Ranks&, Device&)>& body) {
  HONE_CHECK(!devices.empty(), "a run needs at least one device");
  if (devices.size() == 1) {
    const std::unique_ptr<Device> device = options.open(devices.front());
    return body(Ranks(), *device);
  }
  Launch(devices, options, body).run();
}

void check_launcher() {
  const char* instead = "start hone run once on the machine, and [parallel] ranks says how many of its GPUs it uses";
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
    if (const auto size = number_in(variable); size && *size > 1)
      fail(variable, " is ", *size, ": mpirun started ", *size, " processes, and this build runs all ranks in one; ",
           instead);
  if (const auto size = number_in("WORLD_SIZE"); size && *size > 1 && std::getenv("RANK"))
    fail("RANK and WORLD_SIZE = ", *size, " are set, as torchrun does; hone starts its ranks itself: ", instead);
  if (const auto tasks = number_in("SLURM_STEP_NUM_TASKS"); tasks && *tasks > 1)
    fail("SLURM_STEP_NUM_TASKS is ", *tasks, ": srun started ", *tasks, " processes; use srun --ntasks 1: ", instead);
}

}  // namespace hone
