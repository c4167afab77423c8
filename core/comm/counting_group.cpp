#include "core/comm/counting_group.h"

namespace hone {
namespace {

// The other ranks answer what this rank says.
class EchoChannel : public ControlChannel {
 public:
  explicit EchoChannel(int size) : size_(size) {}
  int rank() const override { return 0; }
  int size() const override { return size_; }
  std::string label() const override { return "rank 0 (meta)"; }
  std::vector<std::string> all_gather(std::string own, const std::string&) override {
    return std::vector<std::string>(static_cast<size_t>(size_), own);
  }
  void set_phase(const std::string&) override {}
  void note_failure(const std::string&) override {}
  void abort(const std::string&) override {}

 private:
  const int size_;
};

}  // namespace

CountingGroup::CountingGroup(int size) : channel_(std::make_unique<EchoChannel>(size)) {
  HONE_CHECK(size >= 1, "a counting group has ", size, " ranks; it needs at least one");
}
CountingGroup::~CountingGroup() = default;

ControlChannel& CountingGroup::control() { return *channel_; }

// The first tensor of each list is this rank's own part.
void CountingGroup::add(const std::string& what, std::span<const Tensor> received, std::span<const Tensor> sent) {
  ExchangedBytes& counts = counts_[what];
  ++counts.calls;
  for (const Tensor& part : received.subspan(1)) counts.received += static_cast<int64_t>(part.bytes());
  for (const Tensor& part : sent.subspan(1)) counts.sent += static_cast<int64_t>(part.bytes());
}

void CountingGroup::all_gather(Context& context, std::span<const Tensor> all, Tensor own, const std::string& what) {
  check_parts(context, all, what);
  check_part(context, own, what);
  add(what, all, std::vector<Tensor>(all.size(), own));
}

void CountingGroup::all_to_all(Context& context, std::span<const Tensor> from, std::span<const Tensor> to,
                               const std::string& what) {
  check_parts(context, from, what);
  check_parts(context, to, what);
  add(what, from, to);
}

void CountingGroup::send(Context& context, Tensor x, int to, const std::string& what) {
  check_peer(to, what);
  check_part(context, x, what);
  add(what, std::vector<Tensor>(1), {{Tensor(), x}});
}

void CountingGroup::receive(Context& context, Tensor x, int from, const std::string& what) {
  check_peer(from, what);
  check_part(context, x, what);
  add(what, {{Tensor(), x}}, std::vector<Tensor>(1));
}

}  // namespace hone
