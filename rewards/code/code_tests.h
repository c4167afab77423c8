#pragma once
// Reads the tests of a programming task from the rows of common data sets, and the program from a completion.
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.h"
#include "data/sample.h"

namespace hone {

// The tests of a program: Python code (asserts), calls of a function, or texts for standard input with the expected
// output.
struct CodeTests {
  struct Case {
    std::string input, output;
  };
  std::string stub = {}, entry = {};      // code that the completion continues, and the function to define (HumanEval)
  std::string setup = {};                 // Python code that runs after the program and before the tests
  std::vector<std::string> asserts = {};  // Python, one test each
  std::vector<std::string> defines = {};  // functions and classes that the program must define; may be empty
  std::vector<std::string> classes = {};  // the classes among `defines`
  std::vector<std::string> imports = {};  // import lines of the reference solution
  std::string function = {};              // function of `calls`; a method if the program has a class Solution
  JsonArray calls = {};                   // [[arguments], expected]
  std::vector<Case> cases = {};
  size_t size() const { return asserts.size() + calls.size() + cases.size(); }
};

// Reads a row's columns:
//   prompt, entry_point, test                                     HumanEval: `test` defines check(candidate)
//   test_list (test_setup_code, test_imports, code, entry_point)  MBPP
//   inputs, outputs (fn_name)                                     APPS, LiveCodeBench, verl
// inputs and outputs stand in the row, or as JSON (text or object) in its column input_output, test_cases or tests, or
// in the task's answer. Throws an Error that names the task and the missing column.
CodeTests read_code_tests(const Task& task);

// Returns the program of a completion, after the stub if the task has one. Text up to the last </think>, or after a
// <think> without an end, is ignored. Of the code blocks between lines of ``` or ~~~ (an open block reaches to the end
// of the text), the last one, or the first, marked python, python3 or py is taken; without such a block, the last or
// first block without a language. A completion with only blocks of other languages gives "". Without any block the text
// itself is the program.
std::string program_text(std::string_view completion, const CodeTests& tests, bool first = false);

// Returns true if the output equals the expected one: the same words between white space. A number may be written in
// another way (1e3, 1000.0) if its value is exactly the same. If the expected number has a fraction, a difference of
// 1e-6 is accepted (relative, or absolute below 1).
bool same_output(std::string_view printed, std::string_view expected);

}  // namespace hone
