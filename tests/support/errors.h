#pragma once
#include <string>

#include "core/base/check.h"

namespace hone::test {

// Returns the message of the Error that the body throws; "no error" if it throws none.
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
