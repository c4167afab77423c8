#include "data/calibration_text.h"

#include "data/dataset.h"

namespace hone {
namespace {

std::vector<int32_t> given_ids(const Json& ids, int64_t vocab_size, const std::string& where) {
  std::vector<int32_t> out;
  for (const Json& id : ids.as_array(where)) {
    const int64_t value = id.as_int(where);
    HONE_CHECK(value >= 0 && value < vocab_size, where, ": id ", value,
               " is not in the vocabulary; ids must be in [0, ", vocab_size, ")");
    out.push_back(static_cast<int32_t>(value));
  }
  return out;
}

std::vector<int32_t> conversation_ids(SampleBuilder& builder, const Json& row, const std::string& where) {
  if (const Json* messages = row.find("messages"))
    return builder.conversation(parse_messages(*messages, where), false, row, where).tokens;
  HONE_CHECK(row.find("prompt") && row.find("completion"), where,
             ": the row has no text to measure; give the column text, ids or messages, or prompt and completion");
  return builder.prompt_completion(fill_text("{prompt}", row, where), fill_text("{completion}", row, where), row, where)
      .tokens;
}

}  // namespace

std::vector<std::vector<int32_t>> read_calibration_text(const CalibrationRows& rows, const Tokenizer* tokenizer) {
  const SampleFormat format;
  std::optional<SampleBuilder> builder;
  if (tokenizer) builder.emplace(format, *tokenizer);
  RowSource source;
  source.files = {rows.data};
  source.limit = rows.limit;
  std::vector<std::vector<int32_t>> out;
  read_rows(source, [&](const Json& row, const std::string& where) {
    const Json *ids = row.find("ids"), *text = row.find("text");
    HONE_CHECK(ids || builder, where, ": the model has no tokenizer for this row; give token ids in the column ids");
    std::vector<int32_t> sequence = ids    ? given_ids(*ids, rows.vocab_size, where)
                                    : text ? tokenizer->encode_document(text->as_string(where))
                                           : conversation_ids(*builder, row, where);
    if (std::ssize(sequence) > rows.max_length) sequence.resize(static_cast<size_t>(rows.max_length));
    if (sequence.size() > 1) out.push_back(std::move(sequence));
  });
  HONE_CHECK(!out.empty(), rows.data, ": no row has two tokens or more");
  return out;
}

}  // namespace hone
