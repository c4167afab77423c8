#include "core/base/log.h"

#include <spdlog/sinks/ansicolor_sink.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/dist_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>

#include "core/base/format.h"
#include "core/base/rank_thread.h"

namespace hone::log {
namespace {

using Clock = std::chrono::steady_clock;

// One writer at a time: a progress bar and log lines share the terminal. A line erases the bar; the next update redraws
// it.
struct Output {
  std::mutex mutex;
  std::shared_ptr<spdlog::sinks::dist_sink_st> sinks = std::make_shared<spdlog::sinks::dist_sink_st>();
  spdlog::logger logger{"hone", sinks};
  bool bar_shown = false;

  Output() {
    sinks->add_sink(std::make_shared<spdlog::sinks::ansicolor_stderr_sink_st>());
    logger.set_pattern("%H:%M:%S %^%L%$ %v");
    logger.flush_on(spdlog::level::debug);
    const char* wanted = std::getenv("HONE_LOG");
    logger.set_level(wanted ? spdlog::level::from_str(wanted) : spdlog::level::info);
  }
};

Output& output() {
  static Output* out = new Output;  // outlives every static object that may still log
  return *out;
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<int64_t>(seconds);
  char text[32];
  if (whole < 60)
    std::snprintf(text, sizeof text, "%.1fs", seconds);
  else if (whole < 3600)
    std::snprintf(text, sizeof text, "%dm%02ds", static_cast<int>(whole / 60), static_cast<int>(whole % 60));
  else
    std::snprintf(text, sizeof text, "%dh%02dm", static_cast<int>(std::min<int64_t>(whole / 3600, 99999)),
                  static_cast<int>(whole / 60 % 60));
  return text;
}

std::string rate_text(double rate) {
  char text[32];
  if (rate >= 1e6)
    std::snprintf(text, sizeof text, "%.2fM", rate / 1e6);
  else if (rate >= 1e4)
    std::snprintf(text, sizeof text, "%.1fk", rate / 1e3);
  else
    std::snprintf(text, sizeof text, rate >= 100 ? "%.0f" : "%.2f", rate);
  return text;
}

// Ranks do the same work, so all of them come to the same warning.
class RankWarnings {
 public:
  // True if no rank has warned so as often as this one does now.
  bool is_new(const std::string& line, int rank) {
    constexpr size_t max_lines = 1000;
    if (lines_.size() >= max_lines && !lines_.contains(line)) lines_.clear();
    Counts& counts = lines_[line];
    const int64_t count = ++counts.of_rank[rank];
    if (count <= counts.most) return false;
    counts.most = count;
    return true;
  }

 private:
  struct Counts {
    std::map<int, int64_t> of_rank;
    int64_t most = 0;
  };
  std::map<std::string, Counts> lines_;
};

}  // namespace

void set_level(Level level) {
  constexpr spdlog::level::level_enum levels[] = {spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
                                                  spdlog::level::err};
  output().logger.set_level(levels[static_cast<size_t>(level)]);
}

void also_to_file(const std::string& path) {
  Output& out = output();
  const std::lock_guard lock(out.mutex);
  try {
    auto file = std::make_shared<spdlog::sinks::basic_file_sink_st>(path);
    file->set_pattern("%Y-%m-%d %H:%M:%S %L %v");
    out.sinks->add_sink(std::move(file));
  } catch (const spdlog::spdlog_ex& error) {
    fail(path, ": cannot write the log: ", error.what());
  }
}

// Every rank says the same. So the others' lines are left out, but their warnings may have causes of their own.
static bool is_left_out(Level level, std::string_view line) {
  const RankThread thread = rank_thread();
  if (level < Level::warning) return thread.rank > 0;
  if (level > Level::warning || !thread.progress) return false;  // an error, or a program with one rank
  static std::mutex mutex;
  static RankWarnings warnings;
  const std::lock_guard lock(mutex);
  return !warnings.is_new(std::string(line), thread.rank);
}

void write(Level level, std::string_view line) {
  if (is_left_out(level, line)) return;
  std::string shown = printable(line);
  if (const int rank = rank_thread().rank; rank > 0) shown = concat("[rank ", rank, "] ", shown);
  constexpr spdlog::level::level_enum levels[] = {spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
                                                  spdlog::level::err};
  Output& out = output();
  const std::lock_guard lock(out.mutex);
  if (std::exchange(out.bar_shown, false)) std::fputs("\r\x1b[K", stderr);
  out.logger.log(levels[static_cast<size_t>(level)], spdlog::string_view_t(shown.data(), shown.size()));
}

Progress::Progress(std::string what, int64_t total, std::string unit)
    : what_(std::move(what)),
      unit_(std::move(unit)),
      total_(total),
      start_(Clock::now()),
      printed_(start_),
      terminal_(::isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  try {
    print(note_, true);
  } catch (const std::exception&) {}
}

void Progress::update(int64_t done, std::string_view note) {
  note_progress();
  done_ = done;
  note_ = note;
  const auto now = Clock::now();
  if (now - printed_ < (terminal_ ? std::chrono::milliseconds(100) : std::chrono::milliseconds(5000))) return;
  printed_ = now;
  print(note_, false);
}

void Progress::print(std::string_view note, bool last) {
  if (rank_thread().rank > 0) return;
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  const double rate = seconds > 0 ? static_cast<double>(done_) / seconds : 0;
  std::string line = what_ + " ";
  if (terminal_ && !last && total_ > 0) {
    constexpr int64_t width = 24;
    const auto filled = static_cast<size_t>(std::clamp<int64_t>(done_, 0, total_) * width / total_);
    line += "[" + std::string(filled, '#') + std::string(width - filled, '.') + "] ";
  }
  line += std::to_string(done_) + (total_ > 0 ? "/" + std::to_string(total_) : "") + " " + unit_ + ", " +
          rate_text(rate) + "/s";
  if (last)
    line += ", took " + duration_text(seconds);
  else if (total_ > done_ && rate > 0)
    line += ", ETA " + duration_text(static_cast<double>(total_ - done_) / rate);
  if (!note.empty()) line += concat(", ", note);
  if (last || !terminal_) return write(Level::info, line);
  Output& out = output();
  const std::lock_guard lock(out.mutex);
  out.bar_shown = true;
  std::fprintf(stderr, "\r%s\x1b[K", line.c_str());
  std::fflush(stderr);
}

}  // namespace hone::log
