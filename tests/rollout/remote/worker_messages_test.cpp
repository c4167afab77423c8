// Messages between learner and workers arrive bit for bit; inconsistent messages are errors.
#include "rollout/remote/worker_messages.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "core/base/rng.h"
#include "tests/rollout/byte_model.h"
#include "tests/support/errors.h"

namespace hone::test {
namespace {

// Through the message's text.
Json sent(const Json& message) { return parse_json(message.dump(), "message"); }

const std::string no_utf8("\xff\x00\xc3(\xe2\x82\"\n", 9);
constexpr float denormal = std::numeric_limits<float>::denorm_min();
constexpr float infinite = std::numeric_limits<float>::infinity();

std::vector<uint32_t> bits(const std::vector<float>& of) {
  std::vector<uint32_t> out;
  for (const float value : of) out.push_back(std::bit_cast<uint32_t>(value));
  return out;
}

void expect_bits(const std::vector<std::vector<TokenLogp>>& a, const std::vector<std::vector<TokenLogp>>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].size(), b[i].size());
    for (size_t j = 0; j < a[i].size(); ++j) {
      EXPECT_EQ(a[i][j].id, b[i][j].id);
      EXPECT_EQ(std::bit_cast<uint32_t>(a[i][j].logp), std::bit_cast<uint32_t>(b[i][j].logp));
    }
  }
}

void expect_bits(const CompletionOutput& a, const CompletionOutput& b) {
  EXPECT_EQ(a.ids, b.ids);
  EXPECT_EQ(bits(a.logp), bits(b.logp));
  EXPECT_EQ(bits(a.truncated_logp), bits(b.truncated_logp));
  EXPECT_EQ(bits(a.raw_logp), bits(b.raw_logp));
  EXPECT_EQ(bits(a.prompt_logp), bits(b.prompt_logp));
  EXPECT_EQ(a.forced, b.forced);
  EXPECT_EQ(a.versions, b.versions);
  expect_bits(a.top_logprobs, b.top_logprobs);
  expect_bits(a.prompt_top_logprobs, b.prompt_top_logprobs);
  EXPECT_EQ(a.text, b.text);
  EXPECT_EQ(a.finish_reason, b.finish_reason);
  EXPECT_EQ(a.failed, b.failed);
}

CompletionOutput odd_reply() {
  CompletionOutput out;
  out.ids = {0, std::numeric_limits<int32_t>::max(), 7};
  out.logp = {-0.0f, denormal, -infinite};
  out.truncated_logp = {std::nanf("5"), -denormal, std::numeric_limits<float>::max()};
  out.raw_logp = {-1.1754942e-38f, 0.1f, -3.4028235e38f};
  out.forced = {true, false, true};
  out.versions = {-1, 0, std::numeric_limits<int64_t>::max()};
  out.top_logprobs = {{{1, -0.0f}, {2, -infinite}}, {}, {{3, denormal}}};
  out.prompt_logp = {0, -0.0f, -1e-42f};
  out.prompt_top_logprobs = {{}, {{9, -7}}, {{8, -0.0f}}};
  out.text = no_utf8;
  out.finish_reason = "stop";
  return out;
}

WorkerPollResult report() {
  WorkerPollResult out{.number = 12, .version = 3, .computed_tokens = int64_t{1} << 60, .finished = {}};
  CompletionOutput failed;
  failed.finish_reason = "the prompt has 9 tokens, 4 fit";
  failed.failed = true;
  out.finished = {{.ticket = 1, .completions = {odd_reply(), failed}},
                  {.ticket = std::numeric_limits<uint64_t>::max() / 2, .completions = {}}};
  return out;
}

WorkerPoll turn() {
  WorkerPoll out{.number = 5, .wait = 0.05, .version = 9, .submit = {}, .cancel = {4, 1}};
  GenerationRequest request{.prompt = {5, 0, 61},
                            .n = 3,
                            .id = 0xfedcba9876543210,
                            .sampling = {},
                            .top_logprobs = 4,
                            .prompt_logprobs = true};
  SamplingParams& sampling = request.sampling;
  sampling.temperature = 0.1 + 0.2;
  sampling.top_p = 0.7, sampling.min_p = 1e-3, sampling.top_k = 12;
  sampling.max_tokens = 99, sampling.min_tokens = 2, sampling.seed = -5;
  sampling.repetition_penalty = 1.01, sampling.presence_penalty = -2, sampling.frequency_penalty = 0.3;
  sampling.logit_bias = {{.id = 3, .bias = -100}, {.id = 4, .bias = 0.5}};
  sampling.ignore_eos = true;
  sampling.stop = {"\n\n", "é"}, sampling.stop_ids = {1, 2};
  sampling.thinking_budget = 7, sampling.thinking_end = "</t>";
  sampling.structured = {.json = R"({"type": "string", "maxLength": 3})", .whitespace_pattern = "[ \\n]?"};
  out.submit.push_back({.ticket = 77, .request = request});
  out.submit.push_back({.ticket = 78, .request = {.prompt = {1}, .sampling = {}}});
  // The log-probs of a prompt alone.
  out.submit.push_back({.ticket = 79, .request = {.prompt = {1, 2}, .sampling = {}, .prompt_logprobs = true}});
  out.submit.back().request.sampling.max_tokens = 0;
  return out;
}

WorkerSetup setup() {
  const TinyModel tiny;
  WorkerSetup out;
  out.run = "/runs/é";
  out.model = tiny.model->config();
  out.lora = {.r = 4, .lora_alpha = 0.1, .target_modules = {"q_proj"}};
  out.dtype = DType::bf16;
  out.device = DeviceKind::cuda;
  out.numerics = Numerics::fast;
  out.engine = {
      .kv_block_size = 4, .kv_cache_tokens = 99, .max_batch_tokens = 7, .max_sequences = 3, .prefix_caching = false};
  out.engine.speculative.method = "ngram";
  out.tokenizer = {{"a.json", no_utf8}, {"empty", ""}};
  return out;
}

TEST(WorkerMessagesTest, APollResultArrivesBitForBit) {
  const WorkerPollResult there = report(), back = WorkerPollResult::parse(sent(there.to_json()));
  EXPECT_EQ(back.number, there.number);
  EXPECT_EQ(back.version, there.version);
  EXPECT_EQ(back.computed_tokens, there.computed_tokens);
  ASSERT_EQ(back.finished.size(), there.finished.size());
  for (size_t i = 0; i < back.finished.size(); ++i) {
    EXPECT_EQ(back.finished[i].ticket, there.finished[i].ticket);
    ASSERT_EQ(back.finished[i].completions.size(), there.finished[i].completions.size());
    for (size_t r = 0; r < back.finished[i].completions.size(); ++r)
      expect_bits(back.finished[i].completions[r], there.finished[i].completions[r]);
  }
}

TEST(WorkerMessagesTest, APollArrivesUnchanged) {
  const WorkerPoll there = turn(), back = WorkerPoll::parse(sent(there.to_json()));
  EXPECT_EQ(back.number, there.number);
  EXPECT_EQ(back.wait, there.wait);
  EXPECT_EQ(back.version, there.version);
  EXPECT_EQ(back.cancel, there.cancel);
  ASSERT_EQ(back.submit.size(), 3u);
  for (size_t i = 0; i < back.submit.size(); ++i) {
    const GenerationRequest &a = there.submit[i].request, &b = back.submit[i].request;
    EXPECT_EQ(back.submit[i].ticket, there.submit[i].ticket);
    EXPECT_EQ(b.prompt, a.prompt);
    EXPECT_EQ(b.n, a.n);
    EXPECT_EQ(b.id, a.id);
    EXPECT_EQ(b.top_logprobs, a.top_logprobs);
    EXPECT_EQ(b.prompt_logprobs, a.prompt_logprobs);
    EXPECT_EQ(b.sampling.temperature, a.sampling.temperature);
    EXPECT_EQ(b.sampling.stop, a.sampling.stop);
    EXPECT_EQ(b.sampling.logit_bias.size(), a.sampling.logit_bias.size());
  }
  EXPECT_EQ(back.to_json(), there.to_json()) << "every setting of the sampling";
}

TEST(WorkerMessagesTest, ASetupArrivesUnchanged) {
  const WorkerSetup there = setup(), back = WorkerSetup::parse(sent(there.to_json()));
  EXPECT_EQ(back.run, there.run);
  EXPECT_EQ(back.model, there.model);
  EXPECT_EQ(back.dtype, there.dtype);
  EXPECT_EQ(back.device, there.device);
  EXPECT_EQ(back.numerics, there.numerics);
  EXPECT_EQ(back.tokenizer, there.tokenizer);
  EXPECT_EQ(back.lora.r, 4);
  EXPECT_EQ(back.engine.kv_cache_tokens, 99);
  EXPECT_EQ(back.to_json(), there.to_json()) << "every setting of adapters and engine";
}

TEST(WorkerMessagesTest, ATokenizerArrivesWithItsStopsAndItsSpelling) {
  const Tokenizer there = byte_tokenizer(), back = tokenizer_of(tokenizer_files(there));
  EXPECT_EQ(back.vocab_size(), there.vocab_size());
  EXPECT_EQ(back.stop_ids(), there.stop_ids());
  EXPECT_EQ(tokenizer_files(back), tokenizer_files(there));
  for (const char* name : {"", ".", "..", "a/b", "/etc/x"}) EXPECT_THROW(tokenizer_of({{name, "{}"}}), Error) << name;
}

TEST(WorkerMessagesTest, AnotherProtocolIsAnErrorThatNamesIt) {
  Json json = setup().to_json();
  json.set("protocol", 3);
  EXPECT_EQ(error_of([&] { WorkerSetup::parse(json); }),
            "the learner has protocol 3, this worker 2: run the same version of hone on both");
}

TEST(WorkerMessagesTest, AMissingMemberIsAnErrorThatNamesIt) {
  const auto check = [](const Json& whole, const auto& parse) {
    parse(whole);
    for (const auto& [name, value] : whole.as_object()) {
      Json part = JsonObject{};
      for (const auto& [other, kept] : whole.as_object())
        if (other != name) part.set(other, kept);
      EXPECT_NE(error_of([&] { parse(part); }).find("'" + name + "' is missing"), std::string::npos) << name;
      part.set(name, nullptr);
      EXPECT_NE(error_of([&] { parse(part); }).find("null"), std::string::npos) << name;
    }
  };
  // Not the model: any JSON is valid here, and the engine checks it later.
  Json settings = setup().to_json();
  std::erase_if(settings.object_ref(), [](const auto& member) { return member.first == "model"; });
  EXPECT_NE(error_of([&] { WorkerSetup::parse(settings); }).find("'model' is missing"), std::string::npos);
  check(turn().to_json(), [](const Json& json) { WorkerPoll::parse(json); });
  check(report().to_json(), [](const Json& json) { WorkerPollResult::parse(json); });
  check(report().to_json().at("finished").as_array()[0].at("replies").as_array()[0], [](const Json& json) {
    WorkerPollResult::parse(
        JsonObject{{"turn", 1},
                   {"version", 0},
                   {"computed_tokens", 0},
                   {"finished", JsonArray{JsonObject{{"ticket", 1}, {"replies", JsonArray{json}}}}}});
  });
  check(turn().to_json().at("submit").as_array()[0].at("request"), [](const Json& json) {
    WorkerPoll::parse(JsonObject{{"turn", 1},
                                 {"wait", 0},
                                 {"version", 0},
                                 {"submit", JsonArray{JsonObject{{"ticket", 1}, {"request", json}}}},
                                 {"cancel", JsonArray{}}});
  });
}

TEST(WorkerMessagesTest, ColumnsOfDifferentLengthsAreErrors) {
  const auto refused = [](const std::function<void(CompletionOutput&)>& spoil, const char* what) {
    WorkerPollResult spoilt = report();
    spoil(spoilt.finished[0].completions[0]);
    const std::string error = error_of([&] { WorkerPollResult::parse(sent(spoilt.to_json())); });
    EXPECT_NE(error.find(what), std::string::npos) << error;
  };
  refused([](CompletionOutput& of) { of.logp.pop_back(); }, "a completion of 3 ids has 2 entries in logp");
  refused([](CompletionOutput& of) { of.logp.clear(); }, "0 entries in logp");
  refused([](CompletionOutput& of) { of.truncated_logp.push_back(0); }, "4 entries in truncated_logp");
  refused([](CompletionOutput& of) { of.raw_logp.pop_back(); }, "raw_logp");
  refused([](CompletionOutput& of) { of.versions.pop_back(); }, "versions");
  refused([](CompletionOutput& of) { of.forced.pop_back(); }, "forced");
  refused([](CompletionOutput& of) { of.top_logprobs.pop_back(); }, "top_logprobs");
  refused([](CompletionOutput& of) { of.ids.push_back(1); }, "a completion of 4 ids");
}

TEST(WorkerMessagesTest, AColumnOfHalfANumberIsAnError) {
  for (const char* column : {"ids", "logp", "versions", "prompt_logp"}) {
    Json json = report().to_json();
    Json& completion = json.object_ref().back().second.array_ref()[0].object_ref().back().second.array_ref()[0];
    completion.set(column, "AAAAAAA=");  // five bytes
    EXPECT_NE(error_of([&] { WorkerPollResult::parse(json); }).find(concat(column, ": 5 bytes")), std::string::npos)
        << column;
    completion.set(column, "AAAA*A==");
    EXPECT_NE(error_of([&] { WorkerPollResult::parse(json); }).find(concat(column, ": not valid base64")),
              std::string::npos)
        << column;
  }
}

TEST(WorkerMessagesTest, AnUnboundedWaitIsAnError) {
  for (const char* wait : {"-1", "61", "1e300"}) {
    Json json = turn().to_json();
    json.set("wait", parse_json(wait, "test"));
    EXPECT_THROW(WorkerPoll::parse(json), Error) << wait;
  }
}

TEST(WorkerMessagesTest, DigestsOfAnotherLengthAreErrors) {
  const Digest digest = sha256("x");
  EXPECT_EQ(digest_of(base64(digest), "test"), digest);
  EXPECT_THROW(digest_of("", "test"), Error);
  EXPECT_THROW(digest_of("AAAA", "test"), Error);
  EXPECT_THROW(digest_of(base64(digest) + "AAAA", "test"), Error);
}

// Text with bytes replaced, removed and doubled parses to a value or throws an Error.
TEST(WorkerMessagesTest, DamagedTextIsAnErrorOrAValue) {
  const std::string pieces[] = {
      "0", "-1", "1e99", "9223372036854775807", "null", "[]", "{}", "\"", ",", "\"AAAA\"", "true", "=", "\\u0000"};
  int64_t errors = 0, values = 0;
  const auto spoil = [&](const std::string& text, uint64_t stream, const auto& parse) {
    for (uint64_t round = 0; round < 1500; ++round) {
      Rng random(stream, round);
      std::string spoilt = text;
      for (uint64_t change = 0; change <= random.below(3); ++change) {
        const size_t at = random.below(spoilt.size()), length = 1 + random.below(12);
        switch (random.below(4)) {
          case 0:
            spoilt[at] = static_cast<char>(random.below(256));
            break;
          case 1:
            spoilt.erase(at, length);
            break;
          case 2:
            spoilt.insert(at, spoilt.substr(random.below(spoilt.size()), length));
            break;
          default:
            spoilt.replace(at, length, pieces[random.below(std::size(pieces))]);
        }
        if (spoilt.empty()) spoilt = "x";
      }
      try {
        parse(parse_json(spoilt, "test"));
        ++values;
      } catch (const Error&) {
        ++errors;
      }
    }
  };
  spoil(setup().to_json().dump(), 1, [](const Json& json) { WorkerSetup::parse(json); });
  spoil(turn().to_json().dump(), 2, [](const Json& json) { WorkerPoll::parse(json); });
  spoil(report().to_json().dump(), 3, [](const Json& json) { WorkerPollResult::parse(json); });
  EXPECT_GT(errors, 1000);
  EXPECT_GT(values, 100);
}

}  // namespace
}  // namespace hone::test
