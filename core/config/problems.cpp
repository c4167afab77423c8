#include "core/config/problems.h"

#include <algorithm>
#include <optional>

namespace hone {

Problems::Problems(std::shared_ptr<const Config> document)
    : document_(std::move(document)), list_(std::make_shared<std::vector<std::string>>()) {}

Problems Problems::table(std::string path, std::string label) const {
  Problems out = *this;
  out.path_ = std::move(path);
  out.label_ = std::move(label);
  return out;
}

Problems Problems::below(std::string_view path, std::string_view label) const {
  return table(concat(path_, path_.empty() || path.empty() ? "" : ".", path), concat(label_, label));
}

void Problems::add(std::string_view key, std::string_view message) const {
  const std::string whole = path_ + (path_.empty() || key.empty() ? "" : ".") + std::string(key);
  // A message about the document itself has its place already.
  const bool has_place = document_ && message.starts_with(document_->source() + ":");
  const std::string place = has_place ? "" : document_ ? document_->place_of(whole) : whole;
  add_line(concat(place, place.empty() ? "" : ": ", label_, message));
}

void Problems::add_line(std::string problem) const {
  if (std::ranges::find(*list_, problem) == list_->end()) list_->push_back(std::move(problem));
}

void Problems::attempt(std::string_view key, const std::function<void()>& check) const {
  try {
    check();
  } catch (const TextError& error) {
    const std::optional<std::string> place = document_ ? document_->place_of_text(path_, error.text()) : std::nullopt;
    if (!place) return add(key, error.what());
    // Every file may have a row that the text does not fit. The first is enough.
    const auto is_here = [&](const std::string& problem) { return problem.starts_with(*place + ": "); };
    if (std::ranges::none_of(*list_, is_here)) add_line(concat(*place, ": ", label_, error.what()));
  } catch (const Error& error) {  // becomes one of the problems
    add(key, error.what());
  }
}

void Problems::throw_if_any() const {
  if (list_->empty()) return;
  if (list_->size() == 1) throw Error(list_->front());
  std::string out = concat(list_->size(), " problems:");
  for (const std::string& problem : *list_) out += "\n  " + problem;
  throw Error(out);
}

}  // namespace hone
