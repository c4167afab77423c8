#pragma once
// SIGTERM, SIGHUP and Ctrl-C ask a run to stop: its loops look at interrupted() between steps, finish the one under
// way, save and return.

namespace hone {

// From now on SIGTERM, SIGINT and SIGHUP (unless it is ignored, as under nohup) set the flag; a second signal of any
// kind ends the process at once, whatever it is doing: its exit code is 128 + the signal's number for a shell. Calling
// it again changes nothing. To be called on the main thread, which is where the system delivers them.
void install_interrupt_handlers();

bool interrupted();
int num_interrupts();  // how many signals came

}  // namespace hone
