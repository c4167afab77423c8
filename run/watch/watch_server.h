#pragma once
// WatchServer: the live view of runs in a browser. It only reads: the run folders are its one source, so that it shows
// runs of other processes, follows runs that are resumed, and never disturbs one.
//
//   GET /                                the page
//   GET /api/runs                        RunList::describe()
//   GET /api/runs/N/metrics/OFFSET/DIGEST   rows of metrics.jsonl from a place on (run/watch/log_piece.h)
//   GET /api/runs/N/samples/OFFSET/DIGEST   the same of samples.jsonl; OFFSET "end": its last 2 MiB
//   GET /api/runs/N/recipe               the resolved recipe as JSON
//   GET /api/runs/N/rollouts             {steps: [...]} of the kept rollouts
//   GET /api/runs/N/rollouts/STEP/ROW    kept rollouts of a step from row ROW on, without token ids
//
// Answers with rows are JSON Lines; the first line describes the piece. Paths have numbers only, so that no request can
// name a file. The server listens on this machine only, unless told otherwise, and then checks the Host header
// (core/net/serve_gate.h).
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/net/serve_gate.h"

namespace hone {

struct WatchConfig {
  std::string host = "127.0.0.1";
  int64_t port = 6006;  // 0 = any free one
  ServeAccess access = {};
};

class WatchServer {
 public:
  // sources: run folders, and folders of run folders. Starts to serve.
  WatchServer(const WatchConfig& config, std::vector<std::filesystem::path> sources);
  ~WatchServer();
  void add(const std::filesystem::path& source);
  int64_t port() const;
  std::string url() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The page with its style and scripts in place.
std::string watch_page_text();

}  // namespace hone
