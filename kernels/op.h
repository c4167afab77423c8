#pragma once
// Op<Signature>: one operation = a contract (its header), a readable CPU specification (NAME.cpp) and faster bodies
// that add themselves with one line. A call runs the body of the highest (priority, name) among those made for the
// context's device whose supports() accepts the arguments; supports() may look at dtype and inner dims, never at the
// number of rows, so that which body runs never depends on batching. On the meta device a call computes nothing and
// counts its scratch memory.
//
//   inline constinit Op<void(Tensor y, Tensor x)> copy_rows{"copy_rows"};                       // the header
//   [[maybe_unused]] const bool added = copy_rows.add({"specification", DeviceKind::cpu, run});  // a body's file
#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/device/device.h"

namespace hone {

// The part of an op that does not depend on its arguments: what `hone list ops` shows and the profiler counts.
class OpBase {
 public:
  struct BodyInfo {
    const char* name = nullptr;
    DeviceKind device = DeviceKind::cpu;
    int priority = 0;
  };
  constexpr explicit OpBase(const char* name) : name_(name) {}
  OpBase(const OpBase&) = delete;
  OpBase& operator=(const OpBase&) = delete;
  std::string_view name() const { return name_; }
  std::span<const BodyInfo> bodies() const { return {infos_.data(), count_}; }
  // Every op that has a body, by name.
  static std::vector<OpBase*> all();

 protected:
  // Puts a body in its place by descending priority, then name; returns the place.
  size_t insert(BodyInfo info);
  [[noreturn]] void refuse(DeviceKind device) const;
  static constexpr size_t max_bodies = 12;

 private:
  const char* name_;
  std::array<BodyInfo, max_bodies> infos_{};
  size_t count_ = 0;
  OpBase* next_ = nullptr;
};

// Told when an op is called and when that call returns (on a GPU its work is queued then), on the caller's thread, and
// of ranges of them: a profiler. At most one; without it a call has one test more.
class OpObserver {
 public:
  virtual ~OpObserver() = default;
  virtual void begin(Context& context, const char* name) = 0;
  virtual void end(Context& context) = 0;
};
inline constinit OpObserver* op_observer = nullptr;

// What runs in its scope has a name for the observer.
class OpRange {
 public:
  OpRange(Context& context, const char* name) : context_(context), observer_(op_observer) {
    if (observer_) observer_->begin(context_, name);
  }
  ~OpRange() {
    if (observer_) observer_->end(context_);
  }
  OpRange(const OpRange&) = delete;
  OpRange& operator=(const OpRange&) = delete;

 private:
  Context& context_;
  OpObserver* observer_;
};

template <class Signature>
class Op;

template <class... A>
class Op<void(A...)> : public OpBase {
 public:
  using Run = void (*)(Context&, A...);
  using Supports = bool (*)(const A&...);
  using ScratchBytes = size_t (*)(const A&...);
  struct Body {
    const char* name;
    DeviceKind device;
    Run run;
    int priority = 0;
    Supports supports = nullptr;     // nullptr: everything
    ScratchBytes scratch = nullptr;  // what it takes of context.scratch(), where that is worth planning for
  };
  using OpBase::OpBase;

  bool add(Body body) {
    BodyInfo info;  // by member: nvcc hands an initializer list on to g++ in a form that it refuses
    info.name = body.name, info.device = body.device, info.priority = body.priority;
    const size_t place = insert(info);
    std::move_backward(bodies_.begin() + static_cast<std::ptrdiff_t>(place), bodies_.end() - 1, bodies_.end());
    bodies_[place] = body;
    return true;
  }
  void operator()(Context& context, std::type_identity_t<A>... arguments) const {
    if (context.kind() == DeviceKind::meta) return count_scratch(context, arguments...);
    const Body* body = find(context.kind(), arguments...);
    if (!body) refuse(context.kind());
    const OpRange range(context, name().data());
    body->run(context, arguments...);
  }
  // One body by its place in bodies(), for tests and benchmarks that compare them; supported says whether it takes the
  // arguments.
  void run_body(size_t i, Context& context, std::type_identity_t<A>... arguments) const {
    bodies_[i].run(context, arguments...);
  }
  bool supported(size_t i, const A&... arguments) const {
    return !bodies_[i].supports || bodies_[i].supports(arguments...);
  }

 private:
  const Body* find(DeviceKind device, const A&... arguments) const {
    for (size_t i = 0; i < bodies().size(); ++i)
      if (bodies_[i].device == device && (!bodies_[i].supports || bodies_[i].supports(arguments...)))
        return &bodies_[i];
    return nullptr;
  }
  // On meta: what the body would take on the device that is planned for.
  void count_scratch(Context& context, const A&... arguments) const {
    const Body* body = find(context.target(), arguments...);
    if (!body || !body->scratch) return;
    const ScratchScope scope(context);
    context.scratch().take(DType::u8, {static_cast<int64_t>(body->scratch(arguments...))});
  }

  std::array<Body, max_bodies> bodies_{};
};

}  // namespace hone
