#pragma once
// What an op does with each Tensor of its argument struct: the part of the contract that programs read.
//
//   struct GemmForward {
//     Tensor y;       // [M, N]
//     Tensor x, w;    // [M, K], [N, K]
//     Tensor bias{};  // [N] or empty
//     static constexpr auto access = op_access(written(&GemmForward::y), read(&GemmForward::x, &GemmForward::bias),
//                                              prefetched(&GemmForward::w));
//   };
//
// The op contract test generates its checks from `access` (tests/kernels/op_check.h). mark_written() passes the written
// memory to compute-sanitizer (kernels/cuda/sanitizer.h).
#include <tuple>

#include "core/device/tensor.h"

namespace hone {

enum class Access : uint8_t {
  written,     // every element is written and none is read
  updated,     // elements are read and written, or written in part
  added,       // sums are added to the elements, in one or several additions
  added_once,  // each element gets one addition per call: the result is before + sum, rounded once
  read,        // read by the queued work
  prefetched,  // read; on a GPU possibly before the preceding op has ended, so that op must not write it
};

// One Tensor of a call, as for_each_access() visits it.
struct TensorAccess {
  Access access = Access::read;
  Tensor range;  // the elements that `access` speaks of; the tensor itself unless the op writes only some columns
  Tensor rows;   // i32 [n]: only these rows are written; empty: all
};

// The entries of an access description. `Member` is a pointer to a member of the struct: a Tensor, or a struct that has
// an access description itself.
template <class Member>
struct AccessEntry {
  Access access;
  Member member;
};
template <class Flag, class Member>
struct AddedIfEntry {
  Access access;  // if the flag is set
  Flag flag;
  Member member;
};
template <class Rows, class Member>
struct WrittenRowsEntry {
  Rows rows;
  Member member;
};
template <class Member, class Range>
struct WrittenRangeEntry {
  Member member;
  Range range;
};
template <class Member>
struct PartEntry {
  Member member;
};

template <class... M>
requires(std::is_member_pointer_v<M>&&...) constexpr auto written(M... members) {
  return std::make_tuple(AccessEntry<M>{Access::written, members}...);
}
template <class... M>
requires(std::is_member_pointer_v<M>&&...) constexpr auto updated(M... members) {
  return std::make_tuple(AccessEntry<M>{Access::updated, members}...);
}
template <class... M>
requires(std::is_member_pointer_v<M>&&...) constexpr auto added(M... members) {
  return std::make_tuple(AccessEntry<M>{Access::added, members}...);
}
template <class... M>
requires(std::is_member_pointer_v<M>&&...) constexpr auto added_once(M... members) {
  return std::make_tuple(AccessEntry<M>{Access::added_once, members}...);
}
template <class... M>
requires(std::is_member_pointer_v<M>&&...) constexpr auto read(M... members) {
  return std::make_tuple(AccessEntry<M>{Access::read, members}...);
}
template <class... M>
requires(std::is_member_pointer_v<M>&&...) constexpr auto prefetched(M... members) {
  return std::make_tuple(AccessEntry<M>{Access::prefetched, members}...);
}
// added, or added_once, if the bool member `flag` is set, else written.
template <class Flag, class Member>
constexpr auto added_if(Flag flag, Member member) {
  return std::make_tuple(AddedIfEntry<Flag, Member>{Access::added, flag, member});
}
template <class Flag, class Member>
constexpr auto added_once_if(Flag flag, Member member) {
  return std::make_tuple(AddedIfEntry<Flag, Member>{Access::added_once, flag, member});
}
// Only the rows that the i32 member `rows` names are written.
template <class Rows, class... M>
constexpr auto written_rows(Rows rows, M... members) {
  return std::make_tuple(WrittenRowsEntry<Rows, M>{rows, members}...);
}
// Only a range of columns is written: `range` is a member function that returns it as a Tensor.
template <class Member, class Range>
constexpr auto written_range(Member member, Range range) {
  return std::make_tuple(WrittenRangeEntry<Member, Range>{member, range});
}
// Structs inside of the struct, as their own access descriptions say.
template <class... M>
requires(std::is_member_pointer_v<M>&&...) constexpr auto parts(M... members) {
  return std::make_tuple(PartEntry<M>{members}...);
}
template <class... Entries>
constexpr auto op_access(Entries... entries) {
  return std::tuple_cat(entries...);
}

namespace access_detail {

template <class Args, class M, class Visit>
void visit_entry(Args& args, const AccessEntry<M>& entry, const Visit& visit) {
  auto& tensor = args.*entry.member;
  visit(tensor, TensorAccess{entry.access, tensor, {}});
}
template <class Args, class Flag, class M, class Visit>
void visit_entry(Args& args, const AddedIfEntry<Flag, M>& entry, const Visit& visit) {
  auto& tensor = args.*entry.member;
  visit(tensor, TensorAccess{args.*entry.flag ? entry.access : Access::written, tensor, {}});
}
template <class Args, class Rows, class M, class Visit>
void visit_entry(Args& args, const WrittenRowsEntry<Rows, M>& entry, const Visit& visit) {
  auto& tensor = args.*entry.member;
  visit(tensor, TensorAccess{Access::written, tensor, args.*entry.rows});
}
template <class Args, class M, class Range, class Visit>
void visit_entry(Args& args, const WrittenRangeEntry<M, Range>& entry, const Visit& visit) {
  auto& tensor = args.*entry.member;
  visit(tensor, TensorAccess{Access::written, tensor ? (args.*entry.range)() : tensor, {}});
}
template <class Args, class M, class Visit>
void visit_entry(Args& args, const PartEntry<M>& entry, const Visit& visit);

}  // namespace access_detail

// Calls visit(tensor, TensorAccess) for each Tensor of the struct, the empty ones included. `tensor` is const if args
// is.
template <class Args, class Visit>
void for_each_access(Args& args, const Visit& visit) {
  std::apply([&](const auto&... entries) { (access_detail::visit_entry(args, entries, visit), ...); }, Args::access);
}

template <class Args, class M, class Visit>
void access_detail::visit_entry(Args& args, const PartEntry<M>& entry, const Visit& visit) {
  for_each_access(args.*entry.member, visit);
}

}  // namespace hone
