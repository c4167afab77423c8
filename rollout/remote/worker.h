#pragma once
// Worker: an engine that generates completions for a remote learner. It is an HTTP server with endpoints for a model,
// its weights, and requests in token ids; docs/reference/worker-protocol.md has the messages. It serves one learner at
// a time and keeps its weights from one session to the next. If its engine stops (weights of NaN, say), the session
// ends, and the next session gets a new engine.
#include <memory>
#include <string>

#include "core/device/device.h"
#include "core/net/http_server.h"
#include "core/net/serve_gate.h"

namespace hone {

struct WorkerConfig {
  HttpServerConfig http{.max_body_bytes = int64_t{64} << 20, .max_connections = 64, .body_timeout = 120, .threads = 8};
  std::string api_key_file = {};  // "" = no key is needed
  ServeAccess access = {};
  double lease = 30;  // seconds without contact after which a learner counts as gone
  void fields(Fields& f);
};

class Worker {
 public:
  // Starts to serve. The device must outlive it.
  Worker(Device& device, const WorkerConfig& config);
  ~Worker();
  int64_t port() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hone
