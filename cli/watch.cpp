// hone watch: the live view of runs in a browser.
#include <chrono>
#include <thread>

#include "cli/command.h"
#include "core/base/interrupt.h"
#include "core/base/log.h"
#include "core/io/file.h"
#include "run/watch/watch_server.h"

namespace hone {
namespace {

class Watch : public Command {
 public:
  std::string summary() const override { return "show runs in a browser while they train"; }
  std::string example() const override { return "hone watch\n  hone watch runs/grpo runs/ppo --port 7000"; }
  void arguments(Arguments& a) override {
    a.rest("runs", runs_, "run folders, or folders that hold run folders; none = runs");
    a.option("host", config_.host, "address to listen on; 0.0.0.0 = all addresses of this machine");
    a.option("port", config_.port, "port to listen on; 0 = any free port");
    a.options("allowed-hosts", config_.access.allowed_hosts,
              "host name under which browsers reach this machine, in addition to localhost (may be repeated)");
  }
  int run() override {
    require_usage(config_.port >= 0 && config_.port <= 65535, "--port is ", config_.port, "; it must be in [0, 65535]");
    std::vector<std::filesystem::path> sources;
    for (const std::string& run : runs_.empty() ? std::vector<std::string>{"runs"} : runs_)
      sources.emplace_back(expand_path(run));
    for (const std::filesystem::path& source : sources)
      if (!std::filesystem::is_directory(source))
        log::warning("watch: ", source.string(), " does not exist yet; it is shown as soon as it does");
    install_interrupt_handlers();
    const WatchServer server(config_, std::move(sources));
    log::info("watching at ", server.url(), " (Ctrl-C ends)");
    while (!interrupted()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return 0;
  }

 private:
  WatchConfig config_;
  std::vector<std::string> runs_;
};

[[maybe_unused]] const bool added = commands().add("watch", [] { return std::unique_ptr<Command>(new Watch); });

}  // namespace
}  // namespace hone
