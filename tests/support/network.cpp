#include "tests/support/network.h"

#include <unistd.h>

#include <cstdlib>
#include <stdexcept>

namespace hone::test {

void Network::ip(const std::string& words) {
  if (std::system(("ip " + words + " > /dev/null 2>&1").c_str()) != 0)
    throw std::runtime_error("ip " + words + " has failed");
}

bool Network::allowed() {
  try {
    Network attempt;
    return true;
  } catch (const std::runtime_error&) {
    return false;
  }
}

// Names and addresses that concurrent tests do not use.
Network::Network() : name_("hone" + std::to_string(::getpid())) {
  const int place = ::getpid() % 16384;
  const std::string net = "10.213." + std::to_string(place / 64) + ".";
  const int first = place % 64 * 4;
  address_ = net + std::to_string(first + 2);
  ip("netns add " + name_);
  try {
    ip("link add " + name_ + "a type veth peer name " + name_ + "b netns " + name_);
    ip("addr add " + net + std::to_string(first + 1) + "/30 dev " + name_ + "a");
    plug();
    ip("-n " + name_ + " addr add " + address_ + "/30 dev " + name_ + "b");
    ip("-n " + name_ + " link set " + name_ + "b up");
    ip("-n " + name_ + " link set lo up");
  } catch (const std::runtime_error&) {
    [[maybe_unused]] const int ignored = std::system(("ip netns del " + name_ + " 2> /dev/null").c_str());
    throw;
  }
}

// Removes the cable first. With its namespace it would go later, whenever the kernel does it, and the next network of
// this name could not be made.
Network::~Network() {
  [[maybe_unused]] int ignored = std::system(("ip link del " + name_ + "a 2> /dev/null").c_str());
  ignored = std::system(("ip netns del " + name_ + " 2> /dev/null").c_str());
}

}  // namespace hone::test
