#pragma once
// Speed of the exchanges between ranks, beside that of plain copies.
#include <string>
#include <vector>

#include "core/io/json.h"

namespace hone {

struct CommBench {
  std::string what;   // copy, all_gather, all_to_all, send_receive
  int64_t bytes = 0;  // of each part
  double seconds = 0;
  double bytes_per_second = 0;  // that one rank receives
  double share = 0;             // of the plain copy's bytes_per_second
  Json json() const;
};

// Measures all_gather, all_to_all and send/receive of parts of several sizes between ranks on these devices (at least
// two). Row `copy` is the limit of a size: rank 0 alone copies a part from rank 1's memory. Each figure is the median
// over `seconds` of calls, of the slowest rank.
std::vector<CommBench> bench_comm(const std::vector<std::string>& devices, double seconds);
std::string comm_table(const std::vector<CommBench>& rows, const std::vector<std::string>& devices);

}  // namespace hone
