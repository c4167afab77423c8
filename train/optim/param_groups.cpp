#include "train/optim/param_groups.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "core/base/suggest.h"
#include "model/io/fused_experts.h"
#include "train/optim/tensor_parts.h"

namespace hone {
namespace {

bool is_regular_expression(const std::string& text) {
  return text.starts_with('.') || text.find_first_of("\\^$+()|{}") != std::string::npos;
}

// The glob as a regular expression.
std::string expression_of(const std::string& glob) {
  std::string out;
  for (size_t i = 0; i < glob.size(); ++i) {
    const char c = glob[i];
    const size_t close = c == '[' ? glob.find(']', i + 2) : std::string::npos;
    if (c == '*') {
      out += ".*";
    } else if (c == '?') {
      out += '.';
    } else if (close != std::string::npos) {
      std::string set = glob.substr(i + 1, close - i - 1);
      if (set.front() == '!') set.front() = '^';
      out += '[' + set + ']';
      i = close;
    } else {
      if (c == '.' || c == '[' || c == ']') out += '\\';
      out += c;
    }
  }
  return out;
}

std::vector<NamePattern> patterns_of(std::span<const ParamGroup> groups) {
  std::vector<NamePattern> out;
  for (const ParamGroup& group : groups) out.emplace_back(group.match);
  return out;
}

// The matrices of experts have two names: their own, and that of the tensor with all experts of a layer.
bool matches_tensor(const NamePattern& pattern, const std::string& name) {
  if (pattern.matches(name)) return true;
  const std::optional<std::string> fused = fused_expert_name(name);
  return fused && pattern.matches(*fused);
}

// The index of the first pattern that matches; their number if none does.
size_t group_of(const std::vector<NamePattern>& patterns, const std::string& name) {
  return static_cast<size_t>(
      std::ranges::find_if(patterns, [&](const NamePattern& pattern) { return matches_tensor(pattern, name); }) -
      patterns.begin());
}

// The names that a message may offer.
std::vector<std::string> with_fused_names(std::span<const std::string> names) {
  std::vector<std::string> out(names.begin(), names.end());
  std::set<std::string> fused;
  for (const std::string& name : names)
    if (const auto whole = fused_expert_name(name); whole && fused.insert(*whole).second) out.push_back(*whole);
  return out;
}

// Letters and digits only: q_proj and qproj are near.
std::string letters_of(const std::string& text) {
  std::string out;
  for (const char c : text)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) out += c;
  return out;
}

// The length of the longest piece of `word` that occurs in `text`; pieces of two letters say nothing.
size_t longest_shared(const std::string& word, const std::string& text) {
  for (size_t length = word.size(); length > 2; --length)
    for (size_t first = 0; first + length <= word.size(); ++first)
      if (text.find(word.substr(first, length)) != std::string::npos) return length;
  return 0;
}

// The names that share the longest pieces with the words of the pattern.
std::vector<std::string> near_names(const std::string& pattern, std::span<const std::string> names) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : pattern + ".") {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_') {
      word += c;
      continue;
    }
    words.push_back(letters_of(word));
    word.clear();
  }
  const auto shared = [&](const std::string& name) {
    size_t out = 0;
    for (const std::string& one : words) out += longest_shared(one, letters_of(name));
    return out;
  };
  std::vector<std::string> out(names.begin(), names.end());
  std::ranges::stable_sort(out, std::ranges::greater{}, shared);
  out.resize(std::min<size_t>(out.size(), 4));
  return out;
}

}  // namespace

NamePattern::NamePattern(const std::string& text) : is_glob_(!is_regular_expression(text)) {
  HONE_CHECK(!text.empty(), "match is empty: give a glob (\"*.bias\") or a regular expression (\"norm|bias$\")");
  try {
    expression_ = std::regex(is_glob_ ? expression_of(text) : text, std::regex::ECMAScript | std::regex::optimize);
  } catch (const std::regex_error& error) {  // says nothing about the pattern
    fail("match = '", text, "' is no ", is_glob_ ? "glob" : "regular expression", ": ", error.what());
  }
}

bool NamePattern::matches(const std::string& name) const {
  if (!is_glob_) return std::regex_search(name, expression_);
  const size_t dot = name.rfind('.');
  return std::regex_match(name, expression_) ||
         (dot != std::string::npos && std::regex_match(name.substr(0, dot), expression_));
}

void ParamGroup::fields(Fields& f) {
  f("match", match,
    "names of tensors, as in the model's safetensors: a glob for the whole name or its module (\"*.bias\", "
    "\"model.embed_tokens\"), or a regular expression that is searched in it (\"layers\\\\.[0-3]\\\\.\", "
    "\"norm|bias$\"); it is one if it has one of \\ ^ $ + ( ) | { } or begins with a dot");
  f("learning_rate_factor", learning_rate_factor, "learning rate as a multiple of the stage's; 0 = frozen");
  f("weight_decay", weight_decay,
    "weight decay of all tensors of the group; -1 = the optimizer's, which norms and biases do not have");
  if (f.reading()) {
    std::string problem;
    try {
      NamePattern{match};
    } catch (const Error& error) {  // gets the place of the key
      problem = error.what();
    }
    f.require("match", problem.empty(), problem);
  }
  f.require("learning_rate_factor", learning_rate_factor >= 0, "learning_rate_factor must not be negative");
  f.require("weight_decay", weight_decay >= 0 || weight_decay == -1, "weight_decay must be 0 or more, or -1");
}

void check_groups(std::span<const ParamGroup> groups, std::span<const std::string> names, const Problems& problems,
                  const std::string& key) {
  const std::vector<NamePattern> patterns = patterns_of(groups);
  std::vector<size_t> taken(groups.size() + 1);
  for (const std::string& name : names) ++taken[group_of(patterns, name)];
  for (size_t i = 0; i < groups.size(); ++i) {
    if (taken[i] > 0) continue;
    const bool matches =
        std::ranges::any_of(names, [&](const std::string& name) { return matches_tensor(patterns[i], name); });
    problems.add(concat(key, "[", i, "].match"),
                 matches ? concat("'", groups[i].match, "' takes no parameter: groups before it take all that it ",
                                  "matches; put it before them")
                         : concat("'", groups[i].match, "' matches no trained parameter; near it are ",
                                  join(near_names(groups[i].match, with_fused_names(names)))));
  }
}

std::vector<std::string> trained_names(std::span<Param* const> params) {
  std::vector<std::string> out;
  for (const Param* param : params)
    for (const Param::Slice& slice : param->slices)
      if (param->trainable) out.push_back(slice.name);
  return out;
}

std::vector<ParamPart> with_groups(std::span<const ParamPart> parts, std::span<const ParamGroup> groups) {
  std::vector<ParamPart> out;
  if (groups.empty()) return {parts.begin(), parts.end()};
  const std::vector<NamePattern> patterns = patterns_of(groups);
  for (const ParamPart& part : parts) {
    const int64_t last = part.first + part.value.size();
    size_t previous = groups.size() + 1;  // no group yet
    int64_t begin = 0;
    const int64_t row_size = part.param->shape.empty() ? 1 : part.param->num_elements() / part.param->shape[0];
    for (const Param::Slice& slice : part.param->slices) {
      const int64_t from = std::max(part.first, begin), to = std::min(last, begin + slice.rows * row_size);
      begin += slice.rows * row_size;
      if (from >= to) continue;
      const size_t group = group_of(patterns, slice.name);
      const int64_t count = to - from, at = from - part.first;
      if (group == previous) {
        ParamPart& longer = out.back();
        longer.value = part.value.rows(longer.first - part.first, longer.value.size() + count);
        longer.grad = part.grad.rows(longer.first - part.first, longer.value.size());
        continue;
      }
      previous = group;
      ParamPart& own = out.emplace_back(part);
      own.first = from;
      own.value = part.value.rows(at, count);
      own.grad = part.grad.rows(at, count);
      own.place = part.place + at;
      if (group == groups.size()) continue;
      own.learning_rate_factor = groups[group].learning_rate_factor;
      own.weight_decay = groups[group].weight_decay;
    }
  }
  return out;
}

}  // namespace hone
