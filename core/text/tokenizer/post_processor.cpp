#include "core/text/tokenizer/post_processor.h"

#include "core/text/tokenizer/tokenizer_fields.h"

namespace hone {
namespace {

int32_t checked_id(const Json& json, const std::string& where) {
  const int64_t id = json.as_int(where);
  HONE_CHECK(id >= 0 && id <= INT32_MAX, where, ": ", id, " is not a token id");
  return static_cast<int32_t>(id);
}

void wrap(DocumentFrame& frame, const std::vector<int32_t>& before, const std::vector<int32_t>& after) {
  frame.before.insert(frame.before.begin(), before.begin(), before.end());
  frame.after.insert(frame.after.end(), after.begin(), after.end());
}

void read_template(const Json& json, const std::string& where, DocumentFrame& frame) {
  std::vector<int32_t> sides[2];
  size_t side = 0;
  const std::string place = where + ".single";
  for (const Json& piece : json.at("single", where).as_array(place)) {
    piece.as_object(place);
    if (piece.find("Sequence")) {
      HONE_CHECK(side == 0, place, ": the sequence appears twice");
      side = 1;
      continue;
    }
    const std::string name =
        piece.at("SpecialToken", place).at("id", place + ".SpecialToken").as_string(place + ".SpecialToken.id");
    const std::string entry = where + ".special_tokens." + name;
    for (const Json& id :
         json.at("special_tokens", where).at(name, where + ".special_tokens").at("ids", entry).as_array(entry + ".ids"))
      sides[side].push_back(checked_id(id, entry + ".ids"));
  }
  wrap(frame, sides[0], sides[1]);
}

// "cls" and "sep": [token, id].
void read_cls_sep(const Json& json, const std::string& where, DocumentFrame& frame) {
  const auto id_of = [&](const char* key) {
    const JsonArray& pair = json.at(key, where).as_array(where + "." + key);
    HONE_CHECK(pair.size() == 2, where, ".", key, ": must be a token and its id");
    return checked_id(pair[1], where + "." + key + "[1]");
  };
  wrap(frame, {id_of("cls")}, {id_of("sep")});
}

const bool added = [] {
  auto& all = post_processors();
  all.add("ByteLevel", [](const Json&, const std::string&, DocumentFrame&) {});
  all.add("TemplateProcessing", read_template);
  all.add("BertProcessing", read_cls_sep);
  all.add("RobertaProcessing", read_cls_sep);
  return all.add("Sequence", [](const Json& json, const std::string& where, DocumentFrame& frame) {
    size_t index = 0;
    for (const Json& part : json.at("processors", where).as_array(where + ".processors"))
      read_post_processor(part, concat(where, ".processors[", index++, "]"), frame);
  });
}();

}  // namespace

Registry<PostProcessorReader>& post_processors() {
  static Registry<PostProcessorReader> instance("post-processor");
  return instance;
}

Json post_processor_json(const std::optional<FrameToken>& before, const std::optional<FrameToken>& after) {
  if (!before && !after) return {};
  Json tokens = JsonObject{};
  JsonArray single, pair;
  const auto add_sequence = [&](JsonArray& out, const char* name, int type) {
    const auto add_token = [&](const std::optional<FrameToken>& token) {
      if (!token) return;
      out.push_back(JsonObject{{"SpecialToken", JsonObject{{"id", token->text}, {"type_id", type}}}});
      tokens.set(token->text,
                 JsonObject{{"id", token->text}, {"ids", JsonArray{token->id}}, {"tokens", JsonArray{token->text}}});
    };
    add_token(before);
    out.push_back(JsonObject{{"Sequence", JsonObject{{"id", name}, {"type_id", type}}}});
    add_token(after);
  };
  add_sequence(single, "A", 0);
  add_sequence(pair, "A", 0);
  add_sequence(pair, "B", 1);
  return JsonObject{{"type", "TemplateProcessing"},
                    {"single", std::move(single)},
                    {"pair", std::move(pair)},
                    {"special_tokens", std::move(tokens)}};
}

void read_post_processor(const Json& json, const std::string& where, DocumentFrame& frame) {
  if (!json.is_null()) at_type(post_processors(), json, where)(json, where, frame);
}

}  // namespace hone
