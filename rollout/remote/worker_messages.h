#pragma once
// What a learner and its workers tell each other (docs/reference/worker-protocol.md), as JSON. Columns of numbers are
// base64 of their little-endian bytes, and so is text: a log-prob has to arrive with its bits, and a reply need not end
// between two characters.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/io/json.h"
#include "core/net/digest.h"
#include "model/lora_config.h"
#include "rollout/engine.h"

namespace hone {

inline constexpr int64_t worker_protocol = 1;
// A message's digest, base64 of SHA-256, goes with it, either way.
inline constexpr const char* digest_header = "x-hone-digest";
inline constexpr const char* session_header = "x-hone-session";
inline constexpr const char* block_header = "x-hone-block";

// All that decides a reply but its request and the weights.
struct WorkerSetup {
  std::string run;  // the same of a run that is resumed
  Json model;       // config.json
  LoraConfig lora;
  DType dtype = DType::f32;
  DeviceKind device = DeviceKind::cpu;
  Numerics numerics = Numerics::exact;
  EngineConfig engine;
  std::map<std::string, std::string> tokenizer;  // its files by name; none = no tokenizer
  Json to_json() const;
  static WorkerSetup parse(const Json& json);
};
// A tokenizer as the files of its folder, and back.
std::map<std::string, std::string> tokenizer_files(const Tokenizer& tokenizer);
Tokenizer tokenizer_of(const std::map<std::string, std::string>& files);

// What a worker is asked, and asked no more, under numbers that the learner gives.
struct WorkerPoll {
  int64_t number = 0;   // counts from 1 in a session; the same again is answered the same again
  double wait = 0;      // seconds until the answer at most where no reply is whole
  int64_t version = 0;  // that the worker must have, at least
  struct Ask {
    uint64_t ticket = 0;
    GenerationRequest request;
  };
  std::vector<Ask> submit;
  std::vector<uint64_t> cancel;
  Json to_json() const;
  static WorkerPoll parse(const Json& json);
};

// Its answer.
struct WorkerPollResult {
  int64_t number = 0, version = 0;
  int64_t computed_tokens = 0;  // of prompts and replies since the session began: whether it gets on
  struct Done {
    uint64_t ticket = 0;
    std::vector<CompletionOutput> replies;
  };
  std::vector<Done> finished;  // since the turn before
  Json to_json() const;
  // Replies whose columns do not belong together are an Error.
  static WorkerPollResult parse(const Json& json);
};

std::string base64(const Digest& digest);
Digest digest_of(std::string_view text, std::string_view what);

}  // namespace hone
