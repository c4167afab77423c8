#pragma once
// ProcessPool: processes that judge completions, speaking JSON lines over their standard input and output
// (docs/howto/plugins.md).
//
//   hone: {"id": 0, "protocol": 1, "options": {...}}                                 once, first
//   it:   {"id": 0, "protocol": 1}
//   hone: {"id": 1, "prompts": [...], "completions": [...], "answers": [...], "columns": {...}, ...}
//   it:   {"id": 1, "scores": [1.0, null, {"score": 0.5, "note": "..."}]}             or {"id": 1, "error": "..."}
//
// A process is used by one call at a time. One that dies, answers late, or answers anything but its request is killed
// with its group, and the next call starts another: a late answer is never read. From any thread.
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/io/json.h"
#include "rewards/plugins/line_process.h"
#include "rewards/reward.h"

namespace hone {

struct ProcessCommand {
  std::vector<std::string> command;
  Json options = JsonObject{};  // what the first line gives it
  std::string shown_as;         // before what it writes to standard error, in the log
  int64_t workers = 4;          // processes at most
  double start_timeout = 120;   // seconds until it has answered the first line
};

class ProcessPool {
 public:
  static constexpr int64_t protocol = 1;
  explicit ProcessPool(ProcessCommand command) : command_(std::move(command)) {}
  // One call. An Error says why it failed as a whole; the process's own "error" is one, too.
  void score(const Task& task, std::span<const Completion> completions, std::span<RewardScore> scores, double timeout);

 private:
  struct Worker {
    LineProcess process;
    int64_t next_id = 1;
  };
  std::unique_ptr<Worker> take();  // waits while all are in use
  std::unique_ptr<Worker> start();
  void show(std::string_view line);  // of standard error, in the log
  // What the process itself says went wrong, or "".
  static std::string ask(Worker& worker, const Task& task, std::span<const Completion> completions,
                         std::span<RewardScore> scores, double timeout);
  void free_blocks_of(std::unique_ptr<Worker> worker);  // null: it is gone

  ProcessCommand command_;
  std::mutex mutex_;
  std::condition_variable freed_;
  int64_t in_use_ = 0;
  std::atomic<int64_t> lines_shown_{0};
  std::vector<std::unique_ptr<Worker>> idle_;  // last: their last words are shown
};

}  // namespace hone
