#include "rollout/remote/worker_messages.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>

#include "core/config/config.h"
#include "core/io/file.h"
#include "core/io/scratch_folder.h"
#include "core/text/tokenizer/tokenizer.h"

namespace hone {
namespace {

static_assert(std::endian::native == std::endian::little, "columns are sent in the memory layout of this machine");

Json text_json(std::string_view bytes) {
  return base64(std::span(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()));
}

std::string text_of(const Json& json, std::string_view what) { return from_base64(json.as_string(what), what); }

template <class T>
Json column(const std::vector<T>& numbers) {
  return text_json({reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T)});
}

template <class T>
std::vector<T> column_of(const Json& message, const char* name) {
  const std::string bytes = text_of(message.at(name), name);
  HONE_CHECK(bytes.size() % sizeof(T) == 0, name, ": ", bytes.size(), " bytes are not a multiple of ", sizeof(T));
  std::vector<T> out(bytes.size() / sizeof(T));
  if (!out.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

Json top_logprobs_json(const std::vector<std::vector<TokenLogp>>& rows) {
  JsonArray out;
  for (const std::vector<TokenLogp>& row : rows) out.push_back(column(row));
  return out;
}

std::vector<std::vector<TokenLogp>> top_logprobs_of(const Json& message, const char* name) {
  std::vector<std::vector<TokenLogp>> out;
  for (const Json& row : message.at(name).as_array(name))
    out.push_back(column_of<TokenLogp>(JsonObject{{name, row}}, name));
  return out;
}

uint64_t ticket_of(const Json& json) { return static_cast<uint64_t>(json.as_int("ticket")); }

Json completion_json(const CompletionOutput& completion) {
  return JsonObject{{"ids", column(completion.ids)},
                    {"logp", column(completion.logp)},
                    {"truncated_logp", column(completion.truncated_logp)},
                    {"raw_logp", column(completion.raw_logp)},
                    {"forced", column(std::vector<uint8_t>(completion.forced.begin(), completion.forced.end()))},
                    {"versions", column(completion.versions)},
                    {"top_logprobs", top_logprobs_json(completion.top_logprobs)},
                    {"prompt_logp", column(completion.prompt_logp)},
                    {"prompt_top_logprobs", top_logprobs_json(completion.prompt_top_logprobs)},
                    {"text", text_json(completion.text)},
                    {"finish_reason", completion.finish_reason},
                    {"failed", completion.failed}};
}

CompletionOutput completion_of(const Json& json) {
  CompletionOutput out;
  out.ids = column_of<int32_t>(json, "ids");
  out.logp = column_of<float>(json, "logp");
  out.truncated_logp = column_of<float>(json, "truncated_logp");
  out.raw_logp = column_of<float>(json, "raw_logp");
  const std::vector<uint8_t> forced = column_of<uint8_t>(json, "forced");
  out.forced.assign(forced.begin(), forced.end());
  out.versions = column_of<int64_t>(json, "versions");
  out.top_logprobs = top_logprobs_of(json, "top_logprobs");
  out.prompt_logp = column_of<float>(json, "prompt_logp");
  out.prompt_top_logprobs = top_logprobs_of(json, "prompt_top_logprobs");
  out.text = text_of(json.at("text"), "text");
  out.finish_reason = json.at("finish_reason").as_string("finish_reason");
  out.failed = json.at("failed").as_bool("failed");
  const size_t size = out.ids.size();
  for (const auto& [name, length] : {std::pair{"logp", out.logp.size()},
                                     {"truncated_logp", out.truncated_logp.size()},
                                     {"raw_logp", out.raw_logp.size()},
                                     {"versions", out.versions.size()},
                                     {"forced", forced.empty() ? size : forced.size()},
                                     {"top_logprobs", out.top_logprobs.empty() ? size : out.top_logprobs.size()}})
    HONE_CHECK(length == size, "a completion of ", size, " ids has ", length, " entries in ", name);
  return out;
}

Json request_json(const GenerationRequest& request) {
  SamplingParams sampling = request.sampling;
  return JsonObject{
      {"prompt", column(request.prompt)},         {"n", request.n},
      {"id", std::bit_cast<int64_t>(request.id)}, {"sampling", to_json([&](Fields& f) { sampling.fields(f); })},
      {"top_logprobs", request.top_logprobs},     {"prompt_logprobs", request.prompt_logprobs}};
}

GenerationRequest request_of(const Json& json) {
  GenerationRequest out;
  out.prompt = column_of<int32_t>(json, "prompt");
  out.n = json.at("n").as_int("n");
  HONE_CHECK(out.n >= 1 && out.n <= 65536, "n is ", out.n, "; it must be in [1, 65536]");
  out.id = std::bit_cast<uint64_t>(json.at("id").as_int("id"));
  out.top_logprobs = json.at("top_logprobs").as_int("top_logprobs");
  out.prompt_logprobs = json.at("prompt_logprobs").as_bool("prompt_logprobs");
  Json sampling = json.at("sampling");
  // A request for the prompt's log-probs alone has max_tokens 0, which is no valid setting.
  const bool generates_nothing = out.prompt_logprobs && sampling.at("max_tokens", "sampling").as_int("max_tokens") == 0;
  if (generates_nothing) sampling.set("max_tokens", 1);
  from_json(sampling, "sampling", [&](Fields& f) { out.sampling.fields(f); });
  if (generates_nothing) out.sampling.max_tokens = 0;
  return out;
}

template <class T>
T enum_of(const Json& json, const char* member, std::initializer_list<T> known) {
  const std::string& name = json.at(member).as_string(member);
  for (const T value : known)
    if (name_of(value) == name) return value;
  fail(member, " '", name, "' is unknown to this worker");
}

}  // namespace

std::string base64(const Digest& digest) { return base64(std::span<const unsigned char>(digest)); }

Digest digest_of(std::string_view text, std::string_view what) {
  const std::string bytes = from_base64(text, what);
  Digest out{};
  HONE_CHECK(bytes.size() == out.size(), what, ": a digest has ", out.size(), " bytes, not ", bytes.size());
  std::memcpy(out.data(), bytes.data(), out.size());
  return out;
}

std::map<std::string, std::string> tokenizer_files(const Tokenizer& tokenizer) {
  const ScratchFolder folder;
  tokenizer.save(folder.path());
  std::map<std::string, std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    out[entry.path().filename().string()] = read_file(entry.path(), max_tokenizer_bytes);
  out["generation_config.json"] = generation_config_json(tokenizer).dump();
  return out;
}

Tokenizer tokenizer_of(const std::map<std::string, std::string>& files) {
  const ScratchFolder folder;
  for (const auto& [name, content] : files) {
    HONE_CHECK(!name.empty() && name.find('/') == std::string::npos && name != "." && name != "..", "tokenizer: '",
               name, "' is not a file name");
    write_file_atomic(std::filesystem::path(folder.path()) / name, content);
  }
  return Tokenizer::load(folder.path());
}

Json WorkerSetup::to_json() const {
  LoraConfig adapters = lora;
  EngineConfig settings = engine;
  JsonObject files;
  for (const auto& [name, content] : tokenizer) files.emplace_back(name, text_json(content));
  return JsonObject{{"protocol", worker_protocol},
                    {"run", run},
                    {"model", model},
                    {"lora", hone::to_json([&](Fields& f) { adapters.fields(f); })},
                    {"dtype", name_of(dtype)},
                    {"device", name_of(device)},
                    {"numerics", numerics == Numerics::exact ? "exact" : "fast"},
                    {"engine", hone::to_json([&](Fields& f) { settings.fields(f); })},
                    {"tokenizer", std::move(files)}};
}

WorkerSetup WorkerSetup::parse(const Json& json) {
  const int64_t protocol = json.at("protocol", "setup").as_int("protocol");
  HONE_CHECK(protocol == worker_protocol, "the learner has protocol ", protocol, ", this worker ", worker_protocol,
             ": run the same version of hone on both");
  WorkerSetup out;
  out.run = json.at("run", "setup").as_string("run");
  out.model = json.at("model", "setup");
  from_json(json.at("lora", "setup"), "lora", [&](Fields& f) { out.lora.fields(f); });
  out.dtype = enum_of(json, "dtype", {DType::f32, DType::bf16});
  out.device = enum_of(json, "device", {DeviceKind::cpu, DeviceKind::cuda});
  out.numerics = numerics_of(json.at("numerics", "setup").as_string("numerics"));
  from_json(json.at("engine", "setup"), "engine", [&](Fields& f) { out.engine.fields(f); });
  HONE_CHECK(out.engine.speculative.model.empty(),
             "speculative.model is a folder of the learner's machine: workers cannot use a draft model");
  for (const auto& [name, content] : json.at("tokenizer", "setup").as_object("tokenizer"))
    out.tokenizer[name] = text_of(content, name);
  return out;
}

Json WorkerPoll::to_json() const {
  JsonArray submitted, dropped;
  for (const Submission& submission : submit)
    submitted.push_back(
        JsonObject{{"ticket", static_cast<int64_t>(submission.ticket)}, {"request", request_json(submission.request)}});
  for (const uint64_t ticket : cancel) dropped.push_back(static_cast<int64_t>(ticket));
  return JsonObject{{"turn", number},
                    {"wait", wait},
                    {"version", version},
                    {"submit", std::move(submitted)},
                    {"cancel", std::move(dropped)}};
}

WorkerPoll WorkerPoll::parse(const Json& json) {
  WorkerPoll out;
  out.number = json.at("turn", "turn").as_int("turn");
  out.wait = json.at("wait", "turn").as_double("wait");
  out.version = json.at("version", "turn").as_int("version");
  HONE_CHECK(out.wait >= 0 && out.wait <= 1, "wait is ", out.wait, "; it must be in [0, 1] seconds");
  for (const Json& submission : json.at("submit", "turn").as_array("submit"))
    out.submit.push_back(
        {ticket_of(submission.at("ticket", "submit")), request_of(submission.at("request", "submit"))});
  for (const Json& ticket : json.at("cancel", "turn").as_array("cancel")) out.cancel.push_back(ticket_of(ticket));
  return out;
}

Json WorkerPollResult::to_json() const {
  JsonArray done;
  for (const Finished& result : finished) {
    JsonArray completions;
    for (const CompletionOutput& completion : result.completions) completions.push_back(completion_json(completion));
    done.push_back(JsonObject{{"ticket", static_cast<int64_t>(result.ticket)}, {"replies", std::move(completions)}});
  }
  return JsonObject{
      {"turn", number}, {"version", version}, {"computed_tokens", computed_tokens}, {"finished", std::move(done)}};
}

WorkerPollResult WorkerPollResult::parse(const Json& json) {
  WorkerPollResult out;
  out.number = json.at("turn", "report").as_int("turn");
  out.version = json.at("version", "report").as_int("version");
  out.computed_tokens = json.at("computed_tokens", "report").as_int("computed_tokens");
  for (const Json& result : json.at("finished", "report").as_array("finished")) {
    Finished& done =
        out.finished.emplace_back(Finished{.ticket = ticket_of(result.at("ticket", "finished")), .completions = {}});
    for (const Json& completion : result.at("replies", "finished").as_array("replies"))
      done.completions.push_back(completion_of(completion));
  }
  return out;
}

}  // namespace hone
