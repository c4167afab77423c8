#pragma once
// What run.json says about how a run was made.
#include "core/device/device.h"
#include "core/io/json.h"

namespace hone {

// {started: "2026-01-31T12:00:00Z", command, version, build, device} of this process. command: the words of the command
// line, quoted for a shell where they need it.
Json run_facts(const Device& device);

}  // namespace hone
