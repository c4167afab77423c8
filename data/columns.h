#pragma once
// Columns: named arrays of floats that belong to a sample. What a run computes for a sample's tokens (log-probs,
// advantages, values) is a column. An objective that needs one more registers it in its own file: staging, checkpoints,
// dumps and `hone objective` go over all registered columns.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/check.h"

namespace hone {

struct ColumnInfo {
  std::string doc;            // what an entry is
  bool per_sequence = false;  // one entry for a whole sequence; else one for each token
  int width = 1;              // floats of an entry
  bool checkpointed = false;  // saved with the groups that wait for their step
  // Field of older `hone objective` files that the column is read from if its own is absent; "": none.
  std::string alias = "";
};

// A registered column. Handles are values; two are equal if they name the same column.
class Column {
 public:
  const std::string& name() const { return entry_->name; }
  const ColumnInfo& info() const { return entry_->info; }
  size_t index() const { return entry_->index; }  // in the order of registration, which no result may depend on
  // Floats of the column for this many sequences, which have num_tokens tokens together.
  size_t size(size_t num_sequences, size_t num_tokens) const {
    return (info().per_sequence ? num_sequences : num_tokens) * static_cast<size_t>(info().width);
  }
  bool operator==(const Column&) const = default;

 private:
  struct Entry {
    std::string name;
    ColumnInfo info;
    size_t index;
  };
  explicit Column(const Entry* entry) : entry_(entry) {}
  friend Column register_column(std::string name, ColumnInfo info);

  const Entry* entry_;
};

// Adds a column at start-up: `inline const Column margin = register_column("margin", {...});`. A second column of the
// same name is an Error. Not to be called once threads run.
Column register_column(std::string name, ColumnInfo info);
// Every registered column, by name.
const std::vector<Column>& all_columns();
// The column of this name, or null.
const Column* find_column(std::string_view name);

// Entry t of a column belongs to token t, given the tokens before it.
namespace columns {

inline const Column mask = register_column(
    "mask", {.doc = "1 where a token is trained on; a sequence's first token has 0", .checkpointed = true});
// Under the weights that are trained. The trainer computes them for each micro-batch; samples do not hold them.
inline const Column logp = register_column("logp", {.doc = "log-prob under the weights that are trained"});
inline const Column entropy = register_column("entropy", {.doc = "entropy of the policy's next-token distribution"});
inline const Column value = register_column("value", {.doc = "the critic's value under the weights that are trained"});
// Of samples, computed before the step.
inline const Column behavior_logp =
    register_column("behavior_logp", {.doc = "log-prob in the distribution sampled from", .checkpointed = true});
inline const Column old_logp = register_column("old_logp", {.doc = "the learner's log-prob before the step's epochs"});
inline const Column reference_logp = register_column("reference_logp", {.doc = "log-prob under the reference model"});
inline const Column old_value = register_column("old_value", {.doc = "the critic's value before the step's epochs"});
inline const Column advantage =
    register_column("advantage", {.doc = "credit after baselines, from rewards", .alias = "advantages"});
inline const Column returns = register_column("returns", {.doc = "what the critic is to predict, from rewards"});

}  // namespace columns

[[noreturn]] void fail_absent(Column column);

// A table from columns to their entries. Values is std::vector<float>, or a span for a view. A column without entries
// is absent.
template <class Values>
class ColumnTable {
 public:
  bool has(Column column) const { return !find(column).empty(); }
  // An empty span if the column is absent.
  std::span<const float> find(Column column) const {
    return column.index() < values_.size() ? std::span<const float>(values_[column.index()]) : std::span<const float>();
  }
  // An absent column is an Error that names it.
  std::span<const float> operator[](Column column) const {
    const std::span<const float> found = find(column);
    if (found.empty()) fail_absent(column);
    return found;
  }
  void set(Column column, Values values) { slot(column) = std::move(values); }
  void erase(Column column) { slot(column) = {}; }
  // Calls visit(column, values) for each present column, in the order of names.
  template <class Visit>
  void for_each(Visit visit) const {
    for (const Column column : all_columns())
      if (has(column)) visit(column, find(column));
  }

 protected:
  Values& slot(Column column) {
    if (column.index() >= values_.size()) values_.resize(column.index() + 1);
    return values_[column.index()];
  }
  std::vector<Values> values_;  // by Column::index()
};

using ColumnViews = ColumnTable<std::span<const float>>;

// The columns of one sample, or of several end to end.
class Columns : public ColumnTable<std::vector<float>> {
 public:
  using ColumnTable::operator[];
  std::span<float> operator[](Column column) {
    if (!has(column)) fail_absent(column);
    return slot(column);
  }
  void assign(Column column, size_t count, float value) { slot(column).assign(count, value); }
  void append(Column column, std::span<const float> values) {
    std::vector<float>& own = slot(column);
    own.insert(own.end(), values.begin(), values.end());
  }
  // Leaves each column that has an entry for each token with those of the first num_tokens.
  void truncate(size_t num_tokens);
  // Removes every column and keeps the memory.
  void clear() {
    for (std::vector<float>& values : values_) values.clear();
  }
};

}  // namespace hone
