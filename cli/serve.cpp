#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "cli/command.h"
#include "cli/model_arguments.h"
#include "core/base/format.h"
#include "core/base/interrupt.h"
#include "core/base/log.h"
#include "core/base/stopwatch.h"
#include "serve/server.h"

namespace hone {
namespace {

class ServeCommand : public Command {
 public:
  std::string summary() const override { return "answer OpenAI's clients: completions and chat over HTTP"; }
  std::string example() const override { return "hone serve --model DIR --port 8000 --api-key-file keys.txt"; }
  std::vector<std::pair<std::string, std::string>> old_arguments() const override {
    return {{"--format", "--chat-format"},
            {"--max-replies", "--max-pending-completions"},
            {"--max-batch-tokens", "--max-num-batched-tokens"},
            {"--max-sequences", "--max-num-seqs"}};
  }
  void arguments(Arguments& a) override {
    model_.arguments(a);
    a.option("host", config_.http.host, "address to listen at; 0.0.0.0 is every one of this machine's");
    a.option("port", config_.http.port, "port to listen at; 0 = any free one");
    a.option("api-key-file", config_.api_key_file, "file with one key a line, one of which a request must bear");
    a.option("tls-cert", config_.http.tls_cert, "PEM file of the certificate and its chain");
    a.option("tls-key", config_.http.tls_key, "PEM file of the certificate's key");
    a.option("served-model-name", name_, "what the model is called (default: its folder's name)");
    a.option("chat-format", format_, "chat format: auto | template | chatml | llama3 | plain");
    a.option("seed", seed_, "of requests that have none");
    a.option("max-pending-completions", config_.max_pending_completions,
             "waiting or being written; requests that would be more are answered 429");
    a.option("max-answer-bytes", config_.max_answer_bytes, "longest answer that one request may ask for");
    a.option("max-pending-bytes", config_.max_pending_bytes,
             "of all answers under way; requests that would be more are answered 429");
    a.options("allowed-origins", config_.access.allowed_origins,
              "origin whose pages may ask from a browser, https://host:port or * (repeatable)");
    a.options("allowed-hosts", config_.access.allowed_hosts,
              "name by which requests may call the server, besides localhost, or * (repeatable)");
    a.option("max-body-bytes", config_.http.max_body_bytes, "longest body of a request");
    a.option("max-header-bytes", config_.http.max_header_bytes, "longest header of a request");
    a.option("max-connections", config_.http.max_connections, "open at the same time; further ones wait");
    a.option("request-timeout", config_.http.request_timeout, "seconds a request's header may take to arrive");
    a.option("body-timeout", config_.http.body_timeout, "seconds its body may take after that");
    a.option("idle-timeout", config_.http.idle_timeout, "seconds a connection may be without a request");
    a.option("write-timeout", config_.http.write_timeout, "seconds a client may take to accept a piece of an answer");
    a.option("peer-timeout", config_.http.peer_timeout,
             "seconds until a client that vanished without a word counts as gone");
    a.option("drain-seconds", drain_seconds_, "that requests under way have to end after SIGTERM");
    a.option("kv-cache-tokens", engine_.kv_cache_tokens, "tokens the KV cache holds");
    a.option("max-num-batched-tokens", engine_.max_batch_tokens, "tokens of one forward pass");
    a.option("max-num-seqs", engine_.max_sequences, "sequences that decode at the same time");
    speculative_arguments(a, engine_.speculative);
    quantization_arguments(a, engine_);
  }

  int run() override {
    check_options([&](Fields& f) { config_.fields(f), engine_.fields(f); });
    check_options([&](Fields& f) { config_.http.fields(f); });
    require_usage(drain_seconds_ >= 0 && drain_seconds_ <= 1e6, "drain-seconds must be in [0, 1e6]");
    install_interrupt_handlers();
    model_.open();
    const Tokenizer* tokenizer = model_.has_tokenizer() ? &model_.tokenizer() : nullptr;
    std::optional<ChatFormat> chat;
    if (tokenizer) chat = ChatFormat::make(format_, *tokenizer);
    ServedModel served{
        .names = names(),
        .tokenizer = tokenizer,
        .chat = chat ? &*chat : nullptr,
        .vocab_size = model_.model().shape().vocab_size,
        .max_positions = model_.model().shape().max_positions,
        .kv_cache_tokens = engine_.kv_cache_tokens / engine_.kv_block_size * engine_.kv_block_size,  // whole blocks
        .seed = seed_};
    if (chat)
      for (const int32_t id : chat->stop_ids(*tokenizer)) served.chat_stop_ids.push_back(id);
    engine_.owns_model = true;
    Engine engine(model_.context(), model_.model(), tokenizer, engine_);
    Server server(engine, std::move(served), config_);
    log::info("serving ", names().front(), " at ", config_.http.tls_cert.empty() ? "http://" : "https://",
              config_.http.host, ":", server.port());
    while (!interrupted() && server.failure().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    drain(server);
    return server.failure().empty() ? 0 : 1;
  }

 private:
  void drain(Server& server) const {
    log::info("finishing what is under way, for ", drain_seconds_, " seconds at most");
    const Stopwatch watch;
    while (!server.drain(std::min(0.1, drain_seconds_)))
      if (watch.seconds() >= drain_seconds_)
        return log::warning("requests under way were cut off after ", format_text("%.1f", watch.seconds()), " seconds");
  }

  // Clients may also call the model what the command line does.
  std::vector<std::string> names() const {
    const std::string folder = model_.folder();
    const std::filesystem::path path = std::filesystem::weakly_canonical(folder);
    return {name_.empty() ? path.filename().string() : name_, folder};
  }

  ModelArguments model_;
  ServerConfig config_;
  EngineConfig engine_;
  std::string name_, format_ = "auto";
  int64_t seed_ = 0;
  double drain_seconds_ = 30;
};

[[maybe_unused]] const bool added = commands().add("serve", [] { return std::unique_ptr<Command>(new ServeCommand); });

}  // namespace
}  // namespace hone
