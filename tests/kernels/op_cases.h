#pragma once
// The cases of op_test.cpp: one function per op that runs all bodies on inputs of the op and compares them with the
// specification. A test file adds one line for each of its ops. An op without a case fails op_test.
#include "core/base/registry.h"

namespace hone::test {

inline Registry<void (*)()>& op_cases() {
  static Registry<void (*)()> registry("op case");
  return registry;
}

}  // namespace hone::test
