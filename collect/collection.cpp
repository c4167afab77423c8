#include "collect/collection.h"

#include <algorithm>

#include "collect/identity.h"
#include "core/base/format.h"
#include "core/base/interrupt.h"
#include "core/base/log.h"
#include "core/base/stopwatch.h"
#include "core/io/compressed_writer.h"

namespace hone {
namespace {

// A file of rows; without a path nothing is written.
class RowFile {
 public:
  explicit RowFile(const std::filesystem::path& path) {
    if (!path.empty()) file_.emplace(path);
  }
  int64_t write(const Json& row) {
    if (file_) file_->write(row.dump() + "\n");
    return file_ ? 1 : 0;
  }
  void finish() {
    if (file_) file_->finish();
  }

 private:
  std::optional<ReplacedFile> file_;
};

double ratio(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

}  // namespace

Json CollectSummary::to_json() const {
  Json out = JsonObject{{"rows", rows},
                        {"rows_done", rows_done},
                        {"rows_with_failures", rows_with_failures},
                        {"completions", counts.completions},
                        {"tokens", counts.tokens},
                        {"truncated", counts.truncated},
                        {"duplicates", counts.duplicates},
                        {"failed_completions", counts.failed_completions},
                        {"failed_rewards", counts.failed_rewards},
                        {"failed_environments", counts.failed_environments}};
  if (has_scores) {
    out.set("scored", counts.scored);
    out.set("skipped", counts.skipped);
    out.set("passed", counts.passed);
    out.set("acceptance_rate", ratio(counts.passed, counts.scored));
    out.set("mean_reward", counts.reward / static_cast<double>(std::max<int64_t>(1, counts.scored)));
  }
  out.set("sft_rows", sft_rows);
  if (!has_scores) return out;
  out.set("pairs", pairs);
  out.set("tasks", tasks);
  out.set("tasks_below_min_pass_rate", tasks_below_min_pass_rate);
  out.set("tasks_above_max_pass_rate", tasks_above_max_pass_rate);
  out.set("tasks_without_score", tasks_without_score);
  return out;
}

Json CollectSpeed::to_json() const {
  const auto rate = [&](int64_t count) { return seconds > 0 ? static_cast<double>(count) / seconds : 0.0; };
  return JsonObject{{"new_rows", rows},
                    {"new_tokens", tokens},
                    {"seconds", seconds},
                    {"rows_per_second", rate(rows)},
                    {"tokens_per_second", rate(tokens)}};
}

Collection::Collection(const CollectConfig& config, std::filesystem::path folder)
    : config_(config), folder_(std::move(folder)), tasks_(load_tasks(config.tasks)) {
  const int64_t count = std::ssize(tasks_);
  begin_ = count * config.shard_index / config.num_shards;
  end_ = count * (config.shard_index + 1) / config.num_shards;
  const std::filesystem::path file = folder_ / "completions.jsonl";
  journal_.emplace(file, [&](const CollectedRow& row) {
    if (row.index >= std::ssize(tasks_)) return;
    const Task& task = tasks_[static_cast<size_t>(row.index)];
    HONE_CHECK(row.digest == task_digest(task), task.id,
               ": the row has changed since its completions were collected in ", file.string(),
               "; use another --out folder");
    if (is_in_shard(row.index)) note(row);
  });
}

void Collection::note(const CollectedRow& row) { done_[row.index] = count_row(row, config_.selection); }

void Collection::check_settings(const Json& identity, bool allow_changes) {
  const std::filesystem::path file = folder_ / "collect.json";
  if (std::filesystem::exists(file) && !allow_changes && !journal_->empty()) {
    const Json before = parse_json(read_file(file), file.string());
    const std::optional<std::string> difference = first_difference(before, identity);
    HONE_CHECK(
        !difference, file.string(), ": ", difference.value_or(""),
        " when rows of this folder were collected; use another --out folder, or --allow-changes to keep these rows "
        "and to collect the missing ones with the new settings");
  }
  write_file_atomic(file, identity.dump(2) + "\n");
}

int64_t Collection::num_missing() const {
  int64_t complete = 0;
  for (const auto& [index, counts] : done_) complete += counts.failed() == 0;
  return num_rows() - complete;
}

std::string Collection::progress_note() const {
  std::string out = format_text("%.0f tokens/s", ratio(speed_.tokens, 1) / std::max(speed_.seconds, 1e-9));
  if (config_.has_scores()) out += format_text(", %.1f%% accepted", 100 * ratio(session_.passed, session_.scored));
  if (session_.failed() > 0) out += concat(", ", session_.failed(), " failed");
  return out;
}

void Collection::check_failures(const CollectedRow& row, const RowCounts& counts) {
  constexpr int64_t min_judged = 256;  // fewer say little about a rate
  constexpr size_t max_shown = 16;
  const std::string kept =
      concat("; the rows that are done are kept in ", folder_.string(), ": the same command goes on");
  const auto check_rate = [&](int64_t failed, double limit, const std::string& what, const char* key) {
    const int64_t judged = session_.scored + session_.skipped + failed;
    HONE_CHECK(judged < min_judged || ratio(failed, judged) <= limit, "collect: ", what, ": ", failed, " of ", judged,
               " completions could not be scored, ", key, " is ", limit, kept);
  };
  check_rate(session_.failed_rewards, config_.actor.max_failure_rate, "reward " + config_.actor.reward.label(),
             "max_reward_failure_rate");
  check_rate(session_.failed_environments, config_.actor.environment.max_failure_rate, "environment",
             "max_environment_failure_rate");
  for (const CollectedCompletion& completion : row.completions) {
    if (completion.without_score != "completion") continue;
    if (first_failure_.empty()) first_failure_ = concat(row.id, ": ", completion.finish_reason);
    if (config_.has_endpoint() && shown_.size() < max_shown && shown_.insert(completion.finish_reason).second)
      log::warning("collect: ", row.id, ": ", completion.finish_reason,
                   " (a failed completion, counted in failed_completions; the same message is not repeated)");
  }
  const bool all_failed = counts.failed_completions == counts.completions;
  failed_in_a_row_ = all_failed ? failed_in_a_row_ + counts.completions : 0;
  const int64_t limit = std::max<int64_t>(64, 4 * config_.endpoint.concurrency);
  HONE_CHECK(!config_.has_endpoint() || failed_in_a_row_ < limit, "collect: ", config_.endpoint.base_url, ": the last ",
             failed_in_a_row_, " requests failed: ", row.completions.front().finish_reason, kept);
}

void Collection::take(const CollectedRow& row) {
  journal_->append(row);
  note(row);
  const RowCounts& counts = done_.at(row.index);
  session_.add(counts);
  ++speed_.rows;
  speed_.tokens += counts.tokens;
}

void Collection::run(CollectSource& source) {
  std::vector<RowToCollect> rows;
  for (int64_t i = begin_; i < end_; ++i) {
    const auto found = done_.find(i);
    if (found != done_.end() && found->second.failed() == 0) continue;
    RowToCollect& row = rows.emplace_back(RowToCollect{.index = i, .task = &tasks_[static_cast<size_t>(i)]});
    if (found != done_.end()) row.earlier = journal_->read(i);
  }
  if (std::ssize(rows) < num_rows())
    log::info("collect: ", num_rows() - std::ssize(rows), " of ", num_rows(), " rows are done; ", rows.size(),
              " remain");
  const Stopwatch watch;
  log::Progress progress("collect", std::ssize(rows), "rows");
  source.collect(rows, [&](const CollectedRow& row) {
    take(row);
    speed_.seconds = watch.seconds();
    progress.update(speed_.rows, progress_note());
    check_failures(row, done_.at(row.index));
  });
  speed_.seconds = watch.seconds();
}

void Collection::check_all_failed(const RowCounts& counts) const {
  HONE_CHECK(counts.completions == 0 || counts.failed_completions < counts.completions, "collect: all ",
             counts.completions, " completions failed",
             first_failure_.empty() ? "" : concat("; the first: ", first_failure_));
  const int64_t unjudged = counts.failed_rewards + counts.failed_environments;
  HONE_CHECK(unjudged == 0 || counts.scored + counts.skipped > 0, "collect: no completion has a score: ", unjudged,
             " rewards or environments failed", first_failure_.empty() ? "" : concat("; the first: ", first_failure_));
}

CollectSummary Collection::write(const CollectFiles& files) {
  CollectSummary out;
  out.rows = num_rows();
  out.rows_done = std::ssize(done_);
  out.has_scores = config_.has_scores();
  for (const auto& [index, counts] : done_) {
    out.counts.add(counts);
    out.rows_with_failures += counts.failed() > 0;
  }
  check_all_failed(out.counts);
  RowFile sft(files.sft), pairs(out.has_scores ? files.pairs : ""), tasks(out.has_scores ? files.tasks : "");
  RowSource original = config_.tasks.rows;  // rows as their files have them
  original.conversation = {.formatting = "none", .messages_column = {}};
  int64_t index = 0;
  read_rows(original, [&](const Json& data_row, const std::string&) {
    const int64_t i = index++;
    if (!is_in_shard(i)) return;
    const std::optional<CollectedRow> row = journal_->read(i);
    if (!row) return;
    const SelectionConfig& selection = config_.selection;
    for (const Json& one : sft_rows(*row, data_row, selection, out.has_scores)) out.sft_rows += sft.write(one);
    if (!out.has_scores) return;
    for (const Json& one : pairs_of(*row, data_row, selection)) out.pairs += pairs.write(one);
    if (const std::optional<Json> one = task_row(*row, data_row, selection)) {
      out.tasks += tasks.write(*one);
      return;
    }
    const RowCounts& counts = done_.at(i);
    out.tasks_without_score += counts.scored == 0;
    if (counts.scored == 0) return;
    const bool below = ratio(counts.passed, counts.scored) < selection.min_pass_rate;
    ++(below ? out.tasks_below_min_pass_rate : out.tasks_above_max_pass_rate);
  });
  sft.finish();
  pairs.finish();
  tasks.finish();
  journal_->sort();
  return out;
}

}  // namespace hone
