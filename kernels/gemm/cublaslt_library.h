#pragma once
// The functions of cuBLASLt that hone calls, from a library that is loaded at the first call. Types and constants come
// from the header at build time. A library of another major version is refused.
#include <cublasLt.h>

namespace hone {

struct CublasLt {
  decltype(&cublasLtGetVersion) get_version = nullptr;
  decltype(&cublasLtGetStatusName) get_status_name = nullptr;
  decltype(&cublasLtCreate) create = nullptr;
  // Inline functions of the header (cublasLtMatmulDescInit, ...) add the size of the object to a call of these.
  decltype(&cublasLtMatmulDescInit_internal) matmul_desc_init = nullptr;
  decltype(&cublasLtMatrixLayoutInit_internal) matrix_layout_init = nullptr;
  decltype(&cublasLtMatmulPreferenceInit_internal) preference_init = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) set_matmul_desc = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) get_heuristic = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
};

// Throws Error if the library is missing or has another major version.
const CublasLt& cublaslt();
// Null if the library cannot be used. The first call then logs why.
const CublasLt* cublaslt_if_present();

}  // namespace hone
