#pragma once
// Collection: the rows of a task or data file with their completions, in a folder that survives a killed process, and
// the files that are made of them.
//
//   completions.jsonl  every row with its completions and scores (collect/journal.h)
//   collect.json       the settings that they depend on (collect/identity.h)
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "collect/config.h"
#include "collect/journal.h"
#include "collect/selection.h"
#include "collect/source.h"

namespace hone {

// Files to write; an empty path is not written, "-" is standard output.
struct CollectFiles {
  std::filesystem::path sft, pairs, tasks;
};

struct CollectSummary {
  int64_t rows = 0, rows_done = 0, rows_with_failures = 0;
  RowCounts counts;
  bool has_scores = true;
  int64_t sft_rows = 0, pairs = 0, tasks = 0;  // rows written
  int64_t tasks_below_min_pass_rate = 0, tasks_above_max_pass_rate = 0, tasks_without_score = 0;
  // Figures that depend on the rows and the settings alone.
  Json to_json() const;
};

// How fast this process was.
struct CollectSpeed {
  int64_t rows = 0, tokens = 0;
  double seconds = 0;
  Json to_json() const;
};

class Collection {
 public:
  // Reads the rows of config.tasks, and what was collected before in `folder`, which must exist. An Error if a row has
  // changed since.
  Collection(const CollectConfig& config, std::filesystem::path folder);

  // Compares with the settings of the rows that are done, and keeps these for the next time. An Error names the key
  // that differs. allow_changes: rows that are done stay as they are.
  void check_settings(const Json& identity, bool allow_changes);
  int64_t num_rows() const { return end_ - begin_; }  // of this shard
  // Rows without completions, or with failed ones, which are tried again.
  int64_t num_missing() const;

  // Collects the missing rows. Returns early if the process is asked to stop. An Error if too many rewards or requests
  // fail; rows that are done are kept.
  void run(CollectSource& source);
  // Writes the files of the rows that are done, and sorts completions.jsonl.
  CollectSummary write(const CollectFiles& files);
  const CollectSpeed& speed() const { return speed_; }

 private:
  bool is_in_shard(int64_t index) const { return index >= begin_ && index < end_; }
  void note(const CollectedRow& row);
  void take(const CollectedRow& row);
  void check_failures(const CollectedRow& row, const RowCounts& counts);
  std::string progress_note() const;
  void check_all_failed(const RowCounts& counts) const;

  const CollectConfig& config_;
  std::filesystem::path folder_;
  std::vector<Task> tasks_;
  int64_t begin_ = 0, end_ = 0;  // rows of this shard
  std::map<int64_t, RowCounts> done_;
  std::optional<CollectJournal> journal_;
  CollectSpeed speed_;
  RowCounts session_;            // of rows that this process collected
  int64_t failed_in_a_row_ = 0;  // completions, since the last one that was sampled
  std::string first_failure_;
  std::set<std::string> shown_;
};

}  // namespace hone
