#include "train/optim/state_memory.h"

#include <array>

#include "kernels/optimizer/optimizer.h"
#include "train/optim/state_parts.h"

namespace hone {

size_t StateMemory::reserve(DType dtype, int64_t count) {
  arrays_.push_back({dtype, count, total_});
  total_ += static_cast<size_t>((count + param_granule - 1) / param_granule * param_granule) * size_of(dtype);
  return arrays_.size() - 1;
}

void StateMemory::allocate(Context& context) {
  context_ = &context;
  bytes_ = Buffer(context.device(), total_);
  context.zero(Tensor(bytes_.data(), DType::u8, context.kind(), {bytes()}));
}

Tensor StateMemory::array(size_t number) const {
  const Array& of = arrays_[number];
  void* const data = bytes_.data() ? static_cast<char*>(bytes_.data()) + of.at : nullptr;
  return Tensor(data, of.dtype, context_->kind(), {of.count});
}

void StateMemory::name(std::string name, int64_t first, int64_t size, Tensor values, bool saved) {
  named_.push_back({std::move(name), first, size, values, saved});
}

void StateMemory::save(StateSection& section) const {
  char* host = static_cast<char*>(bytes_.data());
  if (context_->kind() != DeviceKind::cpu) {
    host_copy_.resize(bytes_.size());
    host = reinterpret_cast<char*>(host_copy_.data());
    const std::array<int64_t, 1> size = {bytes()};
    context_->copy(Tensor(host, DType::u8, DeviceKind::cpu, size),
                   Tensor(bytes_.data(), DType::u8, context_->kind(), size));
  }
  for (const Named& named : named_) {
    if (!named.saved) continue;
    const Tensor& values = named.values;
    char* const data = host + (static_cast<char*>(values.data) - static_cast<char*>(bytes_.data()));
    section.tensors.push_back({part_name(named.name, named.first, values.size(), named.size),
                               Tensor(data, values.dtype, DeviceKind::cpu, values.dims())});
  }
}

void StateMemory::load(const StateSection& section) const {
  const StateParts saved(section);
  for (const Named& named : named_) saved.copy(*context_, named.name, named.first, named.size, named.values, "moments");
}

}  // namespace hone
