#include "core/io/checkpoint.h"

#include <zlib.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <regex>

#include "core/base/format.h"
#include "core/base/log.h"
#include "core/base/parallel_for.h"
#include "core/base/rank_thread.h"
#include "core/io/file.h"
#include "core/io/json.h"

namespace hone {
namespace fs = std::filesystem;
namespace {

constexpr const char* kManifest = "manifest.json";

// Of the bytes [first, first + count) of a file.
uLong crc32_of(const fs::path& path, int64_t first, int64_t count) {
  std::ifstream in(path, std::ios::binary);
  HONE_CHECK(in, path.string(), ": cannot open");
  in.seekg(first);
  std::vector<char> block(size_t{1} << 20);
  uLong crc = ::crc32(0, nullptr, 0);
  for (int64_t left = count; left > 0; left -= in.gcount()) {
    in.read(block.data(), static_cast<std::streamsize>(std::min(left, std::ssize(block))));
    HONE_CHECK(in.gcount() > 0, path.string(), ": cannot read");
    crc = ::crc32(crc, reinterpret_cast<const Bytef*>(block.data()), static_cast<uInt>(in.gcount()));
    note_progress();
  }
  return crc;
}

// All threads compute pieces: one would take minutes for the optimizer's states of a large model.
uint32_t crc32_of(const fs::path& path) {
  constexpr int64_t piece = int64_t{32} << 20;
  const auto size = static_cast<int64_t>(fs::file_size(path));
  const auto length = [&](int64_t p) { return std::min(piece, size - p * piece); };
  std::vector<uLong> crcs(static_cast<size_t>((size + piece - 1) / piece));
  parallel_for(std::ssize(crcs), 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) crcs[static_cast<size_t>(p)] = crc32_of(path, p * piece, length(p));
  });
  uLong out = ::crc32(0, nullptr, 0);
  for (int64_t p = 0; p < std::ssize(crcs); ++p)
    out = ::crc32_combine(out, crcs[static_cast<size_t>(p)], static_cast<z_off_t>(length(p)));
  return static_cast<uint32_t>(out);
}

// The step of a folder named step-N, or nothing.
std::optional<int64_t> step_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  if (!name.starts_with("step-")) return std::nullopt;
  int64_t step = 0;
  const char* const last = name.data() + name.size();
  const auto [end, error] = std::from_chars(name.data() + 5, last, step);
  return error == std::errc{} && end == last && name == concat("step-", step) ? std::optional(step) : std::nullopt;
}

fs::path folder_of(const fs::path& root, int64_t step) { return root / concat("step-", step); }
fs::path temporary_of(const fs::path& folder) { return folder.string() + ".tmp"; }

// Renames the folder before removing it: a kill halfway leaves no incomplete folder with a checkpoint's name.
void remove_checkpoint(const fs::path& folder) {
  const fs::path doomed = folder.string() + ".old.tmp";
  fs::remove_all(doomed);
  fs::rename(folder, doomed);
  fs::remove_all(doomed);
}

void write_manifest(const fs::path& folder) {
  std::vector<fs::path> files, folders{folder};
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    (entry.is_directory() ? folders : files).push_back(entry.path());
  std::sort(files.begin(), files.end());
  JsonObject listed;
  for (const fs::path& file : files) {
    sync_to_disk(file);
    listed.emplace_back(file.lexically_relative(folder).generic_string(),
                        JsonObject{{"bytes", static_cast<int64_t>(fs::file_size(file))},
                                   {"crc32", static_cast<int64_t>(crc32_of(file))}});
  }
  FileWriter writer(folder / kManifest);
  writer.write(Json(JsonObject{{"files", std::move(listed)}}).dump(2) + "\n");
  writer.sync();
  for (const fs::path& one : folders) sync_to_disk(one);
}

void prune(const fs::path& root, int keep_last) {
  std::vector<int64_t> steps = checkpoint_steps(root);
  steps.resize(steps.size() - std::min(steps.size(), static_cast<size_t>(keep_last)));
  for (const int64_t step : steps)
    if (!fs::exists(folder_of(root, step) / "keep")) remove_checkpoint(folder_of(root, step));
}

// Removes temporary folders that killed saves left behind.
void remove_temporaries(const fs::path& root) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(root))
    if (entry.path().filename().string().starts_with("step-") && entry.path().extension() == ".tmp")
      found.push_back(entry.path());
  for (const fs::path& path : found) fs::remove_all(path);
}

}  // namespace

CheckpointWriter::CheckpointWriter(fs::path root, int64_t step)
    : root_(std::move(root)), folder_(folder_of(root_, step)), temporary_(temporary_of(folder_)) {}

void CheckpointWriter::begin() const {
  make_folder(root_);
  try {
    remove_temporaries(root_);
    make_folder(temporary_);
    make_folder(temporary_ / "trainer");
  } catch (const std::exception& error) {  // becomes the cause
    give_up(error.what());
  }
}

void CheckpointWriter::write_section(const std::string& name, const Stateful& owner, SectionPart part) const {
  const fs::path folder = temporary_ / "trainer";
  StateSection section;
  owner.save_state(section);
  if (part.index == 0) {
    FileWriter writer(folder / (name + ".json"));
    writer.write(section.values.dump(1) + "\n");
    writer.flush();
  }
  const bool is_part = part.count > 1;
  if (section.tensors.empty() && !is_part) return;
  const std::string file = is_part
                               ? format_text("%s-%05d-of-%05d.safetensors", name.c_str(), part.index + 1, part.count)
                               : name + ".safetensors";
  write_safetensors(folder / file, section.tensors, {}, UINT64_MAX);
}

fs::path CheckpointWriter::commit(int keep_last) const {
  write_manifest(temporary_);
  if (fs::exists(folder_)) remove_checkpoint(folder_);
  fs::rename(temporary_, folder_);
  sync_to_disk(root_);
  try {
    if (keep_last > 0) prune(root_, keep_last);
  } catch (const fs::filesystem_error& error) {
    log::warning("an old checkpoint cannot be removed: ", error.what());
  }
  return folder_;
}

void CheckpointWriter::give_up(const std::string& cause) const {
  std::error_code ignored;
  fs::remove_all(temporary_, ignored);
  fail("checkpoint ", folder_.string(), " was not written (earlier checkpoints are unchanged): ", cause);
}

fs::path save_checkpoint(const fs::path& root, int64_t step, int keep_last,
                         const std::function<void(const fs::path&)>& fill,
                         const std::map<std::string, const Stateful*>& sections) {
  const CheckpointWriter writer(root, step);
  writer.begin();
  try {
    fill(writer.temporary());
    for (const auto& [name, owner] : sections) writer.write_section(name, *owner);
    return writer.commit(keep_last);
  } catch (const std::exception& error) {  // becomes the cause
    writer.give_up(error.what());
  }
}

std::vector<int64_t> checkpoint_steps(const fs::path& root) {
  std::vector<int64_t> out;
  if (!fs::is_directory(root)) return out;
  for (const auto& entry : fs::directory_iterator(root))
    if (const auto step = step_of(entry.path()); step && entry.is_directory()) out.push_back(*step);
  std::sort(out.begin(), out.end());
  return out;
}

void verify_checkpoint(const fs::path& folder) {
  const std::string source = (folder / kManifest).string();
  const Json manifest = parse_json(read_file(source), source);
  for (const auto& [name, facts] : manifest.at("files", source).as_object(source + ": files")) {
    const fs::path file = folder / name;
    const int64_t bytes = facts.at("bytes", source).as_int(source + ": bytes"),
                  crc = facts.at("crc32", source).as_int(source + ": crc32");
    HONE_CHECK(fs::is_regular_file(file), file.string(), ": the file is missing");
    HONE_CHECK(static_cast<int64_t>(fs::file_size(file)) == bytes, file.string(), ": ", fs::file_size(file), " bytes, ",
               bytes, " were written");
    HONE_CHECK(crc32_of(file) == crc, file.string(), ": altered since it was written (its checksum differs)");
  }
}

fs::path newest_checkpoint(const fs::path& root) {
  const std::vector<int64_t> steps = checkpoint_steps(root);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    fs::path folder = folder_of(root, *step);
    try {
      verify_checkpoint(folder);
      return folder;
    } catch (const Error& error) {
      log::warning("checkpoint ", folder.string(), " is refused: ", error.what());
    }
  }
  return {};
}

// The files with a section's tensors: NAME.safetensors, or the complete set NAME-00001-of-00004.safetensors, ..., of
// which each of four ranks wrote one.
static std::vector<fs::path> tensor_files(const fs::path& folder, const std::string& name) {
  std::vector<std::string> found;
  std::string count;  // of the set, as its files' names have it
  const std::regex part(R"((.+)-(\d{5})-of-(\d{5})\.safetensors)");
  std::smatch match;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string file = entry.path().filename().string();
    if (!std::regex_match(file, match, part) || match[1] != name) continue;
    HONE_CHECK(count.empty() || count == match[3], (folder / file).string(), ": belongs to another set than ",
               found.back());
    count = match[3];
    found.push_back(file);
  }
  const fs::path whole = folder / (name + ".safetensors");
  if (found.empty()) return fs::exists(whole) ? std::vector{whole} : std::vector<fs::path>();
  HONE_CHECK(!fs::exists(whole), whole.string(), ": the section is there twice: also as ", found.front());
  std::vector<fs::path> out;
  for (int i = 1; i <= std::stoi(count); ++i) {
    out.push_back(folder / format_text("%s-%05d-of-%s.safetensors", name.c_str(), i, count.c_str()));
    HONE_CHECK(fs::exists(out.back()), out.back().string(), ": the file is missing");
  }
  HONE_CHECK(out.size() == found.size(), folder.string(), ": ", found.size(), " files of section '", name, "' of ",
             out.size());
  return out;
}

// The files with a section's tensors, for messages.
static std::string tensor_files_text(const fs::path& folder, const std::string& name,
                                     const std::vector<fs::path>& files) {
  if (files.empty()) return (folder / (name + ".safetensors")).string() + ": the file is missing";
  return files.front().string() + (files.size() > 1 ? concat(" and ", files.size() - 1, " more") : "");
}

void load_sections(const fs::path& folder, const std::map<std::string, Stateful*>& sections) {
  for (const auto& [name, owner] : sections) {
    const fs::path values = folder / "trainer" / (name + ".json");
    HONE_CHECK(fs::exists(values), values.string(), ": the checkpoint has no section '", name, "'");
    StateSection section{parse_json(read_file(values, max_document_bytes), values.string()), {}};
    std::vector<SafetensorsReader> readers;
    const std::vector<fs::path> files = tensor_files(folder / "trainer", name);
    for (const fs::path& file : files) {
      readers.emplace_back(file);
      for (const std::string& one : readers.back().names()) section.tensors.push_back({one, readers.back().at(one)});
    }
    try {
      owner->load_state(section);
    } catch (const SectionTensorError& error) {
      fail(tensor_files_text(folder / "trainer", name, files), ": ", error.what());
    } catch (const Error& error) {
      fail(values.string(), ": ", error.what());
    }
  }
}

}  // namespace hone
