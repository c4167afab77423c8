#include "run/watch/run_list.h"

#include <algorithm>

#include "core/io/file.h"
#include "core/io/folder_lock.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

bool is_run(const fs::path& folder) {
  std::error_code ignored;
  for (const char* name : {"run.json", "metrics.jsonl", "recipe.toml"})
    if (fs::is_regular_file(folder / name, ignored)) return true;
  return false;
}

bool is_running(const fs::path& folder) {
  std::error_code missing;
  if (!fs::is_regular_file(folder / "lock", missing)) return false;
  return LockHolder::parse(read_beginning(folder / "lock", 4096)).is_alive();
}

int64_t int_or(const Json& object, const char* name, int64_t otherwise) {
  const Json* value = object.is_object() ? object.find(name) : nullptr;
  return value && value->is_number() ? static_cast<int64_t>(value->as_double()) : otherwise;
}

// The stages of the recipe, with what run.json knows about those that are done.
Json stages_of(const Json& state) {
  JsonArray out;
  const Json* recipe = state.find("recipe");
  const Json* planned = recipe && recipe->is_object() ? recipe->find("stage") : nullptr;
  const Json* done = state.find("stages");
  const size_t num_done = done && done->is_array() ? done->as_array().size() : 0;
  int64_t first_step = 0;
  const size_t count = std::max(num_done, planned && planned->is_array() ? planned->as_array().size() : size_t{0});
  for (size_t i = 0; i < count; ++i) {
    const Json& stage = i < num_done ? done->as_array()[i] : planned->as_array()[i];
    Json row = JsonObject{};
    for (const char* member : {"name", "kind"})
      if (const Json* text = stage.is_object() ? stage.find(member) : nullptr; text && text->is_string())
        row.set(member, *text);
    const int64_t steps = i < num_done ? int_or(stage, "planned_steps", int_or(stage, "steps", 0)) : 0;
    row.set("steps", i < num_done ? steps : int_or(stage, "steps", 0));
    row.set("done", i < num_done);
    row.set("first_step", first_step);
    first_step += steps;
    out.push_back(std::move(row));
  }
  return out;
}

}  // namespace

void RunList::add(const fs::path& source) {
  const std::lock_guard lock(mutex_);
  sources_.push_back(source);
}

void RunList::add_run(const fs::path& folder) {
  std::error_code ignored;
  const fs::path whole = fs::weakly_canonical(folder, ignored);
  if (runs_.size() >= max_runs || numbers_.contains(whole)) return;
  numbers_[whole] = runs_.size();
  runs_.push_back({.folder = whole});
}

// Runs of one scan are numbered by name, so that colors do not depend on the order of a directory.
void RunList::scan() {
  std::vector<fs::path> found;
  for (const fs::path& source : sources_) {
    if (is_run(source)) {
      found.push_back(source);
      continue;
    }
    std::vector<fs::path> below;
    std::error_code problem;
    for (auto entry = fs::directory_iterator(source, problem); !problem && entry != fs::directory_iterator();
         entry.increment(problem))
      if (is_run(entry->path())) below.push_back(entry->path());
    std::ranges::sort(below);
    found.insert(found.end(), below.begin(), below.end());
  }
  for (const fs::path& folder : found) add_run(folder);
}

// A file that is being replaced or is not whole leaves the facts as they were.
void RunList::read_facts(Entry& entry) {
  const fs::path path = entry.folder / "run.json";
  std::error_code missing;
  const fs::file_time_type time = fs::last_write_time(path, missing);
  if (missing || time == entry.time) return;
  try {
    const Json state = parse_json(read_file(path), path.string());
    const int64_t done = int_or(state, "stages_done", 0), count = int_or(state, "num_stages", -1);
    entry.facts = JsonObject{{"stages", stages_of(state)}, {"stages_done", done}};
    for (const char* member : {"name", "about"})
      if (const Json* value = state.find(member)) entry.facts.set(member, *value);
    entry.finished = done == count;
    entry.time = time;
  } catch (const Error&) {}
}

// The folder's name, with its parent's if another run has the same.
std::string RunList::shown_name(const Entry& entry) const {
  const std::string name = entry.folder.filename().string();
  const auto same = [&](const Entry& other) { return &other != &entry && other.folder.filename() == name; };
  return std::ranges::any_of(runs_, same) ? (entry.folder.parent_path().filename() / name).string() : name;
}

Json RunList::describe() {
  const std::lock_guard lock(mutex_);
  scan();
  JsonArray out;
  for (size_t id = 0; id < runs_.size(); ++id) {
    Entry& entry = runs_[id];
    std::error_code missing;
    if (!fs::is_directory(entry.folder, missing)) continue;
    read_facts(entry);
    const bool running = is_running(entry.folder);
    Json row = entry.facts;
    row.set("id", static_cast<int64_t>(id));
    row.set("name", shown_name(entry));
    row.set("path", entry.folder.string());
    row.set("state", running ? "running" : entry.finished ? "finished" : "stopped");
    out.push_back(std::move(row));
  }
  return JsonObject{{"runs", std::move(out)}};
}

std::optional<fs::path> RunList::folder(size_t id) {
  const std::lock_guard lock(mutex_);
  return id < runs_.size() ? std::optional(runs_[id].folder) : std::nullopt;
}

Json RunList::recipe(const fs::path& folder) {
  const fs::path path = folder / "run.json";
  std::error_code missing;
  if (!fs::is_regular_file(path, missing)) return {};
  const Json state = parse_json(read_file(path), path.string());
  const Json* recipe = state.find("recipe");
  return recipe ? *recipe : Json();
}

}  // namespace hone
