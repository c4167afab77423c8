#include "kernels/cuda/body_table.h"

#include <utility>

#include "core/base/check.h"

namespace hone {
namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += concat(out.empty() ? "" : ", ", word);
  return out;
}

}  // namespace

std::vector<std::string> cuda_bodies_for(std::span<const OpBase::BodyInfo> bodies, const DeviceLimits& limits,
                                         CudaBodies choice) {
  std::vector<std::string> out;
  for (const OpBase::BodyInfo& body : bodies)
    if (body.device == DeviceKind::cuda && cuda_body_runs(body.name, limits, choice)) out.emplace_back(body.name);
  return out;
}

std::vector<std::string> cuda_body_lines(std::span<const OpBase::BodyInfo> bodies, CudaBodies choice) {
  // Groups in the order of their first capability: bodies, capabilities.
  std::vector<std::pair<std::string, std::string>> groups;
  for (const int capability : cuda_capabilities()) {
    const std::string names = joined(cuda_bodies_for(bodies, DeviceLimits::of(capability), choice));
    if (names.empty()) continue;
    const std::string text = capability_text(capability);
    bool found = false;
    for (auto& [known, capabilities] : groups)
      if (known == names) {
        capabilities += concat(", ", text);
        found = true;
      }
    if (!found) groups.emplace_back(names, text);
  }
  std::vector<std::string> out;
  for (const auto& [names, capabilities] : groups) out.push_back(concat(capabilities, ": ", names));
  return out;
}

std::string bodies_text(const DeviceLimits& limits, CudaBodies choice) {
  if (limits.code == 0) return "no body runs: this build has no machine code for it";
  if (cuda_body_runs("sm90", limits, choice)) return "the sm90 bodies and the portable ones";
  std::string out = "the portable bodies";
  if (choice == CudaBodies::portable) return out + " (HONE_CUDA_BODIES=portable)";
  if (limits.capability / 10 == 9)
    out += concat(" (the loaded machine code is for ", capability_text(limits.code), ")");
  return out;
}

std::string device_line(int index, const DeviceLimits& limits, CudaBodies choice) {
  return concat("cuda:", index, "  ", limits.name, ", compute capability ", capability_text(limits.capability), ": ",
                bodies_text(limits, choice));
}

}  // namespace hone
