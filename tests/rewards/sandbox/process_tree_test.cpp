#include "rewards/sandbox/process_tree.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

#include "tests/support/support.h"

namespace hone {

TEST(ProcessTree, MemoryOfAProcessAndItsChildren) {
  constexpr int64_t mebibyte = int64_t{1} << 20;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const int64_t before = tree_memory(::getpid());
  EXPECT_GT(before, 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    std::vector<char> held(size_t{64} << 20, 1);
    const bool told = ::write(ready[1], held.data(), 1) == 1;
    ::pause();
    ::_exit(told ? 0 : 1);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_GE(tree_memory(child), 64 * mebibyte);
  EXPECT_GE(tree_memory(::getpid()), before + 60 * mebibyte);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(tree_memory(child), 0);
  for (const int end : ready) ::close(end);
}

}  // namespace hone
