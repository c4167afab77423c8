#include "train/json/logits_json.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace hone {
namespace {

constexpr std::array known_fields = {
    "student_logits", "teacher_logits", "student_logprobs", "teacher_logprobs", "teacher_top_ids",   "teacher_top_logp",
    "labels",         "mask",           "reduction",        "config",           "num_items_in_batch"};
constexpr double ignored_label = -100;

bool is_table(const Json& value) {
  return value.is_array() && !value.as_array().empty() && value.as_array()[0].is_array();
}

// Positions of all sequences, end to end.
struct Positions {
  bool nested = false;          // the file has the level of sequences
  std::vector<size_t> lengths;  // positions of each sequence
  std::vector<std::vector<double>> logits;
};

class LogitsReader {
 public:
  LogitsReader(const Json& input, std::string_view source) : input_(input), source_(source) {
    for (const auto& [key, unused] : input.as_object(source_))
      HONE_CHECK(std::ranges::find(known_fields, key) != known_fields.end(), source_, ": unknown field '", key,
                 "'; with logits the fields are ",
                 join(std::vector<std::string>(known_fields.begin(), known_fields.end())));
  }

  // `whose` is student or teacher.
  Positions logits(const std::string& whose) const {
    std::string name = whose + "_logits";
    const Json *value = input_.find(name), *other = input_.find(whose + "_logprobs");
    HONE_CHECK(value || other, source_, ": has no ", name, " (nor ", whose, "_logprobs)");
    HONE_CHECK(!value || !other, source_, ": has both ", name, " and ", whose, "_logprobs; give one");
    if (!value) {
      value = other;
      name = whose + "_logprobs";
    }
    return read(*value, name);
  }
  // The field [number] of each position.
  Positions table(const std::string& name) const { return read(input_.at(name, source_), name); }

  // 1 for each position in the loss; empty without labels and mask.
  std::vector<double> mask(const Positions& positions) const {
    const Json *labels = input_.find("labels"), *mask = input_.find("mask");
    HONE_CHECK(!labels || !mask, source_, ": has both labels and mask; give one");
    const Json* const value = labels ? labels : mask;
    std::vector<double> out;
    if (!value) return out;
    const char* const name = labels ? "labels" : "mask";
    const bool nested = is_table(*value);
    HONE_CHECK(nested == positions.nested, source_, ": ", name, " is not nested as the logits' positions");
    size_t sequences = 0;
    for_each_sequence(*value, nested, [&](const Json& sequence, size_t s) {
      const size_t count = sequence.as_array(name).size();
      HONE_CHECK(s < positions.lengths.size() && count == positions.lengths[s], source_, ": ", name, "[", s, "] has ",
                 count, " entries, which are not as many as the logits' positions");
      for (const Json& entry : sequence.as_array(name)) {
        const double number = entry.is_bool() ? static_cast<double>(entry.as_bool()) : entry.as_double(name);
        HONE_CHECK(labels || number == 0 || number == 1, source_, ": mask is ", number, " in sequence ", s,
                   "; it must be 0 or 1");
        out.push_back(labels ? (number == ignored_label ? 0 : 1) : number);
      }
      ++sequences;
    });
    HONE_CHECK(sequences == positions.lengths.size(), source_, ": ", name, " has ", sequences,
               " sequences, the logits have ", positions.lengths.size());
    return out;
  }

  // What the sum over positions is divided by.
  double divisor(const Positions& positions, std::span<const double> mask) const {
    if (const Json* items = input_.find("num_items_in_batch"); items && !items->is_null()) {
      const double count = items->as_double("num_items_in_batch");
      HONE_CHECK(count > 0, source_, ": num_items_in_batch must be above 0");
      return count;
    }
    const Json* const given = input_.find("reduction");
    const std::string reduction = given ? given->as_string("reduction") : "batchmean";
    double count = 0;
    for (const double m : mask) count += m;
    if (reduction == "sum") return 1;
    if (reduction == "mean") {
      const double all = mask.empty() ? static_cast<double>(positions.logits.size()) : count;
      return std::max(all, 1.0) * static_cast<double>(positions.logits.empty() ? 1 : positions.logits[0].size());
    }
    HONE_CHECK(reduction == "batchmean", source_, ": reduction = '", reduction,
               "' is unknown; known: batchmean, sum, mean");
    if (!mask.empty()) return std::max(count, 1.0);
    const size_t outermost = positions.nested ? positions.lengths.size() : positions.logits.size();
    return std::max(static_cast<double>(outermost), 1.0);
  }

 private:
  Positions read(const Json& value, const std::string& name) const {
    Positions out;
    out.nested = is_table(value) && is_table(value.as_array()[0]);
    for_each_sequence(value, out.nested, [&](const Json& sequence, size_t) {
      const JsonArray& rows = sequence.as_array(name);
      out.lengths.push_back(rows.size());
      for (const Json& row : rows) {
        std::vector<double>& numbers = out.logits.emplace_back();
        for (const Json& number : row.as_array(name)) numbers.push_back(number_of(number, name));
        HONE_CHECK(!numbers.empty(), source_, ": ", name, " has a position without numbers");
      }
    });
    return out;
  }

  static double number_of(const Json& value, const std::string& name) {
    if (value.is_null()) return -std::numeric_limits<double>::infinity();  // a token that the model excludes
    return value.as_double(name);
  }
  template <class Visit>
  static void for_each_sequence(const Json& value, bool nested, Visit visit) {
    if (!nested) return visit(value, size_t{0});
    size_t s = 0;
    for (const Json& sequence : value.as_array()) visit(sequence, s++);
  }

  const Json& input_;
  std::string_view source_;
};

// Nests one entry a position as the file does.
template <class Entry>
Json nest(const Positions& positions, std::vector<Entry> entries) {
  JsonArray sequences;
  auto next = entries.begin();
  for (const size_t length : positions.lengths) {
    JsonArray rows;
    for (size_t i = 0; i < length; ++i, ++next) {
      if constexpr (std::is_same_v<Entry, double>)
        rows.push_back(Json(*next));
      else
        rows.push_back(Json::array(std::span<const double>(*next)));
    }
    sequences.push_back(std::move(rows));
  }
  if (positions.nested) return sequences;
  return sequences.empty() ? Json(JsonArray()) : sequences[0];
}

}  // namespace

bool has_logits(const Json& input) {
  return std::ranges::any_of(known_fields, [&](std::string_view name) {
    return name.starts_with("student_") || name.starts_with("teacher_") ? input.find(name) != nullptr : false;
  });
}

namespace {

// What a position compares the student with: logits, or the most likely tokens.
class TeacherPositions {
 public:
  TeacherPositions(const LogitsReader& reader, const TeacherObjective::Term& term, const Positions& student,
                   std::string_view source)
      : term_(term), source_(source) {
    if (term.stored) {
      ids_ = reader.table("teacher_top_ids");
      logits_ = reader.table("teacher_top_logp");
    } else {
      logits_ = reader.logits("teacher");
    }
    for (const Positions* one : {&logits_, term.stored ? &ids_ : &logits_})
      HONE_CHECK(student.lengths == one->lengths && student.nested == one->nested, source,
                 ": student and teacher do not have numbers of the same positions");
  }

  // The divergence of position i, whose gradient is written.
  double run(size_t i, const std::vector<double>& student, double weight, std::vector<double>& gradient) const {
    const std::vector<double>& other = logits_.logits[i];
    const auto V = std::ssize(student);
    if (!term_.stored) {
      HONE_CHECK(other.size() == student.size(), source_, ": position ", i, " has ", V, " logits of the student and ",
                 other.size(), " of the teacher: distillation needs one vocabulary");
      return distill_row(student.data(), other.data(), V, term_.divergence, weight, gradient.data());
    }
    const std::vector<double>& given = ids_.logits[i];
    HONE_CHECK(given.size() == other.size(), source_, ": position ", i, " has ", given.size(),
               " ids in teacher_top_ids and ", other.size(), " log-probs in teacher_top_logp");
    std::vector<int32_t> ids;
    for (const double id : given) {
      HONE_CHECK(id >= 0 && id < static_cast<double>(V) && id == std::floor(id), source_, ": teacher_top_ids of ",
                 "position ", i, " has ", id, "; ids are integers below the ", V, " logits of the student");
      HONE_CHECK(std::ranges::find(ids, static_cast<int32_t>(id)) == ids.end(), source_, ": teacher_top_ids of ",
                 "position ", i, " has ", id, " twice");
      ids.push_back(static_cast<int32_t>(id));
    }
    return distill_top_row(student.data(), V, {ids.data(), other.data(), std::ssize(ids)},
                           term_.divergence.inv_temperature, term_.rest, weight, gradient.data());
  }

 private:
  const TeacherObjective::Term term_;
  const std::string source_;
  Positions logits_, ids_;
};

}  // namespace

Json evaluate_on_logits(const TeacherObjective& objective, const Json& input, std::string_view source) {
  const LogitsReader reader(input, source);
  const TeacherObjective::Term& term = objective.term();
  HONE_CHECK(term.weight != 0, source, ": loss = 'sampled' reads logp and teacher_logp, not logits");
  const Positions student = reader.logits("student");
  const TeacherPositions teacher(reader, term, student, source);
  const std::vector<double> mask = reader.mask(student);
  const double scale = term.weight / reader.divisor(student, mask);
  double loss = 0;
  std::vector<double> divergences;
  std::vector<std::vector<double>> gradients;
  for (size_t i = 0; i < student.logits.size(); ++i) {
    const std::vector<double>& own = student.logits[i];
    HONE_CHECK(own.size() == student.logits[0].size(), source, ": position ", i, " has ", own.size(),
               " logits of the student, and the first has ", student.logits[0].size());
    const double weight = mask.empty() ? 1 : mask[i];
    std::vector<double>& gradient = gradients.emplace_back(own.size());
    divergences.push_back(weight == 0 ? 0 : teacher.run(i, own, scale * weight, gradient));
    loss += scale * weight * divergences.back();
  }
  Json out = JsonObject{};
  out.set("loss", loss);
  out.set("grad", nest(student, std::move(gradients)));
  out.set("divergence", nest(student, std::move(divergences)));
  out.set("advantages", nullptr);
  out.set("metrics", Json(JsonObject{}));
  return out;
}

}  // namespace hone
