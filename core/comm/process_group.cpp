#include "core/comm/process_group.h"

namespace hone {

void ProcessGroup::check_part(const Context& context, const Tensor& part, const std::string& what) {
  if (part.size() == 0) return;
  HONE_CHECK(part.contiguous(), what, ": a tensor between ranks must be contiguous");
  HONE_CHECK(part.device == context.kind(), what, ": a tensor between ranks is on ", name_of(part.device),
             ", its context on ", name_of(context.kind()));
}

void ProcessGroup::check_parts(const Context& context, std::span<const Tensor> parts, const std::string& what) {
  HONE_CHECK(std::ssize(parts) == size(), what, ": ", parts.size(), " tensors for ", size(), " ranks");
  for (const Tensor& part : parts) check_part(context, part, what);
}

void ProcessGroup::check_peer(int peer, const std::string& what) {
  HONE_CHECK(peer >= 0 && peer < size() && peer != rank(), what, ": rank ", rank(), " of ", size(),
             " cannot exchange with rank ", peer);
}

}  // namespace hone
