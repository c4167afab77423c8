#pragma once
// Settings of the remote workers, apart from the workers themselves: a recipe needs the settings only.
#include <string>
#include <vector>

#include "core/config/fields.h"

namespace hone {

struct WorkerPoolConfig {
  std::vector<std::string> workers;                           // URLs; empty = an engine of this process generates
  std::string worker_key_file;                                // the first key is sent to the workers
  double worker_timeout = 60, worker_request_timeout = 3600;  // seconds
  std::string weight_transport = "auto";                      // auto | stream | a kind of DeviceLink
  void fields(Fields& f);
};

}  // namespace hone
