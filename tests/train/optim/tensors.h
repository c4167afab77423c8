#pragma once
// Parameters of a few numbers, adjacent in memory as Model::allocate lays them, for tests of optimizers.
#include <cmath>
#include <cstring>
#include <deque>

#include "core/config/config.h"
#include "model/model.h"
#include "train/optim/optimizer.h"

namespace hone::test {

inline std::unique_ptr<Optimizer> make_optimizer(const std::string& kind, const std::string& settings = "") {
  const std::unique_ptr<OptimizerSettings> out = optimizers().at(kind)();
  Config::from_text(settings, "test").read([&](Fields& f) { out->fields(f); });
  return out->make();
}

class Tensors {
 public:
  explicit Tensors(DType dtype = DType::f32) : dtype_(dtype) {}
  // A parameter of one slice, or of several with these rows. A vector has no weight decay.
  Param& add(const std::string& name, const std::vector<int64_t>& shape, const std::vector<float>& values,
             const std::vector<Param::Slice>& slices = {}) {
    Param& param = params_.emplace_back();
    param.slices = slices.empty() ? std::vector<Param::Slice>{{name, shape.front()}} : slices;
    param.shape = shape;
    param.decay = shape.size() > 1;
    const auto first = static_cast<size_t>(used_);
    used_ += param.padded_elements();
    std::ranges::copy(values, values_.begin() + static_cast<std::ptrdiff_t>(first));
    for (size_t i = 0; i < values.size(); ++i) bf16_values_[first + i] = to_bf16(values[i]);
    void* const data =
        dtype_ == DType::bf16 ? static_cast<void*>(&bf16_values_[first]) : static_cast<void*>(&values_[first]);
    param.value = Tensor(data, dtype_, DeviceKind::cpu, shape);
    param.grad = Tensor(&grads_[first], DType::f32, DeviceKind::cpu, shape);
    return param;
  }
  // The same with values that depend on the element alone.
  Param& add_waves(const std::string& name, const std::vector<int64_t>& shape, const std::vector<Param::Slice>& slices = {}) {
    int64_t count = 1;
    for (const int64_t dim : shape) count *= dim;
    std::vector<float> values;
    for (int64_t i = 0; i < count; ++i) values.push_back(std::sin(static_cast<float>(used_ + i)));
    return add(name, shape, values, slices);
  }
  std::vector<Param*> params() {
    std::vector<Param*> out;
    for (Param& param : params_) out.push_back(&param);
    return out;
  }
  Param& at(const std::string& name) {
    for (Param& param : params_)
      if (param.slices.front().name == name) return param;
    fail("no parameter ", name);
  }
  std::span<float> values(const std::string& name) { return at(name).value.as<float>(); }
  void set_grad(const std::string& name, const std::vector<float>& grad) {
    std::ranges::copy(grad, at(name).grad.as<float>().begin());
  }
  // Gradients that depend on the step and the element alone.
  void set_grads(int64_t step) {
    for (Param& param : params_)
      for (size_t i = 0; i < param.grad.as<float>().size(); ++i)
        param.grad.as<float>()[i] = std::cos(static_cast<float>(step) * 31 + static_cast<float>(i) * 0.7f);
  }
  void update(Optimizer& optimizer, int64_t step, double learning_rate) {
    optimizer.update(context_, host_view(std::span(&clip, 1)), step, learning_rate);
  }
  void step(Optimizer& optimizer, int64_t number, double learning_rate) {
    set_grads(number);
    update(optimizer, number, learning_rate);
  }
  // The bytes of all values.
  std::string bytes() const {
    return std::string(reinterpret_cast<const char*>(values_.data()), values_.size() * sizeof(float)) +
           std::string(reinterpret_cast<const char*>(bf16_values_.data()), bf16_values_.size() * sizeof(bf16));
  }
  void copy_from(const Tensors& other) {
    std::ranges::copy(other.values_, values_.begin());
    std::ranges::copy(other.bf16_values_, bf16_values_.begin());
  }
  Context& context() { return context_; }

  float clip = 1;

 private:
  static constexpr size_t capacity = 4096;
  DType dtype_;
  int64_t used_ = 0;
  std::vector<float> values_ = std::vector<float>(capacity), grads_ = std::vector<float>(capacity);
  std::vector<bf16> bf16_values_ = std::vector<bf16>(capacity);
  std::deque<Param> params_;  // addresses stay
  std::unique_ptr<Device> device_ = devices().at("cpu")(0);
  Context context_{*device_};
};

}  // namespace hone::test
