#pragma once
// Op<Args>: one operation. It is a contract (its header), a readable CPU specification (NAME.cpp) and faster bodies,
// which add themselves with one line. A call runs the body of the highest (priority, name) among those for the
// context's device whose supports() accepts the arguments. supports() may look at dtype and inner dims, never at the
// number of rows: which body runs must not depend on batching. On the meta device a call computes nothing and counts
// its scratch memory.
//
//   // the header; an op of up to four Tensors may take them by position: Op<void(Tensor y, Tensor x)>
//   struct CopyRows {
//     Tensor y;  // [rows, dim]
//     Tensor x;  // as y
//     static constexpr auto access = op_access(written(&CopyRows::y), read(&CopyRows::x));
//   };
//   inline constinit Op<CopyRows> copy_rows{"copy_rows"};
//   // a body's file: void run(Context& context, const CopyRows& args)
//   [[maybe_unused]] const bool added = copy_rows.add({"specification", DeviceKind::cpu, run});
//   // a call
//   copy_rows(context, {.y = y, .x = x});
//
// A field of an argument struct has the default {} if it may be empty. The compiler warns of others that a call leaves
// out.
#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/device/device.h"
#include "kernels/access.h"

namespace hone {

// The part of an op that does not depend on its arguments: its name and its bodies.
class OpBase {
 public:
  struct BodyInfo {
    const char* name = nullptr;
    DeviceKind device = DeviceKind::cpu;
    int priority = 0;
  };
  // has_access: the op has an argument struct that describes what happens to each Tensor (kernels/access.h).
  constexpr explicit OpBase(const char* name, bool has_access = false) : name_(name), has_access_(has_access) {}
  OpBase(const OpBase&) = delete;
  OpBase& operator=(const OpBase&) = delete;
  std::string_view name() const { return name_; }
  bool has_access() const { return has_access_; }
  std::span<const BodyInfo> bodies() const { return {infos_.data(), count_}; }
  // All ops that have a body, sorted by name.
  static std::vector<OpBase*> all();

 protected:
  // Inserts a body by descending priority, then name. Returns its index.
  size_t insert(BodyInfo info);
  [[noreturn]] void refuse(DeviceKind device) const;
  static constexpr size_t max_bodies = 12;

 private:
  const char* name_;
  bool has_access_;
  std::array<BodyInfo, max_bodies> infos_{};
  size_t count_ = 0;
  OpBase* next_ = nullptr;
};

// A profiler. begin() and end() bracket each op call and each OpRange, on the caller's thread. On a GPU end() means
// that the work is queued. There is at most one observer; without one a call tests one pointer more.
class OpObserver {
 public:
  virtual ~OpObserver() = default;
  virtual void begin(Context& context, const char* name) = 0;
  virtual void end(Context& context) = 0;
};
inline constinit OpObserver* op_observer = nullptr;

// Names a range of op calls for the observer, from construction to destruction.
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

template <class Args>
class Op;

// An op whose arguments are passed by position.
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
    Supports supports = nullptr;     // nullptr: all arguments
    ScratchBytes scratch = nullptr;  // bytes of context.scratch() that it takes; nullptr: not counted on meta
  };
  using OpBase::OpBase;

  bool add(Body body) {
    BodyInfo info;  // assigned by member: nvcc passes an initializer list to g++ in a form that g++ rejects
    info.name = body.name;
    info.device = body.device;
    info.priority = body.priority;
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
  // Runs one body by its index in bodies(), for tests and benchmarks. supported() says whether it takes the arguments.
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
  // On meta: takes the scratch memory that the body would take on the planned device.
  void count_scratch(Context& context, const A&... arguments) const {
    const Body* body = find(context.target(), arguments...);
    if (!body || !body->scratch) return;
    const ScratchScope scope(context);
    context.scratch().take(DType::u8, {static_cast<int64_t>(body->scratch(arguments...))});
  }

  std::array<Body, max_bodies> bodies_{};
};

// An op that takes an argument struct. Bodies get it by reference.
template <class Args>
class Op : public Op<void(const Args&)> {
 public:
  constexpr explicit Op(const char* name) : Op<void(const Args&)>(name, true) {}
};

}  // namespace hone
