#pragma once
// What op_test.cpp runs for each op: a function that puts every body of the op through the op's own inputs and compares
// it with the specification. A test file joins with one line for each of its ops; an op without a case fails op_test.
#include "core/base/registry.h"

namespace hone::test {

inline Registry<void (*)()>& op_cases() {
  static Registry<void (*)()> registry("op case");
  return registry;
}

}  // namespace hone::test
