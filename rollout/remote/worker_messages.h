#pragma once
// The messages between a learner and its workers as JSON (docs/reference/worker-protocol.md). Columns of numbers are
// base64 of their little-endian bytes, and so is text: a log-prob must arrive bit for bit, and a completion may end
// within a character.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/io/json.h"
#include "core/net/digest.h"
#include "model/lora_config.h"
#include "rollout/engine.h"

namespace hone {

inline constexpr int64_t worker_protocol = 2;
// Requests and responses carry the digest of their body: base64 of SHA-256.
inline constexpr const char* digest_header = "x-hone-digest";
inline constexpr const char* session_header = "x-hone-session";
inline constexpr const char* chunk_header = "x-hone-block";

// Everything that decides a completion except its request and the weights.
struct WorkerSetup {
  std::string run;  // id of the run; a resumed run keeps it
  Json model;       // config.json
  LoraConfig lora;
  DType dtype = DType::f32;
  DeviceKind device = DeviceKind::cpu;
  Numerics numerics = Numerics::exact;
  EngineConfig engine;
  std::map<std::string, std::string> tokenizer;  // files by name; empty = no tokenizer
  Json to_json() const;
  static WorkerSetup parse(const Json& json);
};
// The files of a tokenizer's folder by name, and the tokenizer of such files.
std::map<std::string, std::string> tokenizer_files(const Tokenizer& tokenizer);
Tokenizer tokenizer_of(const std::map<std::string, std::string>& files);

// A learner's poll: requests to submit and to cancel, and the question for results. The learner chooses the tickets.
struct WorkerPoll {
  int64_t number = 0;   // counts from 1 in a session; a repeated number gets the same response
  double wait = 0;      // maximum seconds that the worker waits for a finished request
  int64_t version = 0;  // minimum policy version that the worker must have
  struct Submission {
    uint64_t ticket = 0;
    GenerationRequest request;
  };
  std::vector<Submission> submit;
  std::vector<uint64_t> cancel;
  Json to_json() const;
  static WorkerPoll parse(const Json& json);
};

// The worker's response.
struct WorkerPollResult {
  int64_t number = 0, version = 0;
  int64_t computed_tokens = 0;  // prompt and completion tokens since the session began, as a sign of progress
  struct Finished {
    uint64_t ticket = 0;
    std::vector<CompletionOutput> completions;
  };
  std::vector<Finished> finished;  // since the previous poll
  Json to_json() const;
  // Throws if the columns of a completion differ in length.
  static WorkerPollResult parse(const Json& json);
};

std::string base64(const Digest& digest);
Digest digest_of(std::string_view text, std::string_view what);

}  // namespace hone
