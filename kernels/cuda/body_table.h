#pragma once
// Which CUDA bodies of an op run on which GPU, as text. Every build has this file.
#include "kernels/cuda/limits.h"
#include "kernels/op.h"

namespace hone {

// Names of the CUDA bodies that a device with these limits may run, in the order in which a call tries them.
std::vector<std::string> cuda_bodies_for(std::span<const OpBase::BodyInfo> bodies, const DeviceLimits& limits,
                                         CudaBodies choice);

// One line per group of capabilities that have the same bodies: "9.0: sm90, mma, plain". Empty without CUDA bodies.
std::vector<std::string> cuda_body_lines(std::span<const OpBase::BodyInfo> bodies, CudaBodies choice);

// Which bodies a device with these limits runs, and why not the others: "the portable bodies
// (HONE_CUDA_BODIES=portable)".
std::string bodies_text(const DeviceLimits& limits, CudaBodies choice);

// One line about a GPU: name, capability, and bodies_text().
std::string device_line(int index, const DeviceLimits& limits, CudaBodies choice);

}  // namespace hone
