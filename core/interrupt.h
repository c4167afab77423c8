#pragma once
// SIGTERM and SIGINT as a request to finish the step at hand, save, and stop.

namespace hone {

// From now on the first SIGTERM or SIGINT sets a flag; a second SIGINT ends the process at once.
void install_interrupt_handlers();
// True once a signal came.
bool interrupted();

}  // namespace hone
