#pragma once
// The tests of a programming task, as rows of the usual data sets spell them, and the program in a reply.
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.h"
#include "data/sample.h"

namespace hone {

// What a program must do. Tests are Python code (asserts), calls of a function, or texts for standard input and what is
// to be printed.
struct CodeTests {
  struct Case {
    std::string input, output;
  };
  std::string stub = {}, entry = {};  // code that the reply goes on with, and the function it is to define (HumanEval)
  std::string setup = {};             // Python, before the tests and after the program
  std::vector<std::string> asserts = {};  // Python, one test each
  std::vector<std::string> defines =
      {};  // what the program is to define: the row's function or what its reference solution defines; may be empty
  std::vector<std::string> classes = {};  // those of them that are classes
  std::vector<std::string> imports = {};  // lines of the reference solution that import
  std::string function = {};              // of calls; a method if the program has a class Solution
  JsonArray calls = {};                   // [[arguments], expected]
  std::vector<Case> cases = {};
  size_t size() const { return asserts.size() + calls.size() + cases.size(); }
};

// Reads a row's columns:
//   prompt, entry_point, test                            HumanEval: `test` defines check(candidate)
//   test_list (test_setup_code, test_imports, code, entry_point)  MBPP
//   inputs, outputs (fn_name)                            APPS, LiveCodeBench, verl: in the row, or as JSON (text or
//   object) in its column
//                                                        input_output, test_cases or tests, or in the task's answer
// An Error names the task and what is missing.
CodeTests read_code_tests(const Task& task);

// The program of a reply, behind the stub where the task has one. A thinking part, up to the last </think> or from a
// <think> that nothing closes, holds none. Of the blocks between lines of ``` or ~~~ (one that nothing closes goes to
// the end) it is the last, or the first, that is marked python, python3 or py; without such a one, of those without a
// language. Blocks of other languages alone are no program: the result is "". Without any block it is the text as it
// is.
std::string program_text(std::string_view reply, const CodeTests& tests, bool first = false);

// What was printed is what is expected: the same words between white space. A word that is a number may be written in
// another way (1e3, 1000.0) if its value is exactly the same; where the expected one has a fraction, within 1e-6
// (relative, or absolute below 1).
bool same_output(std::string_view printed, std::string_view expected);

}  // namespace hone
