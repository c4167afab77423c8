#pragma once
// Shared libraries that the program loads when it first needs them. So it starts on machines without them, and an Error
// says which library is missing, what needs it, and where to get it.
#include <memory>
#include <string>
#include <vector>

namespace hone {

struct LibraryRequest {
  std::string name;                       // for people: "cuBLASLt 13"
  std::vector<std::string> files;         // sonames, the best first: "libcublasLt.so.13"
  std::string folders_variable = {};      // environment variable of folders, separated by ':', searched first
  std::vector<std::string> folders = {};  // searched after the folders of the dynamic loader
  std::string advice = {};                // end of the message: what needs the library, and where to get it
};

// A loaded library. It stays loaded until the process ends: CUDA's libraries do not survive their unloading.
class SharedLibrary {
 public:
  // Opens the first file that loads. The order is: folders of the variable; the dynamic loader's (rpath of the program,
  // LD_LIBRARY_PATH, the system's); request.folders. Throws Error if none does; a file that exists and does not load is
  // named with the loader's reason.
  explicit SharedLibrary(const LibraryRequest& request);
  const std::string& path() const { return path_; }  // of the file
  // Sets `function` to the library's function `symbol`. Throws Error if the library does not export it.
  template <class Function>
  void find(Function*& function, const char* symbol) const {
    function = reinterpret_cast<Function*>(address_of(symbol));
  }

 private:
  void* address_of(const char* symbol) const;

  std::string name_, path_;
  void* handle_ = nullptr;
};

// The folders that CUDA's own installers use, of $CUDA_PATH and $CUDA_HOME first, and those beside the program
// (../lib/hone, ../lib).
std::vector<std::string> cuda_library_folders();

}  // namespace hone
