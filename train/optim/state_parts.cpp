#include "train/optim/state_parts.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace hone {
namespace {

template <class... Words>
void require(bool fact, const Words&... words) {
  if (!fact) throw SectionTensorError(concat(words...));
}

struct PartName {
  std::string tensor;
  int64_t first = 0, last = -1;  // last < 0: the whole tensor
};

std::optional<int64_t> number(std::string_view text) {
  int64_t out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc{} && end == text.data() + text.size() && out >= 0 ? std::optional(out) : std::nullopt;
}

PartName parse(const std::string& name, const std::string& of) {
  const size_t open = name.rfind('[');
  if (!name.ends_with(']') || open == std::string::npos) return {.tensor = name};
  const std::string_view range = std::string_view(name).substr(open + 1, name.size() - open - 2);
  const size_t colon = range.find(':');
  require(colon != std::string_view::npos, of, ": ", name, " wants a range [first:last]");
  const std::optional<int64_t> first = number(range.substr(0, colon)), last = number(range.substr(colon + 1));
  require(first && last && *first < *last, of, ": ", name, " wants a range [first:last], first < last");
  return {name.substr(0, open), *first, *last};
}

}  // namespace

std::string part_name(const std::string& name, int64_t first, int64_t count, int64_t size) {
  return count == size ? name : concat(name, "[", first, ":", first + count, "]");
}

StateParts::StateParts(const StateSection& section, std::string of) : of_(std::move(of)) {
  for (const NamedTensor& named : section.tensors) {
    const PartName name = parse(named.name, of_);
    const bool whole = name.last < 0;
    const int64_t count = named.tensor.size();
    require(whole || name.last - name.first == count, of_, ": ", named.name, " has ", count, " numbers");
    parts_[name.tensor].push_back({name.first, named.tensor.view({count}), whole});
  }
  for (auto& [name, parts] : parts_) {
    std::ranges::sort(parts, {}, &Part::first);
    for (size_t i = 1; i < parts.size(); ++i)
      require(parts[i - 1].first + parts[i - 1].tensor.size() <= parts[i].first, of_, ": ", name, " has element ",
              parts[i].first, " twice");
  }
}

void StateParts::copy(Context& context, const std::string& name, int64_t first, int64_t size, Tensor out,
                      const char* dtype_key) const {
  const auto found = parts_.find(name);
  require(found != parts_.end(), of_, ": ", name, " is missing");
  const int64_t last = first + out.size();
  int64_t at = first;
  for (const Part& part : found->second) {
    const int64_t end = part.first + part.tensor.size();
    require(part.tensor.dtype == out.dtype, of_, ": ", name, " is ", name_of(part.tensor.dtype), ", and ",
            name_of(out.dtype), " is wanted: set ", dtype_key, " as it was in the run that saved the state");
    require(end <= size && (!part.whole || end == size), of_, ": ", name, " has ", end, " numbers, the parameter has ",
            size);
    const int64_t begin = std::max(at, part.first), stop = std::min(last, end);
    if (begin >= stop) continue;
    require(begin == at, of_, ": elements ", at, " to ", begin - 1, " of ", name, " are missing");
    context.copy(out.rows(begin - first, stop - begin), part.tensor.rows(begin - part.first, stop - begin));
    at = stop;
  }
  require(at == last, of_, ": elements ", at, " to ", last - 1, " of ", name, " are missing");
}

}  // namespace hone
