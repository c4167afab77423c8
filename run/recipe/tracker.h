#pragma once
// Tracker: a process of the user that receives a run's configuration and metrics as JSON lines on its standard input,
// and hands them to a service (examples/tracker_wandb and its neighbors).
//
// First line   {"id", "name", "folder", "resumed", "version", "config": the recipe with all keys}
// Other lines  the rows of metrics.jsonl, as they are there
//
// The file metrics.jsonl is the queue: a thread reads it as fast as the process accepts lines. So the run never waits,
// memory is bounded, and no row is lost if the process is slow. tracker.json in the run folder says how much of the
// file the process has received; a resumed run starts the process again and continues there. Rows that a resumed run
// repeats are sent again with the same steps.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/config/fields.h"
#include "core/io/json.h"

namespace hone {

struct TrackerConfig {
  std::vector<std::string> command;  // empty = no tracker
  double grace = 30;                 // seconds to receive the last rows and exit
  void fields(Fields& f);
};

// Whatever the process does, the run goes on: if it cannot start, exits, or closes its input, one warning is logged.
// Its standard output and error go to tracker.log in the run folder, at most 1 MiB of each start. One thread may call
// it.
class Tracker {
 public:
  // about: members of the first line in addition to id, folder and resumed. An empty command starts nothing.
  Tracker(const TrackerConfig& config, const std::filesystem::path& run_folder, const Json& about);
  // Calls finish().
  ~Tracker();
  Tracker(const Tracker&) = delete;
  Tracker& operator=(const Tracker&) = delete;

  // metrics.jsonl has a new row that begins at this byte (MetricsLog::on_row).
  void notify(int64_t begin);
  // Sends the rest, closes the process's input, and waits for its end: `grace` seconds in all. Then it gets SIGTERM,
  // and 2 seconds later SIGKILL. Both go to its process group.
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hone
