// Completions of an OpenAI-compatible server: threads with one request each, over a window of rows.
#include <algorithm>
#include <condition_variable>
#include <deque>
#include <list>
#include <thread>

#include "collect/source.h"
#include "core/base/interrupt.h"
#include "posttrain/rl/reward_runner.h"

namespace hone {
namespace {

// A row in progress.
struct OpenRow {
  const RowToCollect* what = nullptr;
  Task asked;  // the task as the server gets it
  CollectedRow row;
  size_t missing = 0;          // completions without an answer
  std::vector<Group> scored;   // the group of its completions; empty until they are all there
  std::vector<size_t> places;  // of the group's samples in the row
  std::optional<RewardRunner::ScoringRound> round;
};

class EndpointSource : public CollectSource {
 public:
  explicit EndpointSource(const CollectConfig& config)
      : config_(config), endpoint_(config.endpoint), rewards_(config.actor.reward, 1) {
    sampling_ = {.num_completions = config.actor.num_generations,
                 .sampling = config.actor.sampling,
                 .chat_template_kwargs = config.actor.format.settings.chat_template_kwargs};
  }

  void collect(std::span<const RowToCollect> rows, const TakeRow& take) override {
    const int64_t concurrency = config_.endpoint.concurrency;
    const auto max_open = static_cast<size_t>(2 * concurrency / config_.actor.num_generations + 1);
    constexpr size_t max_unscored = 256;  // rows that wait for a slow reward
    Workers workers(*this, concurrency);
    size_t num_unanswered = 0;
    while (!rows.empty() || !open_.empty()) {
      if (interrupted()) return;
      while (!rows.empty() && num_unanswered < max_open && open_.size() < max_open + max_unscored) {
        open(rows.front());
        rows = rows.subspan(1);
        num_unanswered = count_unanswered();
      }
      wait_for_answers();
      take_finished(take);
      num_unanswered = count_unanswered();
    }
  }

 private:
  struct Request {
    OpenRow* row = nullptr;
    size_t place = 0;
  };
  // Threads that answer requests. They end when no request is running; what is queued is dropped.
  struct Workers {
    Workers(EndpointSource& source, int64_t count) : source_(source) {
      source.closing_ = false;
      for (int64_t i = 0; i < count; ++i) threads_.emplace_back([&source] { source.answer_requests(); });
    }
    ~Workers() {
      {
        const std::lock_guard lock(source_.mutex_);
        source_.closing_ = true;
        source_.queue_.clear();
      }
      source_.changed_.notify_all();
      threads_.clear();
      source_.open_.clear();
    }
    EndpointSource& source_;
    std::vector<std::jthread> threads_;
  };

  void open(const RowToCollect& what) {
    auto row = std::make_unique<OpenRow>();
    row->what = &what;
    row->asked = *what.task;
    row->asked.messages = prompt_messages(*what.task, config_.actor.format);
    row->row = start_row(what.index, *what.task, row->asked.messages);
    const auto n = static_cast<size_t>(config_.actor.num_generations);
    row->row.completions.resize(n);
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < n; ++i) {
      const bool known =
          what.earlier && i < what.earlier->completions.size() && !what.earlier->completions[i].is_missing();
      if (known) {
        const CollectedCompletion& earlier = what.earlier->completions[i];
        row->row.completions[i] = {.text = earlier.text,
                                   .messages = earlier.messages,
                                   .finish_reason = earlier.finish_reason,
                                   .num_tokens = earlier.num_tokens};
        continue;
      }
      ++row->missing;
      queue_.push_back({row.get(), i});
    }
    open_.push_back(std::move(row));
    changed_.notify_all();
  }

  // A worker's thread.
  void answer_requests() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return closing_ || !queue_.empty(); });
      if (closing_) return;
      const Request request = queue_.front();
      queue_.pop_front();
      lock.unlock();
      CollectedCompletion completion;
      std::exception_ptr refusal;
      try {
        completion = ask(request);
      } catch (...) {  // the server refuses every request; thrown again by the caller's thread
        refusal = std::current_exception();
        completion.without_score = "completion";
      }
      lock.lock();
      if (refusal && !refusal_) refusal_ = refusal;
      request.row->row.completions[request.place] = std::move(completion);
      --request.row->missing;
      answered_.notify_all();
    }
  }

  CollectedCompletion ask(const Request& request) {
    try {
      EndpointCompletion answer = endpoint_.complete_one(request.row->asked, sampling_, request.place);
      return {.text = std::move(answer.completion.text),
              .messages = std::move(answer.completion.messages),
              .finish_reason = std::move(answer.completion.finish_reason),
              .num_tokens = answer.num_tokens};
    } catch (const ApiRefusal& error) {
      fail(config_.endpoint.base_url, ": ", error.what());
    } catch (const Error& error) {  // this request failed for good: a completion without a score
      return {.text = {}, .finish_reason = error.what(), .without_score = "completion"};
    }
  }

  size_t count_unanswered() {
    const std::lock_guard lock(mutex_);
    return static_cast<size_t>(std::ranges::count_if(open_, [](const auto& row) { return row->missing > 0; }));
  }

  void wait_for_answers() {
    constexpr std::chrono::milliseconds wait(20);
    std::unique_lock lock(mutex_);
    answered_.wait_for(lock, wait);
    if (refusal_) std::rethrow_exception(refusal_);
  }

  // Scores rows whose completions are all there, and takes those that have their scores.
  void take_finished(const TakeRow& take) {
    for (auto at = open_.begin(); at != open_.end();) {
      OpenRow& row = **at;
      {
        const std::lock_guard lock(mutex_);
        if (row.missing > 0) {
          ++at;
          continue;
        }
      }
      if (!row.round) score(row);
      if (!row.round->scored(std::chrono::milliseconds(0))) {
        ++at;
        continue;
      }
      finish(row);
      const std::unique_ptr<OpenRow> done = std::move(*at);
      at = open_.erase(at);
      take(std::move(done->row));
    }
  }

  void score(OpenRow& row) {
    Group& group = row.scored.emplace_back();
    group.task = *row.what->task;
    for (size_t i = 0; i < row.row.completions.size(); ++i) {
      const CollectedCompletion& completion = row.row.completions[i];
      if (completion.is_missing()) continue;
      Sample& sample = group.samples.emplace_back();
      sample.completion = {.ids = {},
                           .text = completion.text,
                           .finish_reason = completion.finish_reason,
                           .messages = completion.messages};
      row.places.push_back(i);
    }
    row.round.emplace(rewards_, row.scored);
    row.round->submit(0);
  }

  void finish(OpenRow& row) {
    row.round->finish();
    const std::vector<Sample>& samples = row.scored.front().samples;
    for (size_t i = 0; i < samples.size(); ++i) {
      CollectedCompletion& completion = row.row.completions[row.places[i]];
      const int64_t num_tokens = completion.num_tokens;
      completion = collected_completion(samples[i], config_.has_scores());
      completion.num_tokens = num_tokens;
    }
  }

  CollectConfig config_;
  Endpoint endpoint_;
  RewardRunner rewards_;
  EndpointSampling sampling_;
  std::list<std::unique_ptr<OpenRow>> open_;  // the caller's thread; its rows' answers: mutex_

  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_, answered_;
  std::deque<Request> queue_;
  std::exception_ptr refusal_;
  bool closing_ = false;
};

}  // namespace

std::unique_ptr<CollectSource> endpoint_source(const CollectConfig& config) {
  return std::make_unique<EndpointSource>(config);
}

}  // namespace hone
