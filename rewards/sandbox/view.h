#pragma once
// What a sandboxed program sees of the host's files: the system's programs and libraries, a few devices, and what the
// settings add; all read-only.
#include <deque>
#include <string>
#include <vector>

#include "rewards/sandbox/child.h"

namespace hone {

class SandboxView {
 public:
  // readable: further files and folders of the host, absolute and there, not below /tmp, /proc or /dev; an Error
  // otherwise.
  explicit SandboxView(const std::vector<std::string>& readable);
  SandboxView(const SandboxView&) = delete;
  SandboxView& operator=(const SandboxView&) = delete;
  const std::vector<SandboxPath>& paths() const { return paths_; }

 private:
  void add(SandboxPath::Kind kind, const std::string& path, const std::string& target = "");
  void add_existing(const std::string& path);
  std::deque<std::string> names_;  // what paths_ point into
  std::vector<SandboxPath> paths_;
};

}  // namespace hone
