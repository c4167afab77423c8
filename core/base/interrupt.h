#pragma once
// SIGTERM, SIGHUP and Ctrl-C ask a run to stop. Loops read interrupted() between steps; then they save and return.

namespace hone {

// Installs handlers for SIGTERM, SIGINT and SIGHUP (SIGHUP stays ignored under nohup). The first signal sets the flag.
// A second signal of any of the three ends the process at once; a shell sees exit code 128 + signal number. Call it on
// the main thread. Further calls change nothing.
void install_interrupt_handlers();

// For a program that gives Ctrl-C another meaning: SIGINT is counted and does nothing else. It ends poll() with EINTR;
// reads and writes go on. Call it on the main thread, and not install_interrupt_handlers().
void count_interrupts();
// True if SIGINT came since the last call.
bool take_interrupt();

bool interrupted();
int num_interrupts();  // signals received so far

}  // namespace hone
