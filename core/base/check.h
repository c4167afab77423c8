#pragma once
// Error and checks. Bad outside data (a file, a request, a recipe, an op's arguments) throws hone::Error with a
// sentence for the user. Boundaries catch it: cli/main (exit code), an HTTP handler (status), a reward call (failed
// score).
#include <sstream>
#include <stdexcept>
#include <string>

namespace hone {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <class... Words>
std::string concat(const Words&... words) {
  std::ostringstream out;
  (out << ... << words);
  return out.str();
}

// Throws Error with the words joined: fail("recipe.toml:3: unknown key ", key).
template <class... Words>
[[noreturn]] void fail(const Words&... words) {
  throw Error(concat(words...));
}

}  // namespace hone

// Throws Error unless `fact` holds. The words name what is wrong, with numbers:
//   HONE_CHECK(a == b, "rmsnorm: x has ", a, " columns, w has ", b);
#define HONE_CHECK(fact, ...)    \
  do {                           \
    if (!(fact)) [[unlikely]]    \
      ::hone::fail(__VA_ARGS__); \
  } while (false)

// The same for inner loops: checked in debug and sanitizer builds only.
#ifdef HONE_DEBUG_CHECKS
#define HONE_DCHECK(fact, ...) HONE_CHECK(fact, __VA_ARGS__)
#else
#define HONE_DCHECK(fact, ...) ((void)0)
#endif
