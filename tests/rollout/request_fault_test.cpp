// A failure of one request ends that request only. Faults are injected wherever the engine uses a request's data; all
// other requests keep the bits that they have without the faulty one.
#include <atomic>
#include <cmath>
#include <cstring>
#include <new>

#include "core/config/config.h"
#include "kernels/elementwise/embedding.h"
#include "kernels/sampling/sample.h"
#include "rollout/async_engine.h"
#include "tests/rollout/tiny_engine.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

constexpr int64_t V = 61;
constexpr int32_t marked_id = 60;
constexpr uint64_t marked_seed = 666;

// Which body fails: for the marked id in a prompt, or for sampling with the marked seed from some position on.
enum class Fault { none, prefill, draw, no_memory };
std::atomic<Fault> fault = Fault::none;
std::atomic<uint64_t> first_bad_position = 0;

bool has_marked_ids(const Tensor& ids) {
  const auto all = ids.as<int32_t>();
  return std::ranges::find(all, marked_id) != all.end();
}

bool has_marked_draw(const Tensor& params) {
  for (int64_t r = 0; r < params.size() / static_cast<int64_t>(sizeof(RowSamplingParams)); ++r) {
    RowSamplingParams row;
    std::memcpy(&row, params.ptr<uint8_t>() + static_cast<size_t>(r) * sizeof(RowSamplingParams), sizeof row);
    if (row.seed == marked_seed && row.position >= first_bad_position) return true;
  }
  return false;
}

[[maybe_unused]] const bool bad_embedding = embedding_forward.add(
    {"fault", DeviceKind::cpu,
     [](Context&, Tensor, Tensor, Tensor, bool) { throw std::runtime_error("a fault in the prefill"); }, 1000,
     [](const Tensor&, const Tensor&, const Tensor& ids, const bool&) {
       return fault == Fault::prefill && has_marked_ids(ids);
     }});

[[maybe_unused]] const bool bad_draw =
    sample_rows.add({"fault", DeviceKind::cpu,
                     [](Context&, const SampleRows&) {
                       if (fault == Fault::no_memory) throw std::bad_alloc();
                       throw std::runtime_error("a fault in the draw");
                     },
                     1000,
                     [](const SampleRows& rows) {
                       return (fault == Fault::draw || fault == Fault::no_memory) && has_marked_draw(rows.params);
                     }});

class RequestFaultTest : public TinyEngineTest {
 protected:
  ~RequestFaultTest() override { fault = Fault::none; }

  // Requests of all kinds; none samples the marked id.
  static std::vector<GenerationRequest> good_requests() {
    std::vector<GenerationRequest> out;
    for (uint64_t i = 0; i < 7; ++i) {
      GenerationRequest& request = out.emplace_back();
      request.prompt = prompt(i, 3 + static_cast<int64_t>(7 * i % 20));
      for (int32_t& id : request.prompt) id %= marked_id;
      request.n = 1 + static_cast<int64_t>(i % 3);
      request.id = i;
      request.sampling.seed = 5;
      request.sampling.max_tokens = 12 + static_cast<int64_t>(i);
      request.sampling.logit_bias = {{.id = marked_id, .bias = -100}};
      if (i % 3 == 1) request.sampling.repetition_penalty = 1.3;
      if (i % 3 == 2) {
        request.top_logprobs = 3;
        request.prompt_logprobs = true;
      }
    }
    return out;
  }
  static GenerationRequest bad_request() {
    GenerationRequest out{.prompt = prompt(9, 6),
                          .n = 3,
                          .id = 99,
                          .sampling = {.max_tokens = 20, .seed = marked_seed, .stop = {}, .stop_ids = {}}};
    std::fill(out.prompt.begin(), out.prompt.end(), marked_id);
    return out;
  }

  // The bad request among good ones, submitted as the fourth.
  void expect_alone(const GenerationRequest& bad, const std::string& why, Engine::OnToken on_token = {}) {
    for (const EngineConfig& config :
         {EngineConfig{}, EngineConfig{.max_batch_tokens = 16}, EngineConfig{.kv_cache_tokens = 256},
          EngineConfig{.speculative = {.method = "ngram", .prompt_lookup_min = 1}}}) {
      const Fault kind = fault.exchange(Fault::none);
      const std::vector<std::vector<CompletionOutput>> want =
          Engine(context, *model, nullptr, config).generate(good_requests());
      fault = kind;
      Engine engine(context, *model, nullptr, config);
      std::vector<std::vector<CompletionOutput>> got(want.size());
      std::vector<CompletionOutput> failed;
      int told = 0;
      for (size_t i = 0; i < want.size(); ++i) {
        engine.submit(good_requests()[i],
                      [&, i](uint64_t, std::vector<CompletionOutput> completions) { got[i] = std::move(completions); });
        if (i != 3) continue;
        engine.submit(
            bad,
            [&](uint64_t, std::vector<CompletionOutput> completions) {
              failed = std::move(completions);
              ++told;
            },
            on_token);
      }
      while (engine.step()) {}
      expect_same(got, want);
      EXPECT_EQ(told, 1);
      ASSERT_EQ(std::ssize(failed), bad.n);
      for (const CompletionOutput& completion : failed) {
        EXPECT_TRUE(completion.failed && !completion.rejected);
        EXPECT_NE(completion.finish_reason.find(why), std::string::npos) << completion.finish_reason;
      }
      EXPECT_EQ(engine.stats().kv_tokens_used, 0) << "its blocks are free";
      fault = Fault::none;
      expect_same(engine.generate(good_requests()), want);
      fault = kind;
    }
  }
};

TEST_F(RequestFaultTest, InThePrefill) {
  fault = Fault::prefill;
  expect_alone(bad_request(), "a fault in the prefill");
}

TEST_F(RequestFaultTest, InTheFirstSampledToken) {
  fault = Fault::draw;
  first_bad_position = 0;
  expect_alone(bad_request(), "a fault in the draw");
}

TEST_F(RequestFaultTest, InTheMiddleOfTheCompletion) {
  fault = Fault::draw;
  first_bad_position = 6 + 7;
  expect_alone(bad_request(), "a fault in the draw");
}

TEST_F(RequestFaultTest, OutOfMemory) {
  fault = Fault::no_memory;
  first_bad_position = 6 + 3;
  expect_alone(bad_request(), "out of memory");
}

TEST_F(RequestFaultTest, InItsOnToken) {
  int count = 0;
  expect_alone(bad_request(), "the listener's", [&](uint64_t, int64_t, const CompletionOutput&) {
    if (++count % 5 == 0) throw std::runtime_error("the listener's fault");
  });
}

// The weights of one id are broken: its keys and values, and the logits after it, are NaN.
TEST_F(RequestFaultTest, InTheWeightsOfAnIdThatItAloneHas) {
  const auto params = model->base_params();
  const auto table = std::ranges::find_if(params, [](const Param* one) { return one->lookup; });
  ASSERT_NE(table, params.end());
  std::fill_n((*table)->value.row<float>(marked_id), (*table)->value.dim(1), std::nanf(""));
  expect_alone(bad_request(), "NaN");
}

TEST_F(RequestFaultTest, InItsSettingsInTheKernels) {
  for (const auto& [name, change] : std::vector<std::pair<std::string, std::function<void(SamplingParams&)>>>{
           {"top_p", [](SamplingParams& s) { s.top_p = 1e-46; }},
           {"top_p", [](SamplingParams& s) { s.top_p = 5e-324; }},
           {"temperature", [](SamplingParams& s) { s.temperature = 1e-38; }},
           {"temperature", [](SamplingParams& s) { s.temperature = 1e-46; }},
           {"temperature", [](SamplingParams& s) { s.temperature = 1e39; }},
           {"min_p", [](SamplingParams& s) { s.min_p = std::nan(""); }},
           {"repetition_penalty", [](SamplingParams& s) { s.repetition_penalty = 1e-46; }}}) {
    GenerationRequest bad = bad_request();
    change(bad.sampling);
    const std::vector<CompletionOutput> completions = Engine(context, *model, nullptr, {}).generate({bad})[0];
    EXPECT_TRUE(completions[0].failed && completions[0].rejected) << name;
    EXPECT_NE(completions[0].finish_reason.find(name), std::string::npos) << completions[0].finish_reason;
    EXPECT_THROW(check_settings([&](Fields& f) { bad.sampling.fields(f); }), Error)
        << "recipes and commands are checked alike";
  }
  GenerationRequest least = bad_request();
  least.sampling.temperature = 1e-6;
  least.sampling.top_p = 1e-30;
  least.sampling.min_p = 5e-324;
  EXPECT_FALSE(Engine(context, *model, nullptr, {}).generate({least})[0][0].failed);
}

// step() rethrows an exception of on_finish; the engine continues.
TEST_F(RequestFaultTest, StepRethrowsAnExceptionOfOnFinishAndContinues) {
  const std::vector<std::vector<CompletionOutput>> want =
      Engine(context, *model, nullptr, {}).generate(good_requests());
  Engine engine(context, *model, nullptr, {});
  std::vector<std::vector<CompletionOutput>> got(want.size());
  for (size_t i = 0; i < want.size(); ++i)
    engine.submit(good_requests()[i], [&, i](uint64_t, std::vector<CompletionOutput> completions) {
      got[i] = std::move(completions);
      if (i == 2) throw Error("nobody wants it");
    });
  int thrown = 0;
  for (bool more = true; more;) {
    try {
      more = engine.step();
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "nobody wants it");
      ++thrown;
    }
  }
  EXPECT_EQ(thrown, 1);
  expect_same(got, want);
}

// Records its calls, and may throw.
struct Listener : CompletionListener {
  void on_token(size_t, int64_t, const CompletionOutput&) override {
    if (throws_on_token && ++tokens == 4) throw std::runtime_error("the listener's fault");
  }
  void on_finish(size_t, std::vector<CompletionOutput> done) override {
    completions = std::move(done);
    finished = true;
    if (throws_on_finish) throw std::runtime_error("the listener's fault");
  }
  void on_failure(const std::string& why) override {
    reason = why;
    ++failures;
    throw std::runtime_error("whatever it does");
  }
  bool throws_on_token = false, throws_on_finish = false;
  int tokens = 0;
  std::vector<CompletionOutput> completions;
  std::string reason;
  std::atomic<bool> finished = false;
  std::atomic<int> failures = 0;
};

TEST_F(RequestFaultTest, AListenerThatThrowsEndsItsOwnRequest) {
  const std::vector<std::vector<CompletionOutput>> want =
      Engine(context, *model, nullptr, {}).generate(good_requests());
  Engine engine(context, *model, nullptr, {});
  AsyncEngine loop(engine, 100);
  std::vector<std::shared_ptr<Listener>> listeners;
  for (size_t i = 0; i < want.size(); ++i) {
    listeners.push_back(std::make_shared<Listener>());
    listeners[i]->throws_on_token = i == 1;
    listeners[i]->throws_on_finish = i == 4;
    EXPECT_NE(loop.submit({good_requests()[i]}, listeners[i], true), 0u);
  }
  for (size_t i = 0; i < want.size(); ++i) {
    const bool bad = i == 1 || i == 4;
    ASSERT_TRUE(soon([&] { return bad ? listeners[i]->failures == 1 : listeners[i]->finished.load(); })) << i;
    if (bad)
      EXPECT_EQ(listeners[i]->reason, "the listener's fault");
    else
      expect_same({listeners[i]->completions}, {want[i]});
  }
  EXPECT_EQ(loop.state().failure, "");
  EXPECT_TRUE(soon([&] { return loop.state().pending_completions == 0; }));
}

}  // namespace
}  // namespace hone::test
