#include "train/optim/elementwise.h"

#include "kernels/elementwise/cast.h"
#include "kernels/optimizer/optimizer.h"

namespace hone {
namespace {

int64_t granules_of(int64_t count) { return (count + param_granule - 1) / param_granule; }

// `count` elements from the first of `first`, as [count].
Tensor flat(const Tensor& first, int64_t count) { return Tensor(first.data, first.dtype, first.device, {count}); }

// Compares numbers, not pointers: on meta all data is null, and every part is a segment of its own.
bool lies_at(const Tensor& x, const Tensor& first, int64_t begin) {
  return reinterpret_cast<uintptr_t>(x.data) ==
         reinterpret_cast<uintptr_t>(first.data) + static_cast<size_t>(begin) * size_of(first.dtype);
}

}  // namespace

int64_t ElementwiseOptimizer::Segment::padded_size() const { return granules_of(value.size()) * param_granule; }

// The gap before `part` must be the alignment of parameters. It holds another group's elements if the last member ends
// inside of its parameter.
bool ElementwiseOptimizer::Segment::continues_with(const ParamPart& part) const {
  const ParamPart& last = members.back().part;
  const int64_t begin = padded_size();
  const bool aligned = first().place % param_granule == 0 && part.place % param_granule == 0;
  const bool is_gap = value.size() == begin || last.first + last.value.size() == last.param->num_elements();
  return aligned && is_gap && first().learning_rate_factor == part.learning_rate_factor &&
         first().weight_decay == part.weight_decay && value.dtype == part.value.dtype &&
         first().place + begin == part.place && lies_at(part.value, value, begin) && lies_at(part.grad, grad, begin);
}

void ElementwiseOptimizer::append(const ParamPart& part) {
  const int64_t count = part.value.size();
  if (!segments_.empty() && segments_.back().continues_with(part)) {
    Segment& last = segments_.back();
    const int64_t begin = last.padded_size();
    last.members.push_back({part, begin});
    last.value = flat(last.value, begin + count);
    last.grad = flat(last.grad, begin + count);
    return;
  }
  Segment& added = segments_.emplace_back();
  added.members = {{part, 0}};
  added.value = flat(part.value, count);
  added.grad = flat(part.grad, count);
}

void ElementwiseOptimizer::allocate(Context& context, std::span<const ParamPart> parts, DividedParams*) {
  for (const ParamPart& part : parts) append(part);
  const size_t count = state_names().size();
  int64_t granules = 0;
  for (const Segment& segment : segments_) {
    if (segment.has_master()) memory_.reserve(DType::f32, segment.value.size());
    for (size_t i = 0; i < count; ++i) memory_.reserve(state_dtype(), segment.value.size());
    granules += granules_of(segment.value.size());
  }
  memory_.allocate(context);
  decay_bytes_ = Buffer(context.device(), static_cast<size_t>(granules));
  const Tensor all_decays(decay_bytes_.data(), DType::u8, context.kind(), {granules});
  std::vector<uint8_t> decays(static_cast<size_t>(granules));
  size_t array = 0;
  int64_t granule = 0;
  for (Segment& segment : segments_) {
    for (size_t i = 0; i < count + (segment.has_master() ? 1 : 0); ++i)
      segment.states.push_back(memory_.array(array++));
    if (segment.has_master()) cast(context, segment.states.front(), segment.value);
    const int64_t own = granules_of(segment.value.size());
    segment.decays = all_decays.rows(granule, own);
    for (const Segment::Member& member : segment.members)
      for (int64_t g = member.begin / param_granule; g < granules_of(member.begin + member.part.value.size()); ++g)
        decays[static_cast<size_t>(granule + g)] = member.part.weight_decay >= 0 || member.part.param->decay;
    granule += own;
    name_states(segment);
  }
  context.copy(all_decays, host_view(std::span(decays)));
}

void ElementwiseOptimizer::name_states(const Segment& segment) {
  std::vector<std::string> names = state_names();
  if (segment.has_master()) names.insert(names.begin(), master_name);
  for (const auto& [part, begin] : segment.members)
    for (size_t i = 0; i < names.size(); ++i)
      memory_.name(names[i] + "." + state_owner(*part.param), part.first, part.param->num_elements(),
                   segment.states[i].rows(begin, part.value.size()));
}

void ElementwiseOptimizer::update(Context& context, Tensor clip, int64_t step, double learning_rate) {
  const uint64_t stream = stream_of_step(step);
  for (const Segment& segment : segments_) {
    const std::span<const Tensor> states(segment.states);
    const ParamPart& first = segment.first();
    const ParamRange range{.value = segment.has_master() ? states[0] : segment.value,
                           .rounded = segment.has_master() ? segment.value : Tensor(),
                           .grad = segment.grad,
                           .decays = segment.decays,
                           .clip = clip,
                           .first = first.place};
    update_range(context, range, states.subspan(segment.has_master() ? 1 : 0),
                 {.number = step,
                  .learning_rate = learning_rate * first.learning_rate_factor,
                  .weight_decay = first.weight_decay >= 0 ? first.weight_decay : weight_decay(),
                  .stream = stream});
  }
}

}  // namespace hone
