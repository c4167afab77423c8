#pragma once
// The run folders that a live view shows, and what their files say about them.
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/io/json.h"

namespace hone {

// Finds runs in the given folders: a run folder itself, or a folder of run folders. Runs may appear, grow, be resumed
// and lose files at any time. A run keeps its number. Thread-safe.
class RunList {
 public:
  static constexpr size_t max_runs = 1000;

  explicit RunList(std::vector<std::filesystem::path> sources) : sources_(std::move(sources)) {}

  void add(const std::filesystem::path& source);
  // Looks for new runs. Returns {runs: [{id, name, path, state, stages, stages_done}]}. state: running (a living
  // process of this machine holds the folder's lock), finished, or stopped. stages: [{name, kind, steps, first_step,
  // seconds}]; steps and seconds are 0 before a stage is done.
  Json describe();
  // The folder of a run; empty if there is no such number.
  std::optional<std::filesystem::path> folder(size_t id);
  // The recipe in run.json as an object; null if there is none.
  static Json recipe(const std::filesystem::path& folder);

 private:
  struct Entry {
    std::filesystem::path folder;
    // Of run.json, which is read again only if it has changed.
    std::filesystem::file_time_type time = {};
    Json facts = JsonObject{};
    bool finished = false;
  };
  void scan();
  void add_run(const std::filesystem::path& folder);
  static void read_facts(Entry& entry);
  std::string shown_name(const Entry& entry) const;

  std::mutex mutex_;
  std::vector<std::filesystem::path> sources_;
  std::vector<Entry> runs_;
  std::map<std::filesystem::path, size_t> numbers_;
};

}  // namespace hone
