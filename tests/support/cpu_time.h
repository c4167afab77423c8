#pragma once
// CPU time of this process, all threads: limits of time that hold on a busy machine, too.
#include <ctime>

namespace hone {

class CpuTime {
 public:
  double seconds() const { return static_cast<double>(std::clock() - begin_) / CLOCKS_PER_SEC; }

 private:
  std::clock_t begin_ = std::clock();
};

}  // namespace hone
