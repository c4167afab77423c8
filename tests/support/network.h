#pragma once
// A network of its own, joined to this machine's by a cable that a test can pull: what is sent then is lost, and
// neither side is told.
#include <string>
#include <vector>

namespace hone::test {

class Network {
 public:
  // Whether this machine lets a test have one (root, and iproute2's ip).
  static bool allowed();
  Network();
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  const std::string& address() const { return address_; }  // of its side
  std::vector<std::string> launcher() const { return {"ip", "netns", "exec", name_}; }
  void pull() const { ip("link set " + name_ + "a down"); }
  void plug() const { ip("link set " + name_ + "a up"); }

 private:
  static void ip(const std::string& words);
  std::string name_, address_;
};

}  // namespace hone::test
