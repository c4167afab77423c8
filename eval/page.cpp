#include "eval/page.h"

#include "core/base/format.h"
#include "core/io/page_style.h"
#include "core/text/unicode/unicode.h"

namespace hone {
namespace {

constexpr std::string_view head = R"(<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<style>
)";

// What the shared style (core/io/page_style.css) does not have.
constexpr std::string_view own_style = R"(body { max-width: 74rem; margin: 1.5rem auto; padding: 0 1.25rem; }
td:first-child, th:first-child, td:nth-child(2), th:nth-child(2) { text-align: left; }
details { border-left: 4px solid var(--line); margin: .3rem 0; padding: .1rem .6rem; }
details.right { border-color: var(--good); }
details.wrong { border-color: var(--bad); }
summary { cursor: pointer; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
#controls { position: sticky; top: 0; background: var(--bg); padding: .5rem 0; }
</style>
)";

constexpr std::string_view script = R"(<script>
const task = document.getElementById("task"), verdict = document.getElementById("verdict"), words = document.getElementById("words");
const samples = [...document.querySelectorAll("details[data-task]")];
function filter() {
  const wanted = words.value.toLowerCase();
  let count = 0;
  for (const sample of samples) {
    sample.hidden = (task.value && sample.dataset.task !== task.value) || (verdict.value && !sample.classList.contains(verdict.value)) ||
      (wanted && !sample.textContent.toLowerCase().includes(wanted));
    count += !sample.hidden;
  }
  document.getElementById("count").textContent = count + " shown";
}
for (const control of [task, verdict, words]) control.addEventListener("input", filter);
filter();
</script>
)";

std::string block(std::string_view name, std::string_view text) {
  return concat("<b>", html_text(name), "</b><pre>", html_text(text), "</pre>\n");
}

// A message's role and text, and the tool calls that it makes.
std::string message_text(const std::string& role, const Json& message) {
  const Json *content = message.find("content"), *calls = message.find("tool_calls");
  return "[" + role + "]\n" + (content && content->is_string() ? content->as_string() : "") +
         (calls ? "\n" + calls->dump() : "");
}

std::string readable(const Json& value) {
  if (value.is_string()) return value.as_string();
  if (!value.is_array()) return value.dump(2);
  std::string out;
  for (const Json& item : value.as_array()) {
    const Json* role = item.find("role");
    out += (out.empty() ? "" : "\n") + (role               ? message_text(role->as_string(), item)
                                        : item.is_string() ? item.as_string()
                                                           : item.dump());
  }
  return out;
}

const Json* find(const JsonObject& object, std::string_view name) {
  for (const auto& [key, value] : object)
    if (key == name) return &value;
  return nullptr;
}

std::string_view verdict_of(const EvalSample& sample) {
  const Json* correct = find(sample.details, "correct");
  return !correct ? "unjudged" : correct->as_bool() ? "right" : "wrong";
}

std::string sample_html(const EvalResult& result, const EvalSample& sample) {
  const std::string_view verdict = verdict_of(sample);
  std::string out = concat("<details class=\"", verdict, "\" data-task=\"", html_text(result.task), "\"><summary>",
                           html_text(result.task), " #", sample.doc_id, " ",
                           verdict == "right"   ? "&#10003;"
                           : verdict == "wrong" ? "&#10007;"
                                                : "");
  if (!sample.subtask.empty()) out += " " + html_text(sample.subtask);
  const std::string prompt = readable(sample.prompt);
  constexpr size_t summary = 160, longest = 20000;
  out += " <code>" + html_text(std::string_view(prompt).substr(prompt.size() > summary ? prompt.size() - summary : 0)) +
         "</code></summary>\n";
  out += block("prompt", prompt.size() > longest ? prompt.substr(0, longest) + " ..." : prompt);
  if (!sample.target.empty()) out += block("reference", sample.target);
  for (const auto& [name, value] : sample.details)
    if (name != "correct") out += block(name, readable(value));
  std::string figures;
  for (const auto& [name, observation] : sample.metrics)
    figures += name + " " + number_text(observation.value / observation.weight) + "\n";
  return out + block("metrics", figures) + "</details>\n";
}

std::string table_row(const std::string& task, const std::string& name, const Figure& figure) {
  const std::string error = figure.stderr_value ? format_text("&plusmn; %.4f", *figure.stderr_value) : "";
  const std::string interval =
      figure.interval ? format_text("[%.4f, %.4f]", figure.interval->low, figure.interval->high) : "";
  return "<tr><td>" + html_text(task) + "</td><td>" + html_text(name) +
         (figure.higher_is_better ? " &uarr;" : " &darr;") + "</td>" +
         format_text("<td>%.4f</td><td>%s</td><td>%s</td></tr>\n", figure.value, error.c_str(), interval.c_str());
}

constexpr std::string_view table_head =
    "<table><tr><th>task</th><th>metric</th><th>value</th><th>stderr</th><th>bootstrap 95%</th></tr>\n";

std::string about_html(const std::vector<std::pair<std::string, std::string>>& about) {
  std::string out = "<table class=\"about\">\n";
  for (const auto& [name, value] : about)
    out += "<tr><td>" + html_text(name) + "</td><td><code>" + html_text(value) + "</code></td></tr>\n";
  return out + "</table>\n<p></p>\n";
}

std::string subtasks_html(const EvalResult& result) {
  std::string out = concat("<details><summary>", html_text(result.task), ": ", result.subtasks.size(),
                           " subtasks</summary>\n", table_head);
  for (const auto& [subtask, figures] : result.subtasks)
    for (const auto& [name, figure] : figures) out += table_row(subtask, name, figure);
  return out + "</table></details>\n";
}

}  // namespace

std::string html_text(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    at += c.length;
    switch (c.value) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        append_utf8(out,
                    (c.value < ' ' && c.value != '\n' && c.value != '\t') || c.value == 0x7f ? U'\ufffd' : c.value);
    }
  }
  return out;
}

std::string html_page(const std::string& title, const std::vector<EvalResult>& results,
                      const std::vector<std::string>& charts,
                      const std::vector<std::pair<std::string, std::string>>& about, size_t shown) {
  std::string out = "<!doctype html>\n<html lang=\"en\">\n<title>" + html_text(title) + "</title>\n" +
                    concat(head, page_style(), own_style) + "<h1>" + html_text(title) + "</h1>\n";
  if (!about.empty()) out += about_html(about);
  out += std::string(table_head);
  for (const EvalResult& result : results)
    for (const auto& [name, figure] : result.figures) out += table_row(result.task, name, figure);
  out += "</table>\n";
  for (const EvalResult& result : results)
    if (!result.subtasks.empty()) out += subtasks_html(result);
  for (const std::string& chart : charts) out += "<p>" + chart + "</p>\n";

  out += "<h2>Samples</h2>\n<p id=\"controls\"><select id=\"task\"><option value=\"\">all tasks</option>";
  for (const EvalResult& result : results) out += "<option>" + html_text(result.task) + "</option>";
  out +=
      "</select> <select id=\"verdict\"><option value=\"\">right and "
      "wrong</option><option>right</option><option>wrong</option></select> "
      "<input id=\"words\" type=\"search\" placeholder=\"words\"> <span id=\"count\"></span></p>\n";
  for (const EvalResult& result : results) {
    size_t right = 0, others = 0, left_out = 0;
    for (const EvalSample& sample : result.samples) {
      size_t& count = verdict_of(sample) == "right" ? right : others;
      if (count++ < shown)
        out += sample_html(result, sample);
      else
        ++left_out;
    }
    if (left_out > 0)
      out += concat("<p>", left_out, " more samples of ", html_text(result.task), " are in its JSON Lines file.</p>\n");
  }
  return out + std::string(script) + "</html>\n";
}

}  // namespace hone
