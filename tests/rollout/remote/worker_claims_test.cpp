// Wrong claims of workers: a worker that sends impossible results, or makes no progress, is lost, and its requests go
// to other workers.
#include <atomic>
#include <cmath>
#include <limits>
#include <thread>

#include "core/base/stopwatch.h"
#include "core/net/http_client.h"
#include "tests/rollout/remote/dispatcher_fixture.h"
#include "tests/rollout/remote/worker_fixture.h"
#include "tests/support/http_server.h"

namespace hone::test {
namespace {

class WorkerClaimsTest : public WorkerFixture {
 protected:
  // A worker that follows the protocol and generates as an engine does, and then falsifies its results.
  class Liar {
   public:
    using Change = std::function<void(WorkerPollResult&)>;
    Liar(WorkerClaimsTest& test, Change change)
        : test_(test),
          change_(std::move(change)),
          server_([this](const ReceivedRequest& request) { return answer(request); }) {}
    int64_t port() const { return std::stoll(parse_url(server_.url()).port); }
    std::atomic<int> joined = 0, submitted = 0;
    std::string session = "s";
    JsonArray missing = {};

   private:
    std::string answer(const ReceivedRequest& request) {
      const auto is = [&](const char* what) {
        return request.head.find(concat("/v1/worker/", what, " ")) != std::string::npos;
      };
      Json body = JsonObject{};
      if (is("join")) {
        body = JsonObject{
            {"session", concat(session, ++joined)}, {"device", test_.device->description()}, {"links", JsonArray{}}};
        computed_ = 0;
      } else if (is("commit")) {
        body = JsonObject{{"version", 0}, {"missing", missing}};
      } else if (is("turn")) {
        body = turn(WorkerPoll::parse(parse_json(request.body, "turn"))).to_json();
      }
      const std::string text = body.dump();
      return http_response(text, 200, concat(digest_header, ": ", base64(sha256(text)), "\r\n"));
    }
    WorkerPollResult turn(const WorkerPoll& turn) {
      WorkerPollResult out{.number = turn.number, .version = turn.version, .computed_tokens = 0, .finished = {}};
      for (const WorkerPoll::Submission& ask : turn.submit) {
        ++submitted;
        out.finished.push_back({ask.ticket, test_.expected({ask.request}, turn.version)[0]});
      }
      out.computed_tokens = computed_;
      change_(out);
      computed_ = out.computed_tokens;
      return out;
    }
    WorkerClaimsTest& test_;
    const Change change_;
    int64_t computed_ = 0;
    HttpServer server_;
  };
  std::string failure_with(const Liar& liar, double timeout) {
    const auto from = pool({liar.port()}, timeout);
    from->set_policy_version(0);
    try {
      generate(*from, requests(4));
    } catch (const Error& error) {
      return error.what();
    }
    ADD_FAILURE() << "it is believed";
    return "";
  }
  static CompletionOutput& first_reply(WorkerPollResult& report) { return report.finished.front().completions.front(); }
};

TEST_F(WorkerClaimsTest, AWorkerThatCountsUpAndFinishesNothingIsLost) {
  const Liar liar(*this, [](WorkerPollResult& report) {
    report.computed_tokens += 5;
    report.finished.clear();
  });
  const Stopwatch since;
  const std::string failure = failure_with(liar, 1);
  EXPECT_NE(failure.find("it claims to have computed"), std::string::npos) << failure;
  EXPECT_NE(failure.find("its requests have"), std::string::npos) << failure;
  EXPECT_LT(since.seconds(), 30);
}

void count_up_slowly(WorkerPollResult& report) {
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  if (report.finished.empty() && report.computed_tokens == 0) return;  // it has no request yet
  ++report.computed_tokens;
  report.finished.clear();
}

// Tokens bound its claims; only time bounds its slowness.
TEST_F(WorkerClaimsTest, AWorkerThatCountsUpSlowlyAndFinishesNothingIsLost) {
  const Liar liar(*this, count_up_slowly);
  const Stopwatch since;
  request_timeout = 0.5;
  const std::string failure = failure_with(liar, 1);
  EXPECT_NE(failure.find("it has had a request for too long"), std::string::npos) << failure;
  EXPECT_LT(since.seconds(), 15);
}

TEST_F(WorkerClaimsTest, AWorkerThatCountsUpSlowlyKeepsNoRequestFromOthers) {
  const std::vector<GenerationRequest> submitted = requests(6);
  const Completions want = expected(submitted, 0);
  start();
  const Liar liar(*this, count_up_slowly);
  request_timeout = 0.5;
  const auto from = pool({liar.port(), workers[0]->port()});
  from->set_policy_version(0);
  expect_bits(generate(*from, submitted), want);
  EXPECT_GT(liar.submitted, 0);
}

TEST_F(WorkerClaimsTest, AWorkerThatStopsCountingAtTheEndIsLost) {
  const Liar liar(*this, [](WorkerPollResult& report) {
    report.computed_tokens = std::min<int64_t>(report.computed_tokens + 40, 100);
    report.finished.clear();
  });
  const Stopwatch since;
  const std::string failure = failure_with(liar, 0.7);
  EXPECT_NE(failure.find("made no progress"), std::string::npos) << failure;
  EXPECT_LT(since.seconds(), 30);
}

TEST_F(WorkerClaimsTest, AWorkerThatFinishesUnknownRequestsIsLost) {
  const Liar liar(*this, [](WorkerPollResult& report) { report.finished = {{.ticket = 123456, .completions = {}}}; });
  const std::string failure = failure_with(liar, 0.7);
  EXPECT_NE(failure.find("made no progress"), std::string::npos) << failure;
}

// The learner sends the name back in a header: a long one ended the learner's process.
TEST_F(WorkerClaimsTest, AnInvalidSessionNameIsAnError) {
  for (const std::string& session : {std::string(3000000, 'x'), std::string("a\r\nevil: 1\r\n\r\n"), std::string("a b"),
                                     std::string("a\0b", 3), std::string("\xc3\xa9")}) {
    Liar liar(*this, [](WorkerPollResult&) {});
    liar.session = session;
    const std::string failure = failure_with(liar, 0.7);
    EXPECT_NE(failure.find("it must be 1 to 128 letters, digits, '-' or '_'"), std::string::npos) << failure;
  }
}

// Each listed chunk would be sent: a short list could cause terabytes.
TEST_F(WorkerClaimsTest, AChunkListedAsMissingTwiceIsAnError) {
  Liar liar(*this, [](WorkerPollResult&) {});
  liar.missing.assign(100000, 0);
  const Stopwatch since;
  const std::string failure = failure_with(liar, 0.7);
  EXPECT_NE(failure.find("it lists chunk 0 as missing twice"), std::string::npos) << failure;
  EXPECT_LT(since.seconds(), 15);
}

TEST_F(WorkerClaimsTest, AWorkerThatCountsBackwardsIsLost) {
  const Liar liar(*this, [](WorkerPollResult& report) {
    report.computed_tokens = report.computed_tokens > 0 ? -1 : 1;
    report.finished.clear();
  });
  EXPECT_NE(failure_with(liar, 0.7).find("it claims to have computed -1 tokens"), std::string::npos);
}

TEST_F(WorkerClaimsTest, ImpossibleCompletionsAreRejectedAndReassigned) {
  const std::vector<GenerationRequest> submitted = requests(12);
  const Completions want = expected(submitted, 0);
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  const std::vector<std::pair<std::string, std::function<void(CompletionOutput&)>>> lies{
      {"log-prob of 0.5", [](CompletionOutput& r) { r.logp[0] = 0.5; }},
      {"log-prob of nan", [=](CompletionOutput& r) { r.logp[0] = nan; }},
      {"log-prob of -inf", [=](CompletionOutput& r) { r.raw_logp[0] = -infinity; }},
      {"log-prob of 1", [](CompletionOutput& r) { r.truncated_logp[0] = 1; }},
      {"finish_reason 'done'", [](CompletionOutput& r) { r.finish_reason = "done"; }},
      {"finish_reason ''", [](CompletionOutput& r) { r.finish_reason.clear(); }},
      {"neither its last id nor its text",
       [](CompletionOutput& r) {
         r.finish_reason = "stop";
         r.ids.back() = 'z';
       }},
      {"has id 258", [](CompletionOutput& r) { r.ids[0] = 258; }},
      {"has id -1", [](CompletionOutput& r) { r.ids[0] = -1; }},
      {"sampled by version 1", [](CompletionOutput& r) { r.versions[0] = 1; }},
      {"sampled by version -1", [](CompletionOutput& r) { r.versions[0] = -1; }},
      {"top_logprobs", [](CompletionOutput& r) { r.top_logprobs.assign(r.ids.size(), std::vector<TokenLogp>(64)); }},
      {"prompt log-probs", [](CompletionOutput& r) { r.prompt_logp.push_back(0); }},
      {"has finish_reason length",
       [](CompletionOutput& r) {
         r.finish_reason = "length";
         r.ids.pop_back();
         r.versions.pop_back();
         for (auto* column : {&r.logp, &r.truncated_logp, &r.raw_logp}) column->pop_back();
         r.top_logprobs.clear();
         r.forced.clear();
       }},
  };
  start();
  for (const auto& [what, lie] : lies) {
    SCOPED_TRACE(what);
    testing::internal::CaptureStderr();
    const Liar liar(*this, [&lie](WorkerPollResult& report) {
      if (!report.finished.empty()) lie(first_reply(report));
    });
    {
      const auto from = pool({liar.port(), workers[0]->port()});
      from->set_policy_version(0);
      expect_bits(generate(*from, submitted), want);
    }
    EXPECT_GT(liar.submitted, 0);
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_NE(log.find(concat("worker ", url(liar.port()), " is lost: ")), std::string::npos) << log;
    EXPECT_NE(log.find(what), std::string::npos) << log;
  }
}

TEST_F(WorkerClaimsTest, TextIsDecodedFromTheIds) {
  const std::vector<GenerationRequest> submitted = requests(12);
  const Liar liar(*this, [](WorkerPollResult& report) {
    for (WorkerPollResult::Finished& done : report.finished)
      for (CompletionOutput& completion : done.completions) completion.text = "The answer is 42.";
  });
  const Completions want = expected(submitted, 0);
  const auto from = pool({liar.port()});
  from->set_policy_version(0);
  expect_bits(generate(*from, submitted), want);
}

void fail_all(WorkerPollResult& report) {
  for (WorkerPollResult::Finished& done : report.finished)
    for (CompletionOutput& completion : done.completions) {
      completion = {};
      completion.failed = true;
      completion.finish_reason = "no luck";
    }
}

TEST_F(WorkerClaimsTest, AFailedRequestIsRetriedOnAnotherWorker) {
  const std::vector<GenerationRequest> submitted = requests(24);
  const Completions want = expected(submitted, 0);
  start();
  const Liar liar(*this, fail_all);
  const auto from = pool({liar.port(), workers[0]->port()});
  from->set_policy_version(0);
  expect_bits(generate(*from, submitted), want);
  EXPECT_GT(liar.submitted, 0);
}

TEST_F(WorkerClaimsTest, AWorkerThatFailsEverythingIsLost) {
  const Liar liar(*this, fail_all);
  const std::string failure = failure_with(liar, 0.7);
  EXPECT_NE(failure.find("requests in a row, the last one with: no luck"), std::string::npos) << failure;
}

using DispatcherTest = DispatcherFixture;

TEST_F(DispatcherTest, ARequestThatFailsOnSeveralWorkersHasFailed) {
  make(2);
  dispatcher->set_weights(weights(0));
  dispatcher->mark_joined(0), dispatcher->mark_joined(1);
  const uint64_t ticket = submit(10);
  std::vector<CompletionOutput> failed = completions_by(0);
  failed[0] = {};
  failed[0].failed = true;
  failed[0].finish_reason = "no luck";
  std::vector<size_t> tried;
  while (results[0].empty() && tried.size() < 10) {
    for (size_t worker = 0; worker < 2; ++worker)
      if (!poll_worker(worker).submit.empty()) {
        tried.push_back(worker);
        EXPECT_FALSE(dispatcher->accept_result(worker, {ticket, failed}));
      }
    dispatcher->step();
  }
  EXPECT_EQ(tried, (std::vector<size_t>{0, 1, 0}));
  ASSERT_EQ(results[0].size(), 1u);
  EXPECT_TRUE(results[0][0].failed);
}

// The worker joins again after each loss.
TEST_F(DispatcherTest, ARequestThatIsNeverFinishedFailsAfterThreeTries) {
  make(1, {.request_timeout = 0.05});
  dispatcher->set_weights(weights(0));
  submit(10);
  int tries = 0;
  for (; results[0].empty() && tries < 10; ++tries) {
    dispatcher->mark_joined(0);
    poll_worker(0);
    EXPECT_FALSE(dispatcher->overdue(0));
    EXPECT_TRUE(soon([&] { return dispatcher->overdue(0); }));
    dispatcher->mark_lost(0, "it is slow");
    dispatcher->step();
  }
  EXPECT_EQ(tries, 3);
  ASSERT_EQ(results[0].size(), 1u);
  EXPECT_TRUE(results[0][0].failed);
  EXPECT_NE(results[0][0].finish_reason.find("worker_request_timeout"), std::string::npos);
}

// The worker makes progress forever and finishes nothing: that counts as progress once, and never again.
TEST_F(DispatcherTest, ProgressWithoutResultsPreventsTheTimeoutOnce) {
  make(1, {.timeout = 0.1});
  dispatcher->set_weights(weights(0));
  submit(10);
  std::string failure;
  const Stopwatch since;
  while (failure.empty() && since.seconds() < 10) {
    dispatcher->mark_joined(0);
    poll_worker(0);
    for (const Stopwatch stay; stay.seconds() < 0.15;) {
      dispatcher->step();
      dispatcher->record_progress(0);
    }
    dispatcher->mark_lost(0, "it counts");
    try {
      dispatcher->step();
    } catch (const Error& error) {
      failure = error.what();
    }
  }
  EXPECT_NE(failure.find("it counts"), std::string::npos);
}

}  // namespace
}  // namespace hone::test
