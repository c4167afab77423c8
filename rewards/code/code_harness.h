#pragma once
// The Python program that tests a program of the model (code_values.py, code_worker.py, code_judge.py). It is two
// processes: the judge runs the tests, and the worker runs the model's program and answers the judge's requests. The
// worker is forked before the judge reads anything and has none of its descriptors. It answers in a format of plain
// data, and the judge checks every byte. Nothing that the program writes becomes an object, a class or a name in the
// judge.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/io/json.h"

namespace hone {

// Returns the program text. Run it as `python3 -s -B -c HARNESS`, with the argument "exposed" if the worker may reach
// other processes through /proc or ptrace. Standard input is a harness_job(). Standard output is lines "NONCE fact"
// (read_harness_report). The output of tests and program is dropped.
std::string code_harness();

// Returns the bytes of a job, an object {nonce, program, stub, entry, setup, tests: [code], function, calls:
// [[arguments, expected]], defines: [names], classes: [names], imports: [lines], all}. `stub` is code of the task that
// the tests may use. `defines` lists the functions and classes of the reference solution, `classes` its classes,
// `imports` its import lines. `all` continues after a failed test.
std::string harness_job(const Json& job);

// The harness's output. The program cannot write to it; its text appears only in `note`.
struct HarnessReport {
  int64_t test = -1;                   // index of the last started test; 0 = the program itself, -1 = nothing started
  std::optional<int64_t> passed = {};  // number of passed tests after all have run
  std::string note = {};               // why the first failed test failed
  std::string failure = {};            // why the harness could not run the tests: they are not Python, for example
};
HarnessReport read_harness_report(std::string_view out, std::string_view nonce);

}  // namespace hone
