#pragma once
// The Python program that judges a program by tests which are Python themselves. It is two processes: a judge that runs the tests, and a worker that
// runs what the model wrote and answers the judge's calls. The worker is forked before the judge has read anything, has no descriptor of the judge's,
// and answers with plain data (numbers, texts, lists, ...) that the judge reads without building any other object. So a program cannot see the tests,
// change them, end them early, or hand out an object that is equal to everything.
#include <string_view>

namespace hone {

// Run as `python3 -s -B -c HARNESS`. Standard input is a JSON object {nonce, solution, stub, entry, setup, tests: [code], function,
// calls: [[arguments, expected]], defines: [names], all}. `stub` is code of the task that the tests may use; `defines` are Python's own names that
// the program may take; `all` goes on after a test that fails. Standard output is lines "NONCE {...}": {"test": i} before the i-th test begins, and
// at the end {"passed", "total", "note"}; what tests and program print is dropped.
std::string_view code_harness();

}  // namespace hone
