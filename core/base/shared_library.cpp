#include "core/base/shared_library.h"

#include <dlfcn.h>
#include <link.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "core/base/check.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> folders_of(const std::string& variable) {
  std::vector<std::string> out;
  const char* value = variable.empty() ? nullptr : std::getenv(variable.c_str());
  if (!value) return out;
  std::istringstream text(value);
  for (std::string folder; std::getline(text, folder, ':');)
    if (!folder.empty()) out.push_back(folder);
  return out;
}

// Candidates for dlopen in the order of the search. A name without a slash is searched by the dynamic loader.
std::vector<std::string> candidates_of(const LibraryRequest& request) {
  std::vector<std::string> out;
  for (const std::string& file : request.files) {
    for (const std::string& folder : folders_of(request.folders_variable)) out.push_back(fs::path(folder) / file);
    out.push_back(file);
    for (const std::string& folder : request.folders) out.push_back(fs::path(folder) / file);
  }
  return out;
}

std::string file_of(void* handle, const std::string& opened) {
  const link_map* map = nullptr;
  if (::dlinfo(handle, RTLD_DI_LINKMAP, static_cast<void*>(&map)) != 0 || !map || !map->l_name) return opened;
  return map->l_name;
}

bool exists(const std::string& path) {
  std::error_code unknown;
  return path.find('/') != std::string::npos && fs::exists(path, unknown);
}

// The loader's reason for a name without a path. It is worth telling if the library was found and another is missing.
bool found_but_unusable(const std::string& candidate, const std::string& reason) {
  return exists(candidate) || !reason.starts_with(candidate + ":");
}

}  // namespace

SharedLibrary::SharedLibrary(const LibraryRequest& request) : name_(request.name) {
  std::string unusable;
  for (const std::string& candidate : candidates_of(request)) {
    if (candidate.find('/') != std::string::npos && !exists(candidate)) continue;
    handle_ = ::dlopen(candidate.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (handle_) {
      path_ = file_of(handle_, candidate);
      return;
    }
    const char* error = ::dlerror();
    const std::string reason = error ? error : "unknown error";
    if (unusable.empty() && found_but_unusable(candidate, reason)) unusable = reason;
  }
  HONE_CHECK(unusable.empty(), name_, " cannot be loaded: ", unusable, request.advice);
  std::string searched;
  for (const std::string& folder : request.folders) searched += ", " + folder;
  fail(name_, " is missing: ", request.files.front(), " is in none of the system's library folders",
       searched.empty() ? "" : " and none of " + searched.substr(2), request.advice);
}

void* SharedLibrary::address_of(const char* symbol) const {
  void* address = ::dlsym(handle_, symbol);
  HONE_CHECK(address, path_, ": it has no function ", symbol, "; it is not the version of ", name_,
             " that this program was built for");
  return address;
}

std::vector<std::string> cuda_library_folders() {
  std::vector<std::string> out;
  for (const char* variable : {"CUDA_PATH", "CUDA_HOME"})
    if (const char* root = std::getenv(variable); root && *root) out.push_back(fs::path(root) / "lib64");
  std::error_code unknown;
  const fs::path program = fs::read_symlink("/proc/self/exe", unknown);
  if (!program.empty())
    for (const char* folder : {"lib/hone", "lib"}) out.push_back(program.parent_path().parent_path() / folder);
  for (const char* folder : {"/usr/local/cuda/lib64", "/opt/cuda/lib64"}) out.emplace_back(folder);
  return out;
}

}  // namespace hone
