#pragma once
#include <string>

#include "core/base/check.h"

namespace hone::test {

// What the Error says that the body ends with; "no error" where there is none.
template <class Body>
std::string error_of(Body body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace hone::test
