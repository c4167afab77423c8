#include "core/base/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <string_view>

namespace hone {
namespace {

std::atomic<int> count{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may only touch lock-free atomics");

// Ends the process by the signal's default action, so that the parent sees which signal it was (a shell: 128 + number).
// Signals do not end process 1 of a container: it exits with that code instead.
[[noreturn]] void end_process(int number) {
  ::signal(number, SIG_DFL);
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, number);
  ::raise(number);
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  ::_exit(128 + number);
}

// The handler: async-signal-safe calls only (POSIX).
void on_signal(int number) {
  if (count.fetch_add(1) > 0) end_process(number);
  constexpr std::string_view note = "\nstopping after the current step; a second signal stops at once\n";
  [[maybe_unused]] const ssize_t ignored = ::write(STDERR_FILENO, note.data(), note.size());
}

// Gives the thread a signal stack, unless it has one. oneDNN's GEMMs point the stack register into a heap buffer while
// they run; a signal frame pushed there would overwrite the memory below it.
void give_handlers_a_stack() {
  alignas(64) static std::array<std::byte, 65536> memory;
  stack_t stack{};
  if (::sigaltstack(nullptr, &stack) == 0 && !(stack.ss_flags & SS_DISABLE)) return;
  stack = {};
  stack.ss_sp = memory.data();
  stack.ss_size = memory.size();
  ::sigaltstack(&stack, nullptr);
}

}  // namespace

void install_interrupt_handlers() {
  give_handlers_a_stack();
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGTERM, &action, nullptr);
  ::sigaction(SIGINT, &action, nullptr);
  // Under nohup SIGHUP is ignored, so that the program outlives its terminal. Keep it so.
  struct sigaction inherited {};
  if (::sigaction(SIGHUP, nullptr, &inherited) == 0 && inherited.sa_handler != SIG_IGN)
    ::sigaction(SIGHUP, &action, nullptr);
}

void count_interrupts() {
  give_handlers_a_stack();
  struct sigaction action {};
  action.sa_handler = [](int) { count.fetch_add(1); };
  action.sa_flags = SA_RESTART | SA_ONSTACK;  // a write to the terminal goes on; poll ends in any case
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
}

bool take_interrupt() { return count.exchange(0) > 0; }

bool interrupted() { return num_interrupts() > 0; }

int num_interrupts() { return count.load(std::memory_order_relaxed); }

}  // namespace hone
