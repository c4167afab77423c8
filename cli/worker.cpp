// hone worker: generates completions for another process's RL run.
#include "rollout/remote/worker.h"

#include <chrono>
#include <thread>

#include "cli/command.h"
#include "core/base/interrupt.h"
#include "core/base/log.h"

namespace hone {
namespace {

class WorkerCommand : public Command {
 public:
  std::string summary() const override { return "generate completions for the RL run of another process or machine"; }
  std::string example() const override {
    return "hone worker --listen 0.0.0.0:7001 --api-key-file keys.txt --device cuda";
  }
  void arguments(Arguments& a) override {
    a.option(
        "listen", listen_,
        "HOST:PORT to listen on; port 0 = any free port; a host that other machines can reach needs --api-key-file");
    a.option("device", device_, "device to generate on: cpu | cuda | cuda:1 | auto");
    a.option(
        "api-key-file", config_.api_key_file,
        "file with one API key per line; the learner must send one of them (rollout.worker_key_file); empty = no key");
    a.option("tls-cert", config_.http.tls_cert, "PEM file of the certificate chain; empty = no TLS");
    a.option("tls-key", config_.http.tls_key, "PEM file of the certificate's private key; needed with --tls-cert");
    a.options(
        "allowed-hosts", config_.access.allowed_hosts,
        "host name under which learners may reach the worker, in addition to localhost; * = all (may be repeated)");
    a.option("lease", config_.lease, "seconds without a message after which a learner counts as gone");
    a.option("max-body-bytes", config_.http.max_body_bytes, "maximum message of a learner in bytes");
  }

  int run() override {
    parse_address();
    check_options([&](Fields& f) {
      config_.fields(f);
      config_.http.fields(f);
    });
    require_usage(
        is_loopback(config_.http.host) || !config_.api_key_file.empty(),
        "--listen " + listen_ +
            " is open to other machines, and every learner that joins uses this machine: give --api-key-file");
    install_interrupt_handlers();
    const std::unique_ptr<Device> device = open_device(device_);
    Worker worker(*device, config_);
    log::info("waiting for a learner at ", config_.http.tls_cert.empty() ? "http://" : "https://", config_.http.host,
              ":", worker.port(), " with ", device->description());
    while (!interrupted()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return 0;
  }

 private:
  void parse_address() {
    const size_t colon = listen_.rfind(':');
    require_usage(colon != std::string::npos && colon > 0 && colon + 1 < listen_.size() &&
                      listen_.size() - colon <= 6 &&
                      listen_.find_first_not_of("0123456789", colon + 1) == std::string::npos,
                  "--listen is '" + listen_ + "'; it must be HOST:PORT");
    config_.http.port = std::stoll(listen_.substr(colon + 1));
    config_.http.host = listen_.substr(0, colon);
    if (config_.http.host.starts_with('[') && config_.http.host.ends_with(']'))
      config_.http.host = config_.http.host.substr(1, colon - 2);
  }

  std::string listen_ = "127.0.0.1:7001", device_ = "auto";
  WorkerConfig config_;
};

[[maybe_unused]] const bool added =
    commands().add("worker", [] { return std::unique_ptr<Command>(new WorkerCommand); });

}  // namespace
}  // namespace hone
