#include "core/interrupt.h"

#include <csignal>

namespace hone {
namespace {

volatile std::sig_atomic_t flag = 0;

void on_signal(int signal) {
  if (flag && signal == SIGINT) {
    std::signal(SIGINT, SIG_DFL);
    std::raise(SIGINT);
  }
  flag = 1;
}

}  // namespace

void install_interrupt_handlers() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
}

bool interrupted() { return flag != 0; }

}  // namespace hone
