#include "train/optim/optimizer.h"

#include <algorithm>

#include "core/base/rng.h"
#include "kernels/elementwise/cast.h"
#include "kernels/optimizer/optimizer.h"

namespace hone {
namespace {

constexpr const char* master_name = "master";

// Flat, `count` elements from the first on.
Tensor flat(const Tensor& first, int64_t count) { return Tensor(first.data, first.dtype, first.device, {count}); }

// Numbers, not pointers: on meta all data is null, and every parameter a run of its own.
bool lies_at(const Tensor& x, const Tensor& first, int64_t begin) {
  return reinterpret_cast<uintptr_t>(x.data) ==
         reinterpret_cast<uintptr_t>(first.data) + static_cast<size_t>(begin) * size_of(first.dtype);
}

}  // namespace

int64_t Optimizer::Segment::padded_size() const {
  return (value.size() + param_granule - 1) / param_granule * param_granule;
}

void Optimizer::append(const Param& param) {
  const int64_t count = param.value.size();
  if (!runs_.empty()) {
    Segment& last = runs_.back();
    const int64_t begin = last.padded_size();
    if (last.value.dtype == param.value.dtype && lies_at(param.value, last.value, begin) &&
        lies_at(param.grad, last.grad, begin)) {
      last.members.push_back({&param, begin});
      last.value = flat(last.value, begin + count), last.grad = flat(last.grad, begin + count);
      return;
    }
  }
  runs_.push_back({{{&param, 0}}, flat(param.value, count), flat(param.grad, count), {}, {}});
}

void Optimizer::attach(Context& context, const std::vector<Param*>& params) {
  HONE_CHECK(!context_, "optimizer: attached twice");
  context_ = &context;
  for (const Param* param : params) {
    if (!param->trainable) continue;
    const DType dtype = param->value.dtype;
    HONE_CHECK((dtype == DType::f32 || dtype == DType::bf16) && param->grad && param->grad.dtype == DType::f32,
               "optimizer: ", param->slices.front().name, " needs f32 or bf16 values with f32 gradients to be trained");
    append(*param);
  }
  const size_t count = state_names().size();
  size_t bytes = 0, blocks = 0;
  for (const Segment& run : runs_) {
    const auto size = static_cast<size_t>(run.padded_size());
    bytes += size * (count * size_of(state_dtype()) + (run.has_master() ? sizeof(float) : 0));
    blocks += size / param_granule;
  }
  bytes_ = Buffer(context.device(), bytes), decay_bytes_ = Buffer(context.device(), blocks);
  context.zero(Tensor(bytes_.data(), DType::u8, context.kind(), {static_cast<int64_t>(bytes)}));
  size_t at = 0;
  int64_t block = 0;
  const auto take = [&](const Segment& run, DType dtype) {
    const Tensor out(bytes_.data() ? static_cast<char*>(bytes_.data()) + at : nullptr, dtype, context.kind(),
                     {run.value.size()});
    at += static_cast<size_t>(run.padded_size()) * size_of(dtype);
    return out;
  };
  std::vector<uint8_t> decays(blocks);
  const Tensor all_decays(decay_bytes_.data(), DType::u8, context.kind(), {static_cast<int64_t>(blocks)});
  for (Segment& run : runs_) {
    if (run.has_master()) {
      run.states.push_back(take(run, DType::f32));
      cast(context, run.states.front(), run.value);
    }
    for (size_t i = 0; i < count; ++i) run.states.push_back(take(run, state_dtype()));
    run.decays = all_decays.rows(block, run.padded_size() / param_granule);
    for (const Segment::Member& member : run.members) {
      const int64_t end = (member.begin + member.param->value.size() + param_granule - 1) / param_granule;
      for (int64_t b = member.begin / param_granule; b < end; ++b)
        decays[static_cast<size_t>(block + b)] = member.param->decay;
    }
    block += run.padded_size() / param_granule;
  }
  context.copy(all_decays, host_view(std::span(decays)));
}

void Optimizer::add_squares(Context& context, Tensor sum) const {
  for (const Segment& run : runs_) sum_squares(context, sum, run.grad);
}

void Optimizer::update(Context& context, Tensor clip, int64_t step, double learning_rate) {
  for (const Segment& run : runs_) {
    const std::span<const Tensor> states(run.states);
    const ParamRange range{.value = run.has_master() ? states[0] : run.value,
                           .rounded = run.has_master() ? run.value : Tensor(),
                           .grad = run.grad,
                           .decays = run.decays,
                           .clip = clip};
    const std::string stream = concat("update ", step, " of ", run.members.front().param->slices.front().name);
    update_range(context, range, states.subspan(run.has_master() ? 1 : 0), stream_of(stream.c_str()), step,
                 learning_rate);
  }
}

int64_t Optimizer::state_bytes() const { return static_cast<int64_t>(bytes_.size()); }

std::string Optimizer::state_name(const Segment& run, const Param& param, size_t state) const {
  std::vector<std::string> names = state_names();
  if (run.has_master()) names.insert(names.begin(), master_name);
  return names[state] + "." + param.slices.front().name;
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
  for (const Segment& run : runs_)
    for (const Segment::Member& member : run.members)
      for (size_t i = 0; i < run.states.size(); ++i) {
        const Tensor part = run.states[i].rows(member.begin, member.param->value.size());
        char* const data = host + (static_cast<char*>(part.data) - static_cast<char*>(bytes_.data()));
        section.tensors.push_back(
            {state_name(run, *member.param, i), Tensor(data, part.dtype, DeviceKind::cpu, part.dims())});
      }
}

void Optimizer::load_state(const StateSection& section) {
  std::map<std::string_view, Tensor> saved;
  for (const NamedTensor& named : section.tensors) saved.emplace(named.name, named.tensor);
  for (const Segment& run : runs_)
    for (const Segment::Member& member : run.members)
      for (size_t i = 0; i < run.states.size(); ++i) {
        const std::string name = state_name(run, *member.param, i);
        const Tensor part = run.states[i].rows(member.begin, member.param->value.size());
        const auto found = saved.find(name);
        HONE_CHECK(found != saved.end(), "optimizer state: ", name, " is missing");
        HONE_CHECK(found->second.dtype == part.dtype && found->second.size() == part.size(), "optimizer state: ", name,
                   " has ", found->second.size(), " ", name_of(found->second.dtype), " numbers, the parameter has ",
                   part.size(), " ", name_of(part.dtype));
        context_->copy(part, found->second.view({found->second.size()}));
      }
}

Registry<OptimizerFactory>& optimizers() {
  static Registry<OptimizerFactory> registry("optimizer");
  return registry;
}

}  // namespace hone
