#include "rewards/code/code_tests.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "rewards/answers/text.h"

namespace hone {

namespace {

std::string text_of(const Json& row, const char* name, const std::string& where) {
  const Json* found = row.find(name);
  return !found || found->is_null() ? "" : found->as_string(where + "." + name);
}

// Joins a list of lines into one text.
std::string lines_of(const Json& value, const std::string& where) {
  if (!value.is_array()) return value.is_string() ? value.as_string() : value.dump();
  std::string out;
  for (const Json& line : value.as_array(where)) out += (line.is_string() ? line.as_string() : line.dump()) + "\n";
  return out;
}

// Returns the arguments of a call: an array, or a text with one JSON value per line.
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

// Reads the definitions and imports at the top level of the reference solution.
void read_reference(std::string_view code, CodeTests& out) {
  for (size_t begin = 0; begin < code.size();) {
    const size_t end = std::min(code.find('\n', begin), code.size());
    const std::string_view line = code.substr(begin, end - begin);
    begin = end + 1;
    if (line.starts_with("import ") || line.starts_with("from ")) out.imports.emplace_back(trimmed(line));
    if (!line.starts_with("def ") && !line.starts_with("class ")) continue;
    const std::string_view name = trimmed(line.substr(line.find(' ')));
    out.defines.emplace_back(name.substr(0, name.find_first_of("(: ")));
    if (line.starts_with("class ")) out.classes.push_back(out.defines.back());
  }
}

void read_pairs(const Json& from, const std::string& where, CodeTests& out) {
  const JsonArray& inputs = from.at("inputs", where).as_array(where + ".inputs");
  const JsonArray& outputs = from.at("outputs", where).as_array(where + ".outputs");
  HONE_CHECK(inputs.size() == outputs.size(), where, ": there are ", inputs.size(), " inputs and ", outputs.size(),
             " outputs");
  out.function = text_of(from, "fn_name", where);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (out.function.empty()) {
      out.cases.push_back({lines_of(inputs[i], where), lines_of(outputs[i], where)});
      continue;
    }
    const Json arguments = arguments_of(inputs[i], where);
    HONE_CHECK(arguments.is_array(), where, ".inputs[", i, "]: the arguments of a call are an array, not ",
               arguments.kind_name());
    const Json expected =
        outputs[i].is_string() && inputs[i].is_string() ? parse_json(outputs[i].as_string(), where) : outputs[i];
    out.calls.push_back(JsonArray{arguments, expected});
  }
}

// Returns the object with inputs and outputs: the row, one of its columns, or the answer.
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

// A number as written, without rounding: 0.digits * 10^exponent.
struct Written {
  bool negative = false, point = false;
  std::string digits = {};  // no zeros at either end; "" = zero
  int64_t exponent = 0;
  bool same_value(const Written& other) const {
    return negative == other.negative && digits == other.digits && exponent == other.exponent;
  }
  bool has_fraction() const { return point || static_cast<int64_t>(digits.size()) > exponent; }
};

std::optional<Written> written_number(std::string_view word) {
  Written out;
  if (word.starts_with('-')) {
    out.negative = true;
    word.remove_prefix(1);
  }
  const std::string_view mantissa = word.substr(0, word.find_first_of("eE"));
  if (mantissa.size() < word.size()) {
    std::string_view power = word.substr(mantissa.size() + 1);
    if (power.starts_with('+') && power.size() > 1 && is_digit(power[1])) power.remove_prefix(1);
    const auto [end, error] = std::from_chars(power.data(), power.data() + power.size(), out.exponent);
    if (error != std::errc() || end != power.data() + power.size()) return std::nullopt;
    if (out.exponent < -1'000'000 || out.exponent > 1'000'000) return std::nullopt;
  }
  bool any = false;
  for (const char c : mantissa) {
    if (c == '.' ? out.point : !is_digit(c)) return std::nullopt;
    if (c == '.') {
      out.point = true;
      continue;
    }
    any = true;
    if (c == '0' && out.digits.empty()) {
      out.exponent -= out.point;
      continue;
    }
    out.digits.push_back(c);
    out.exponent += !out.point;
  }
  if (!any) return std::nullopt;
  out.digits.erase(out.digits.find_last_not_of('0') + 1);
  if (out.digits.empty()) {
    out.negative = false;
    out.exponent = 0;
  }
  return out;
}

bool same_word(std::string_view printed, std::string_view expected) {
  if (printed == expected) return true;
  // Integers are compared as texts: 007 is not 7.
  if (printed.find_first_of(".eE") == std::string_view::npos && expected.find_first_of(".eE") == std::string_view::npos)
    return false;
  const std::optional<Written> got = written_number(printed), wanted = written_number(expected);
  if (!got || !wanted) return false;
  if (got->same_value(*wanted)) return true;
  if (!wanted->has_fraction()) return false;
  const auto value = [](std::string_view word) {
    double out = std::nan("");
    std::from_chars(word.data(), word.data() + word.size(), out);  // NaN if out of range
    return out;
  };
  const double x = value(printed), y = value(expected);
  return std::abs(x - y) <= 1e-6 * std::max(1.0, std::abs(y));
}

// A line of three or more ` or ~ that begins or ends a code block.
struct Fence {
  char mark = 0;
  size_t length = 0, indent = 0;
  std::string language = {};  // "" if it names none
  bool closes(const Fence& open) const { return language.empty() && matches(open); }
  bool matches(const Fence& open) const {
    return mark == open.mark && length >= open.length && indent <= open.indent + 3;
  }
};

std::optional<Fence> fence_of(std::string_view line) {
  Fence out;
  out.indent = std::min(line.find_first_not_of(" \t"), line.size());
  line.remove_prefix(out.indent);
  if (line.empty() || (line[0] != '`' && line[0] != '~')) return std::nullopt;
  out.mark = line[0];
  out.length = std::min(line.find_first_not_of(out.mark), line.size());
  const std::string_view info = trimmed(line.substr(out.length));
  if (out.length < 3 || (out.mark == '`' && info.find('`') != std::string_view::npos)) return std::nullopt;
  // ```python, ```Python title="x", ```{.python}, ```py:solution.py
  const size_t begin = info.find_first_not_of("{. ");
  if (begin == std::string_view::npos) return out;
  const size_t end = info.find_first_of(" \t,:;.}{", begin);
  out.language = lower(info.substr(begin, end == std::string_view::npos ? end : end - begin));
  return out;
}

struct CodeBlock {
  std::string language, text;
};

constexpr size_t two_fences = 6;  // marks

// Returns where the last line of six or more marks that closes a block begins; 0 if there is none.
size_t last_long_fence(std::string_view text) {
  size_t out = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::optional<Fence> fence = fence_of(text.substr(begin, end - begin));
    if (fence && fence->language.empty() && fence->length >= two_fences) out = begin;
    begin = end + 1;
  }
  return out;
}

// Returns the blocks of a text up to a <think> outside of blocks. Blocks inside a Markdown block count. A block may
// begin while another is open.
std::vector<CodeBlock> code_blocks(std::string_view text) {
  std::vector<CodeBlock> out;
  std::optional<Fence> open, wrapper;
  const size_t last_long = last_long_fence(text);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, std::min(end + 1, text.size()) - begin);
    begin = end + 1;
    std::optional<Fence> fence = fence_of(line);
    // "``````python" ends one block and begins the next, or its opening fence has doubled marks.
    if (fence && !fence->language.empty() && fence->length >= two_fences && last_long <= begin) {
      if (open && fence->mark == open->mark && fence->length >= 2 * open->length) open.reset();
      fence->length = two_fences / 2;
    }
    if (open && fence && fence->closes(*open)) {
      open.reset();
    } else if (fence && (!open || (!fence->language.empty() && fence->matches(*open)))) {
      if (wrapper && !open && fence->closes(*wrapper)) {
        wrapper.reset();
        continue;
      }
      out.push_back({.language = fence->language, .text = ""});
      const bool markdown = fence->language == "markdown" || fence->language == "md";
      (markdown ? wrapper : open) = fence;
    } else if (open) {
      // Removes the indentation of the fence, as in a list.
      out.back().text += line.substr(std::min({open->indent, line.find_first_not_of(" \t"), line.size()}));
    } else if (line.find("<think>") != std::string_view::npos) {
      break;
    }
  }
  return out;
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
    if (const Json* imports = row.find("test_imports"); imports && imports->is_array())
      out.setup = lines_of(*imports, task.id);
    out.setup += text_of(row, "test_setup_code", task.id);
    for (const Json& test : list->as_array(task.id + ".test_list"))
      out.asserts.push_back(test.as_string(task.id + ".test_list"));
    read_reference(text_of(row, "code", task.id), out);
    if (const std::string entry = text_of(row, "entry_point", task.id); out.defines.empty() && !entry.empty())
      out.defines = {entry};
  } else if (const std::optional<Json> pairs = pairs_of(task)) {
    read_pairs(*pairs, task.id, out);
  } else {
    fail(task.id,
         ": the row has no tests: 'prompt', 'entry_point' and 'test', or 'test_list', or 'inputs' and 'outputs' (in "
         "the row, in its column "
         "input_output, test_cases or tests, or as the answer)");
  }
  HONE_CHECK(out.size() > 0, task.id, ": the list of tests is empty");
  return out;
}

std::string program_text(std::string_view completion, const CodeTests& tests, bool first) {
  constexpr std::string_view thought = "</think>", thinking = "<think>";
  if (const size_t end = completion.rfind(thought); end != std::string_view::npos)
    completion.remove_prefix(end + thought.size());
  std::vector<CodeBlock> blocks = code_blocks(completion);
  if (blocks.empty()) {
    if (trimmed(completion).starts_with(thinking)) return "";
    const size_t opened = completion.find(concat("\n", thinking));
    return tests.stub + std::string(completion.substr(0, opened));
  }
  const auto is_python = [](const CodeBlock& block) {
    return block.language == "python" || block.language == "python3" || block.language == "py";
  };
  const bool marked = std::any_of(blocks.begin(), blocks.end(), is_python);
  std::erase_if(blocks, [&](const CodeBlock& block) {
    return (marked ? !is_python(block) : !block.language.empty()) || trimmed(block.text).empty();
  });
  if (blocks.empty()) return "";
  return tests.stub + (tests.stub.empty() ? "" : "\n") + (first ? blocks.front() : blocks.back()).text;
}

bool same_output(std::string_view printed, std::string_view expected) {
  const std::vector<std::string_view> a = words_of(printed), b = words_of(expected);
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same_word);
}

}  // namespace hone
