#pragma once
// The contract test of ops with an argument struct, generated from the struct's `access` (kernels/access.h): a body
// writes each written element, reads none of them, adds to the added ones and changes no other byte.
#include <algorithm>
#include <set>

#include "tests/kernels/op_check.h"

namespace hone::test {

// The names of the ops whose contract was checked so far.
inline std::set<std::string>& checked_contracts() {
  static std::set<std::string> names;
  return names;
}

// The arguments of a call with copies of their memory. Tensors that share memory share it in the copy. Each piece of
// memory has margins that hold a pattern.
template <class Args>
class CallCopy {
 public:
  explicit CallCopy(const Args& args) : args_(args) {
    for_each_access(args, [&](const Tensor& tensor, const TensorAccess&) {
      if (tensor.size() > 0) add_region(first_byte(tensor), first_byte(tensor) + span_bytes(tensor));
    });
    for (Region& region : regions_) {
      const size_t size = static_cast<size_t>(region.end - region.begin);
      region.bytes.assign(size + 2 * margin + alignment, 0xA5);
      const auto address = reinterpret_cast<uintptr_t>(region.bytes.data());
      const size_t shift = (reinterpret_cast<uintptr_t>(region.begin) - address - margin) % alignment;
      region.copy = region.bytes.data() + margin + shift;
      std::memcpy(region.copy, region.begin, size);
    }
    for_each_access(args_, [&](Tensor& tensor, const TensorAccess&) {
      if (tensor.size() > 0) tensor.data = copy_of(first_byte(tensor));
    });
    for (Region& region : regions_) region.before = region.bytes;
  }
  CallCopy(const CallCopy&) = delete;
  CallCopy& operator=(const CallCopy&) = delete;

  const Args& args() const { return args_; }

  // Fills the elements that are only written with `poison`, and with `zero` the added ones with 0.
  void prepare(unsigned char poison, bool zero) {
    for_each_element(Access::written,
                     [&](unsigned char* element, size_t bytes, DType) { std::memset(element, poison, bytes); });
    for_each_access(args_, [&](Tensor&, const TensorAccess& use) {
      if (use.access == Access::written) return;
      // Elements of an operand that the op also writes (in place) keep their values.
      each(use, [&](unsigned char* element, size_t bytes) { std::memcpy(element, before(element), bytes); });
    });
    if (!zero) return;
    for (const Access access : {Access::added, Access::added_once})
      for_each_element(access, [](unsigned char* element, size_t bytes, DType) { std::memset(element, 0, bytes); });
  }

  // Calls visit(element, bytes, dtype) for each element with this access, in a fixed order.
  template <class Visit>
  void for_each_element(Access access, const Visit& visit) const {
    for_each_access(args_, [&](const Tensor&, const TensorAccess& use) {
      if (use.access == access)
        each(use, [&](unsigned char* element, size_t bytes) { visit(element, bytes, use.range.dtype); });
    });
  }
  // The value of this byte when the copy was made.
  const unsigned char* before(const unsigned char* byte) const {
    for (const Region& region : regions_)
      if (byte >= region.bytes.data() && byte < region.bytes.data() + region.bytes.size())
        return region.before.data() + (byte - region.bytes.data());
    fail("a byte outside of the call");
  }
  // True if no byte changed that the op may not write.
  bool rest_intact() const {
    std::vector<std::vector<bool>> writable;
    for (const Region& region : regions_) writable.emplace_back(region.bytes.size());
    for (const Access access : {Access::written, Access::updated, Access::added, Access::added_once})
      for_each_element(access, [&](const unsigned char* element, size_t bytes, DType) {
        for (size_t r = 0; r < regions_.size(); ++r) {
          const unsigned char* const begin = regions_[r].bytes.data();
          if (element < begin || element >= begin + regions_[r].bytes.size()) continue;
          std::fill_n(writable[r].begin() + (element - begin), bytes, true);
        }
      });
    for (size_t r = 0; r < regions_.size(); ++r)
      for (size_t i = 0; i < regions_[r].bytes.size(); ++i)
        if (!writable[r][i] && regions_[r].bytes[i] != regions_[r].before[i]) return false;
    return true;
  }
  // Copies all memory back to where it was copied from.
  void restore_to_origin() const {
    for (const Region& region : regions_)
      std::memcpy(region.begin, region.copy, static_cast<size_t>(region.end - region.begin));
  }

 private:
  static constexpr size_t margin = 64, alignment = 64;
  struct Region {
    unsigned char *begin, *end;  // of the original memory
    std::vector<unsigned char> bytes{}, before{};
    unsigned char* copy = nullptr;  // of begin, inside of bytes
  };

  static unsigned char* first_byte(const Tensor& tensor) { return static_cast<unsigned char*>(tensor.data); }
  static size_t span_bytes(const Tensor& tensor) {
    return static_cast<size_t>((tensor.dim(0) - 1) * tensor.row_stride + tensor.row_size()) * size_of(tensor.dtype);
  }
  void add_region(unsigned char* begin, unsigned char* end) {
    const auto overlaps = [&](const Region& region) { return region.begin < end && begin < region.end; };
    for (auto found = std::ranges::find_if(regions_, overlaps); found != regions_.end();
         found = std::ranges::find_if(regions_, overlaps)) {
      begin = std::min(begin, found->begin);
      end = std::max(end, found->end);
      regions_.erase(found);
    }
    regions_.push_back({begin, end});
  }
  unsigned char* copy_of(const unsigned char* original) const {
    for (const Region& region : regions_)
      if (original >= region.begin && original < region.end) return region.copy + (original - region.begin);
    fail("a tensor outside of the call");
  }
  template <class Visit>
  static void each(const TensorAccess& use, const Visit& visit) {
    const Tensor& x = use.range;
    if (x.size() == 0) return;
    const size_t bytes = size_of(x.dtype), row_bytes = static_cast<size_t>(x.row_stride) * bytes;
    const auto row = [&](int64_t r) {
      for (int64_t i = 0; i < x.row_size(); ++i)
        visit(first_byte(x) + static_cast<size_t>(r) * row_bytes + static_cast<size_t>(i) * bytes, bytes);
    };
    if (!use.rows)
      for (int64_t r = 0; r < x.dim(0); ++r) row(r);
    else
      for (const int32_t r : use.rows.template as<int32_t>()) row(r);
  }

  Args args_;
  std::vector<Region> regions_;
};

inline double number_of(const unsigned char* element, DType dtype) {
  if (dtype == DType::bf16) {
    bf16 value;
    std::memcpy(&value, element, sizeof value);
    return to_float(value);
  }
  float value;
  std::memcpy(&value, element, sizeof value);
  return value;
}

// Equal bits, or f32 and bf16 numbers within the tolerance.
inline bool agree(const unsigned char* actual, const unsigned char* expected, size_t bytes, DType dtype,
                  Tolerance tolerance) {
  if (std::memcmp(actual, expected, bytes) == 0) return true;
  if (dtype != DType::f32 && dtype != DType::bf16) return false;
  if (tolerance.relative == 0 && tolerance.absolute == 0) return false;
  const double a = number_of(actual, dtype), e = number_of(expected, dtype);
  return std::fabs(a - e) <= tolerance.absolute + tolerance.relative * std::fabs(e);
}

// Compares two calls of one body: `full` started from the caller's values, `zeroed` from 0 in the added elements and
// from other poison in the written ones.
template <class Args>
void expect_contract(const CallCopy<Args>& full, const CallCopy<Args>& zeroed) {
  EXPECT_TRUE(full.rest_intact() && zeroed.rest_intact()) << "bytes were written that `access` does not name";
  const auto elements = [](const CallCopy<Args>& call, Access access) {
    std::vector<unsigned char*> out;
    call.for_each_element(access, [&](unsigned char* element, size_t, DType) { out.push_back(element); });
    return out;
  };
  const std::vector<unsigned char*> written = elements(zeroed, Access::written);
  size_t i = 0, differing = 0;
  full.for_each_element(Access::written, [&](const unsigned char* element, size_t bytes, DType) {
    differing += std::memcmp(element, written[i++], bytes) != 0;
  });
  EXPECT_EQ(differing, 0u) << "of " << i << " written elements are not written, or depend on what they held";
  for (const Access access : {Access::added, Access::added_once}) {
    const std::vector<unsigned char*> sums = elements(zeroed, access);
    i = differing = 0;
    full.for_each_element(access, [&](const unsigned char* element, size_t, DType dtype) {
      const double before = number_of(full.before(element), dtype), sum = number_of(sums[i++], dtype);
      const double after = number_of(element, dtype);
      const bool once = static_cast<float>(before) + static_cast<float>(sum) == static_cast<float>(after);
      const double error = std::fabs(after - (before + sum));
      differing +=
          access == Access::added_once ? !once : !(error <= 1e-4 + 1e-4 * (std::fabs(before) + std::fabs(sum)));
    });
    EXPECT_EQ(differing, 0u) << "of " << i << " elements are not what they held plus the sum"
                             << (access == Access::added_once ? ", rounded once" : "");
  }
}

// Runs each CPU body on the same arguments. Checks the contract of each and compares its results with those of the body
// named "specification". The arguments end as the specification leaves them.
template <class Args>
void expect_bodies_agree(const Op<Args>& op, Tolerance tolerance, const std::type_identity_t<Args>& args) {
  checked_contracts().insert(std::string(op.name()));
  CallCopy<Args> specification(args);
  const auto run = [&](bool is_specification) {
    size_t count = 0;
    each_cpu_body(op, [&](auto body, const std::string& name) {
      if ((name == "specification") != is_specification) return;
      CallCopy<Args> copy(args), zeroed(args);
      CallCopy<Args>& full = is_specification ? specification : copy;
      full.prepare(0xFF, false);
      zeroed.prepare(0x5A, true);
      if (!body(full.args())) return;
      ++count;
      body(zeroed.args());
      expect_contract(full, zeroed);
      for (const Access access : {Access::written, Access::updated, Access::added, Access::added_once}) {
        std::vector<unsigned char*> expected;
        specification.for_each_element(access, [&](unsigned char* e, size_t, DType) { expected.push_back(e); });
        size_t i = 0, differing = 0;
        full.for_each_element(access, [&](const unsigned char* element, size_t bytes, DType dtype) {
          if (agree(element, expected[i], bytes, dtype, tolerance) || differing++ > 0) {
            ++i;
            return;
          }
          ADD_FAILURE() << "element " << i << " differs from the specification's"
                        << (dtype == DType::f32 || dtype == DType::bf16
                                ? concat(": ", number_of(element, dtype), ", not ", number_of(expected[i], dtype))
                                : std::string());
          ++i;
        });
        EXPECT_EQ(differing, 0u) << "of " << i << " elements differ from the specification's";
      }
    });
    return count;
  };
  ASSERT_EQ(run(true), 1u) << op.name() << " has no body named specification for these arguments";
  run(false);
  specification.restore_to_origin();
}

}  // namespace hone::test
