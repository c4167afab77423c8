#pragma once
// A network namespace joined to this machine's by a virtual cable that a test can cut. Packets are then lost without an
// error on either side.
#include <string>
#include <vector>

namespace hone::test {

class Network {
 public:
  // Returns true if a test may make one here (root, and iproute2's ip).
  static bool allowed();
  Network();
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  const std::string& address() const { return address_; }  // address of the namespace's side
  std::vector<std::string> launcher() const { return {"ip", "netns", "exec", name_}; }
  void pull() const { ip("link set " + name_ + "a down"); }
  void plug() const { ip("link set " + name_ + "a up"); }

 private:
  static void ip(const std::string& words);
  std::string name_, address_;
};

}  // namespace hone::test
