#include <cuda_runtime_api.h>

#include "core/base/log.h"
#include "core/base/shared_library.h"
#include "core/device/device_library.h"
#include "kernels/gemm/cublaslt_library.h"

namespace hone {
namespace {

// NVIDIA's packages have the toolkit's version in their names: libcublas-13-0.
std::string advice() {
  return concat(
      "; training on a GPU needs it for gradients (generation, serving and evaluation do not): install "
      "NVIDIA's package libcublas-",
      CUDART_VERSION / 1000, "-", CUDART_VERSION % 1000 / 10,
      ", set HONE_CUDA_LIBRARIES to the folder that has it, or train with device = \"cpu\"");
}

std::string soname(int major) { return concat("libcublasLt.so.", major); }

struct Loaded {
  SharedLibrary library;
  CublasLt functions;
  int64_t version = 0;
};

// The soname of the header's major version first. Another one is opened too, so that the message says what is there.
LibraryRequest request() {
  LibraryRequest out{.name = concat("cuBLASLt ", CUBLAS_VER_MAJOR),
                     .files = {soname(CUBLAS_VER_MAJOR)},
                     .folders_variable = "HONE_CUDA_LIBRARIES",
                     .folders = cuda_library_folders(),
                     .advice = advice()};
  for (const int other : {CUBLAS_VER_MAJOR + 1, CUBLAS_VER_MAJOR - 1}) out.files.push_back(soname(other));
  return out;
}

Loaded load() {
  Loaded out{.library = SharedLibrary(request()), .functions = {}};
  CublasLt& f = out.functions;
  out.library.find(f.get_version, "cublasLtGetVersion");
  out.version = static_cast<int64_t>(f.get_version());
  HONE_CHECK(out.version / 10000 == CUBLAS_VER_MAJOR, "cuBLASLt ", nvidia_version_text(out.version), " is at ",
             out.library.path(), ", and this program was built for cuBLASLt ", CUBLAS_VER_MAJOR, advice());
  out.library.find(f.get_status_name, "cublasLtGetStatusName");
  out.library.find(f.create, "cublasLtCreate");
  out.library.find(f.matmul_desc_init, "cublasLtMatmulDescInit_internal");
  out.library.find(f.matrix_layout_init, "cublasLtMatrixLayoutInit_internal");
  out.library.find(f.preference_init, "cublasLtMatmulPreferenceInit_internal");
  out.library.find(f.set_matmul_desc, "cublasLtMatmulDescSetAttribute");
  out.library.find(f.set_preference, "cublasLtMatmulPreferenceSetAttribute");
  out.library.find(f.get_heuristic, "cublasLtMatmulAlgoGetHeuristic");
  out.library.find(f.matmul, "cublasLtMatmul");
  return out;
}

// A failed load is tried again at the next call.
const Loaded& loaded() {
  static const Loaded& library = *new Loaded(load());  // never destroyed: its handles live as long as the process
  return library;
}

[[maybe_unused]] const bool added = device_libraries().add(
    "cuBLASLt", {.trains = true, .used_for = "gradients on a GPU, and numerics = \"fast\"", .load = [] {
                   return concat(nvidia_version_text(loaded().version), " at ", loaded().library.path());
                 }});

}  // namespace

const CublasLt& cublaslt() { return loaded().functions; }

const CublasLt* cublaslt_if_present() {
  static const CublasLt* const found = []() -> const CublasLt* {
    try {
      return &cublaslt();
    } catch (const Error& error) {  // the caller has another body
      log::warning(error.what(), "; until then numerics = \"fast\" uses the exact kernels");
      return nullptr;
    }
  }();
  return found;
}

}  // namespace hone
