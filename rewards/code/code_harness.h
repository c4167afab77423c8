#pragma once
// The Python program that judges a program by tests which are Python themselves (code_values.py, code_worker.py,
// code_judge.py). It is two processes: a judge that runs the tests, and a worker that runs what the model wrote and
// answers the judge's questions. The worker is forked before the judge has read anything and has none of its
// descriptors. It answers in a format that says plain data alone, whose every byte the judge checks: nothing that a
// program writes becomes an object, a class or a name in the judge.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/io/json.h"

namespace hone {

// Run as `python3 -s -B -c HARNESS`, with the argument "exposed" where the worker might reach other processes by /proc
// or ptrace. Standard input is a harness_job(). Standard output is lines of "NONCE fact" (read_harness_report). What
// tests and program print is dropped.
std::string code_harness();

// The bytes of a job, an object {nonce, program, stub, entry, setup, tests: [code], function, calls: [[arguments,
// expected]], defines: [names], classes: [names], imports: [lines], all}. `stub` is code of the task that the tests may
// use. `defines` are the functions and classes of the reference solution, `classes` those that are classes, `imports`
// its imports. With `all` judging goes on after a test that fails.
std::string harness_job(const Json& job);

// What the harness printed. The program cannot print here, and none of its text is taken for more than a note.
struct HarnessReport {
  int64_t test = -1;                   // the last that began; 0 = the program itself, -1 = not even that
  std::optional<int64_t> passed = {};  // tests, once they are over
  std::string note = {};               // why the first other one did not pass
  std::string failure = {};            // why the harness could not judge: tests that are not Python, say
};
HarnessReport read_harness_report(std::string_view out, std::string_view nonce);

}  // namespace hone
