#include "rewards/code_tests.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "rewards/text.h"

namespace hone {

namespace {

std::string text_of(const Json& row, const char* name, const std::string& where) {
  const Json* found = row.find(name);
  return !found || found->is_null() ? "" : found->as_string(where + "." + name);
}

// Lines given one by one are one text.
std::string lines_of(const Json& value, const std::string& where) {
  if (!value.is_array()) return value.is_string() ? value.as_string() : value.dump();
  std::string out;
  for (const Json& line : value.as_array(where)) out += (line.is_string() ? line.as_string() : line.dump()) + "\n";
  return out;
}

// Arguments of a call: an array, or a text with one JSON value a line.
Json arguments_of(const Json& value, const std::string& where) {
  if (!value.is_string()) return value;
  JsonArray out;
  const std::string& text = value.as_string();
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (const std::string_view line = trimmed(std::string_view(text).substr(begin, end - begin)); !line.empty())
      out.push_back(parse_json(line, where));
    begin = end + 1;
  }
  return out;
}

// Names that code defines at its top level.
std::vector<std::string> defined_in(std::string_view code) {
  std::vector<std::string> out;
  for (size_t begin = 0; begin < code.size();) {
    const size_t end = std::min(code.find('\n', begin), code.size());
    std::string_view line = code.substr(begin, end - begin);
    begin = end + 1;
    if (!line.starts_with("def ") && !line.starts_with("class ")) continue;
    line = trimmed(line.substr(line.find(' ')));
    out.emplace_back(line.substr(0, line.find_first_of("(: ")));
  }
  return out;
}

void read_pairs(const Json& from, const std::string& where, CodeTests& out) {
  const JsonArray& inputs = from.at("inputs", where).as_array(where + ".inputs");
  const JsonArray& outputs = from.at("outputs", where).as_array(where + ".outputs");
  HONE_CHECK(inputs.size() == outputs.size(), where, ": there are ", inputs.size(), " inputs and ", outputs.size(), " outputs");
  out.function = text_of(from, "fn_name", where);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (out.function.empty()) {
      out.cases.push_back({lines_of(inputs[i], where), lines_of(outputs[i], where)});
      continue;
    }
    const Json arguments = arguments_of(inputs[i], where);
    HONE_CHECK(arguments.is_array(), where, ".inputs[", i, "]: the arguments of a call are an array, not ", arguments.kind_name());
    const Json expected = outputs[i].is_string() && inputs[i].is_string() ? parse_json(outputs[i].as_string(), where) : outputs[i];
    out.calls.push_back(JsonArray{arguments, expected});
  }
}

// The object with inputs and outputs: the row itself, a column of it, or the answer.
std::optional<Json> pairs_of(const Task& task) {
  if (task.columns.find("inputs") && task.columns.find("outputs")) return task.columns;
  for (const char* name : {"input_output", "test_cases", "tests"}) {
    const Json* column = task.columns.find(name);
    if (column && column->is_string()) return parse_json(column->as_string(), task.id + ": " + name);
    if (column && column->is_object()) return *column;
  }
  if (trimmed(task.answer).starts_with('{')) return parse_json(task.answer, task.id + ": answer");
  return std::nullopt;
}

bool same_word(std::string_view a, std::string_view b) {
  if (a == b) return true;
  if (a.find_first_of(".eE") == std::string_view::npos && b.find_first_of(".eE") == std::string_view::npos) return false;
  double x = 0, y = 0;
  const auto read = [](std::string_view word, double& out) {
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), out);
    return error == std::errc() && stop == word.data() + word.size() && std::isfinite(out);
  };
  return read(a, x) && read(b, y) && std::abs(x - y) <= 1e-6 * std::max(1.0, std::abs(y));
}

}  // namespace

CodeTests read_code_tests(const Task& task) {
  CodeTests out;
  const Json& row = task.columns;
  if (row.find("entry_point") && row.find("test")) {
    out.stub = text_of(row, "prompt", task.id);
    out.entry = text_of(row, "entry_point", task.id);
    out.asserts = {text_of(row, "test", task.id) + "\ncheck(" + out.entry + ")\n"};
  } else if (const Json* list = row.find("test_list")) {
    if (const Json* imports = row.find("test_imports"); imports && imports->is_array()) out.setup = lines_of(*imports, task.id);
    out.setup += text_of(row, "test_setup_code", task.id);
    for (const Json& test : list->as_array(task.id + ".test_list")) out.asserts.push_back(test.as_string(task.id + ".test_list"));
    out.defines = defined_in(text_of(row, "code", task.id));
  } else if (const std::optional<Json> pairs = pairs_of(task)) {
    read_pairs(*pairs, task.id, out);
  } else {
    fail(task.id,
         ": the row has no tests: 'prompt', 'entry_point' and 'test', or 'test_list', or 'inputs' and 'outputs' (in the row, in its column "
         "input_output, test_cases or tests, or as the answer)");
  }
  HONE_CHECK(out.size() > 0, task.id, ": the list of tests is empty");
  return out;
}

std::string program_text(std::string_view reply, const CodeTests& tests) {
  std::string_view block;
  bool found = false, open = false;
  size_t block_begin = 0;
  for (size_t begin = 0; begin < reply.size();) {
    const size_t end = std::min(reply.find('\n', begin), reply.size());
    if (trimmed(reply.substr(begin, end - begin)).starts_with("```")) {
      if (open)
        block = reply.substr(block_begin, begin - block_begin);
      else
        block_begin = std::min(end + 1, reply.size());
      found = true;
      open = !open;
    }
    begin = end + 1;
  }
  if (open) block = reply.substr(block_begin);
  if (!found) return tests.stub + std::string(reply);
  return tests.stub + (tests.stub.empty() ? "" : "\n") + std::string(block);
}

bool same_output(std::string_view printed, std::string_view expected) {
  const std::vector<std::string_view> a = words_of(printed), b = words_of(expected);
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same_word);
}

}  // namespace hone
