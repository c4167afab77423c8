#pragma once
// ProcessPool: processes that score completions over JSON lines on their standard input and output
// (docs/howto/plugins.md).
//
//   hone:    {"id": 0, "protocol": 1, "options": {...}}                                 once, first
//   process: {"id": 0, "protocol": 1}
//   hone:    {"id": 1, "prompts": [...], "completions": [...], "answers": [...], "columns": {...}, ...}
//   process: {"id": 1, "scores": [1.0, null, {"score": 0.5, "note": "..."}]}             or {"id": 1, "error": "..."}
//
// One call uses a process at a time. A process that dies, misses its deadline, or answers anything but its request is
// killed with its group, and the next call starts another one. A late answer is never read. Any thread may call
// score().
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
  Json options = JsonObject{};  // sent in the first line
  std::string shown_as;         // log prefix of the lines that it writes to standard error
  int64_t workers = 4;          // maximum number of processes
  double start_timeout = 120;   // seconds until it answers the first line
};

class ProcessPool {
 public:
  static constexpr int64_t protocol = 1;
  explicit ProcessPool(ProcessCommand command) : command_(std::move(command)) {}
  // Scores one batch. Throws an Error if the entire batch failed, also if the process answers with an "error".
  void score(const Task& task, std::span<const Completion> completions, std::span<RewardScore> scores, double timeout);

  // Starts a process with these options and ends it. Throws an Error that names the program if it does not start or
  // does not accept the first line.
  void check(const Json& options);

 private:
  struct Worker {
    LineProcess process;
    int64_t next_id = 1;
  };
  std::unique_ptr<Worker> acquire();  // waits while all are in use; null: start a new one
  std::unique_ptr<Worker> start(const Json& options);
  void show(std::string_view line);  // logs a line of standard error

  // Returns the error that the process reports, or "".
  static std::string request_scores(Worker& worker, const Task& task, std::span<const Completion> completions,
                                    std::span<RewardScore> scores, double timeout);
  void release(std::unique_ptr<Worker> worker);  // null: the process is dead

  ProcessCommand command_;
  std::mutex mutex_;
  std::condition_variable freed_;
  int64_t in_use_ = 0;
  std::atomic<int64_t> lines_shown_{0};
  std::vector<std::unique_ptr<Worker>> idle_;  // destroyed first, since their last lines are still logged
};

}  // namespace hone
