#pragma once
// The tests of a programming task, as rows of the usual data sets spell them, and the program in a reply.
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/sample.h"

namespace hone {

// What a program must do. Tests are Python code (asserts), calls of a function, or texts for standard input and what is to be printed.
struct CodeTests {
  struct Case {
    std::string input, output;
  };
  std::string stub = {}, entry = {};      // code that the reply goes on with, and the function it is to define (HumanEval)
  std::string setup = {};                 // Python, before the tests and after the program
  std::vector<std::string> asserts = {};  // Python, one test each
  std::vector<std::string> defines = {};  // functions and classes of the reference solution, where the row has one
  std::string function = {};              // of calls; a method if the program has a class Solution
  JsonArray calls = {};                   // [[arguments], expected]
  std::vector<Case> cases = {};
  size_t size() const { return asserts.size() + calls.size() + cases.size(); }
};

// Reads a row's columns:
//   prompt, entry_point, test                            HumanEval: `test` defines check(candidate)
//   test_list (test_setup_code, test_imports, code)      MBPP
//   inputs, outputs (fn_name)                            APPS, LiveCodeBench, verl: in the row, or as JSON (text or object) in its column
//                                                        input_output, test_cases or tests, or in the task's answer
// An Error names the task and what is missing.
CodeTests read_code_tests(const Task& task);

// The program of a reply: the last block between lines of ``` (to the end where it is not closed), else the text as it is; behind the stub, where the
// task has one.
std::string program_text(std::string_view reply, const CodeTests& tests);

// What was printed is what is expected: the same words between spaces and ends of lines, numbers with a fraction or an exponent
// within 1e-6 (relative, or absolute below 1).
bool same_output(std::string_view printed, std::string_view expected);

}  // namespace hone
