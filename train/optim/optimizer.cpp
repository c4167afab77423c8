#include "train/optim/optimizer.h"

#include <algorithm>

#include "core/base/rng.h"
#include "kernels/elementwise/cast.h"
#include "kernels/optimizer/optimizer.h"
#include "train/optim/state_parts.h"

namespace hone {
namespace {

constexpr const char* master_name = "master";

int64_t granules_of(int64_t count) { return (count + param_granule - 1) / param_granule; }

// `count` elements from the first of `first`, as [count].
Tensor flat(const Tensor& first, int64_t count) { return Tensor(first.data, first.dtype, first.device, {count}); }

// Compares numbers, not pointers: on meta all data is null, and every part is a segment of its own.
bool lies_at(const Tensor& x, const Tensor& first, int64_t begin) {
  return reinterpret_cast<uintptr_t>(x.data) ==
         reinterpret_cast<uintptr_t>(first.data) + static_cast<size_t>(begin) * size_of(first.dtype);
}

}  // namespace

std::vector<ParamPart> whole_parts(std::span<Param* const> params) {
  std::vector<ParamPart> out;
  int64_t place = 0;
  for (const Param* param : params) {
    if (!param->trainable) continue;
    const int64_t count = param->value.size();
    out.push_back({.param = param,
                   .first = 0,
                   .value = param->value.view({count}),
                   .grad = param->grad ? param->grad.view({count}) : Tensor(),
                   .place = place});
    place += granules_of(count) * param_granule;
  }
  return out;
}

int64_t Optimizer::Segment::padded_size() const { return granules_of(value.size()) * param_granule; }

Optimizer::Segment Optimizer::Segment::slice(int64_t begin, int64_t end) const {
  Segment out;
  out.value = value.rows(begin, end - begin);
  out.grad = grad.rows(begin, end - begin);
  out.place = place + begin;
  for (const Tensor& state : states) out.states.push_back(state.rows(begin, end - begin));
  out.decays = decays.rows(begin / param_granule, granules_of(end - begin));
  return out;
}

void Optimizer::append(const ParamPart& part) {
  const int64_t count = part.value.size();
  if (!segments_.empty()) {
    Segment& last = segments_.back();
    const int64_t begin = last.padded_size();
    if (last.value.dtype == part.value.dtype && last.place + begin == part.place &&
        lies_at(part.value, last.value, begin) && lies_at(part.grad, last.grad, begin)) {
      last.members.push_back({part.param, part.first, begin, count});
      last.value = flat(last.value, begin + count);
      last.grad = flat(last.grad, begin + count);
      return;
    }
  }
  Segment& added = segments_.emplace_back();
  added.members = {{part.param, part.first, 0, count}};
  added.value = flat(part.value, count);
  added.grad = flat(part.grad, count);
  added.place = part.place;
}

void Optimizer::attach(Context& context, std::span<const ParamPart> parts, std::string list) {
  HONE_CHECK(!context_, "optimizer: attached twice");
  context_ = &context;
  list_ = std::move(list);
  for (const ParamPart& part : parts) {
    const std::string& name = part.param->slices.front().name;
    const DType dtype = part.value.dtype;
    HONE_CHECK((dtype == DType::f32 || dtype == DType::bf16) && part.grad && part.grad.dtype == DType::f32,
               "optimizer: ", name, " needs f32 or bf16 values with f32 gradients to be trained");
    HONE_CHECK(part.first % param_granule == 0 && part.place % param_granule == 0, "optimizer: the part of ", name,
               " from element ", part.first, " on begins in the middle of ", param_granule, " elements");
    append(part);
  }
  allocate_states(context);
}

void Optimizer::allocate_states(Context& context) {
  const size_t count = state_names().size();
  size_t bytes = 0, granules = 0;
  for (const Segment& segment : segments_) {
    const auto size = static_cast<size_t>(segment.padded_size());
    bytes += size * (count * size_of(state_dtype()) + (segment.has_master() ? sizeof(float) : 0));
    granules += size / param_granule;
  }
  bytes_ = Buffer(context.device(), bytes);
  decay_bytes_ = Buffer(context.device(), granules);
  context.zero(Tensor(bytes_.data(), DType::u8, context.kind(), {static_cast<int64_t>(bytes)}));
  size_t at = 0;
  int64_t granule = 0;
  const auto take = [&](const Segment& segment, DType dtype) {
    const Tensor out(bytes_.data() ? static_cast<char*>(bytes_.data()) + at : nullptr, dtype, context.kind(),
                     {segment.value.size()});
    at += static_cast<size_t>(segment.padded_size()) * size_of(dtype);
    return out;
  };
  std::vector<uint8_t> decays(granules);
  const Tensor all_decays(decay_bytes_.data(), DType::u8, context.kind(), {static_cast<int64_t>(granules)});
  for (Segment& segment : segments_) {
    if (segment.has_master()) {
      segment.states.push_back(take(segment, DType::f32));
      cast(context, segment.states.front(), segment.value);
    }
    for (size_t i = 0; i < count; ++i) segment.states.push_back(take(segment, state_dtype()));
    segment.decays = all_decays.rows(granule, segment.padded_size() / param_granule);
    for (const Segment::Member& member : segment.members)
      for (int64_t g = member.begin / param_granule; g < granules_of(member.begin + member.count); ++g)
        decays[static_cast<size_t>(granule + g)] = member.param->decay;
    granule += segment.padded_size() / param_granule;
  }
  context.copy(all_decays, host_view(std::span(decays)));
}

void Optimizer::update(Context& context, Tensor clip, int64_t step, double learning_rate, ElementRange places) {
  for (const Segment& segment : segments_) {
    const int64_t begin = std::max<int64_t>(0, places.first - segment.place),
                  end = std::min(segment.value.size(), places.last - segment.place);
    if (begin >= end) continue;
    if (begin == 0 && end == segment.value.size()) {
      update_segment(context, segment, clip, step, learning_rate);
      continue;
    }
    HONE_CHECK(begin % param_granule == 0 && (end % param_granule == 0 || end == segment.value.size()),
               "optimizer: places ", places.first, " to ", places.last, " cut ", param_granule, " elements");
    update_segment(context, segment.slice(begin, end), clip, step, learning_rate);
  }
}

void Optimizer::update_segment(Context& context, const Segment& segment, Tensor clip, int64_t step,
                               double learning_rate) const {
  const std::span<const Tensor> states(segment.states);
  const ParamRange range{.value = segment.has_master() ? states[0] : segment.value,
                         .rounded = segment.has_master() ? segment.value : Tensor(),
                         .grad = segment.grad,
                         .decays = segment.decays,
                         .clip = clip,
                         .first = segment.place};
  const std::string stream = list_.empty() ? concat("update ", step) : concat("update ", step, " of ", list_);
  update_range(context, range, states.subspan(segment.has_master() ? 1 : 0), stream_of(stream.c_str()), step,
               learning_rate);
}

int64_t Optimizer::state_bytes() const { return static_cast<int64_t>(bytes_.size()); }

std::string Optimizer::state_name(const Segment& segment, const Segment::Member& member, size_t state) const {
  std::vector<std::string> names = state_names();
  if (segment.has_master()) names.insert(names.begin(), master_name);
  return names[state] + "." + member.param->slices.front().name;
}

void Optimizer::save_state(StateSection& section) const {
  char* host = static_cast<char*>(bytes_.data());
  if (context_->kind() != DeviceKind::cpu) {
    host_copy_.resize(bytes_.size());
    host = reinterpret_cast<char*>(host_copy_.data());
    const std::array<int64_t, 1> size = {state_bytes()};
    context_->copy(Tensor(host, DType::u8, DeviceKind::cpu, size),
                   Tensor(bytes_.data(), DType::u8, context_->kind(), size));
  }
  for (const Segment& segment : segments_)
    for (const Segment::Member& member : segment.members)
      for (size_t i = 0; i < segment.states.size(); ++i) {
        const Tensor part = segment.states[i].rows(member.begin, member.count);
        char* const data = host + (static_cast<char*>(part.data) - static_cast<char*>(bytes_.data()));
        section.tensors.push_back(
            {part_name(state_name(segment, member, i), member.first, member.count, member.param->num_elements()),
             Tensor(data, part.dtype, DeviceKind::cpu, part.dims())});
      }
}

void Optimizer::load_state(const StateSection& section) {
  const StateParts saved(section);
  for (const Segment& segment : segments_)
    for (const Segment::Member& member : segment.members)
      for (size_t i = 0; i < segment.states.size(); ++i)
        saved.copy(*context_, state_name(segment, member, i), member.first, member.param->num_elements(),
                   segment.states[i].rows(member.begin, member.count));
}

Registry<OptimizerFactory>& optimizers() {
  static Registry<OptimizerFactory> registry("optimizer");
  return registry;
}

}  // namespace hone
