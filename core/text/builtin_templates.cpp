// The texts follow the formats of the models' cards. Without {% generation %} marks they give the text of the published
// templates (tests/core/text/builtin_templates_test.cpp).
#include "core/text/builtin_templates.h"

#include <algorithm>

namespace hone {
namespace {

constexpr std::string_view kAlpaca = R"({{ bos_token }}
{%- for message in messages -%}
{% if message.role == 'system' and loop.first %}
{{- message.content -}}
{% elif message.role == 'user' %}
{{- '### Instruction:\n' + message.content -}}
{% elif message.role == 'assistant' %}
{{- '### Response:\n' -}}
{% generation %}{{ message.content + eos_token }}{% endgeneration %}
{% endif %}
{%- if not loop.last %}{{ '\n\n' }}{% endif %}
{%- endfor -%}
{% if add_generation_prompt %}{{ '\n\n### Response:\n' }}{% endif %}
)";

constexpr std::string_view kChatml = R"({% for message in messages %}
{{- '<|im_start|>' + message.role + '\n' -}}
{% if message.role == 'assistant' %}
{% generation %}{{ (message.content or '') + '<|im_end|>' }}{% endgeneration %}
{% else %}
{{- message.content + '<|im_end|>' -}}
{% endif %}
{{- '\n' -}}
{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}
)";

// Gemma 3's: a system message is the beginning of the first question.
constexpr std::string_view kGemma = R"({{ bos_token }}
{%- set ns = namespace(system='') -%}
{% for message in messages %}
{%- if message.role == 'system' %}
{%- set ns.system = message.content + '\n\n' -%}
{% else %}
{{- '<start_of_turn>' + ('model' if message.role == 'assistant' else message.role) + '\n' -}}
{% if message.role == 'assistant' %}
{% generation %}{{ message.content | trim + '<end_of_turn>' }}{% endgeneration %}
{% else %}
{{- ns.system + message.content | trim + '<end_of_turn>' -}}
{%- set ns.system = '' -%}
{% endif %}
{{- '\n' -}}
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}
)";

constexpr std::string_view kLlama3 = R"({{ bos_token }}
{%- for message in messages -%}
{{ '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' -}}
{% if message.role == 'assistant' %}
{% generation %}{{ (message.content or '') | trim + '<|eot_id|>' }}{% endgeneration %}
{% else %}
{{- message.content | trim + '<|eot_id|>' -}}
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}
)";

// Mistral Nemo's: a system message is the beginning of the last question.
constexpr std::string_view kMistral = R"({{ bos_token }}
{%- set system = messages[0].content + '\n\n' if messages[0].role == 'system' else '' -%}
{% for message in messages %}
{%- if message.role == 'user' %}
{{- '[INST]' + (system if loop.last else '') + message.content + '[/INST]' -}}
{% elif message.role == 'assistant' %}
{%- generation %}{{ message.content + eos_token }}{% endgeneration %}
{% elif message.role != 'system' or not loop.first %}
{{- raise_exception('the template mistral has only system (first), user and assistant messages, not ' + message.role) -}}
{% endif %}
{%- endfor %}
)";

constexpr std::string_view kPhi3 = R"({% for message in messages %}
{{- '<|' + message.role + '|>\n' -}}
{% if message.role == 'assistant' %}
{% generation %}{{ message.content + '<|end|>' }}{% endgeneration %}
{% else %}
{{- message.content + '<|end|>' -}}
{% endif %}
{{- '\n' -}}
{% endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}
)";

// No headers. with_builtin_template() puts the BOS before it if the tokenizer begins documents with one.
constexpr std::string_view kPlain = R"({% for message in messages -%}
{% if message.role == 'assistant' %}
{% generation %}{{ message.content + (eos_token or '') }}{% endgeneration %}
{% else %}
{{- message.content + '\n' -}}
{% endif %}
{%- endfor %}
)";

// Qwen2.5's: Hermes tool calls, and a system message if there is none.
constexpr std::string_view kQwen =
    R"({%- set system = messages[0].content if messages[0].role == 'system' else 'You are Qwen, created by Alibaba Cloud. You are a helpful assistant.' -%}
{{ '<|im_start|>system\n' + system -}}
{% if tools %}
{{- '\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with function signatures within <tools></tools> XML tags:\n<tools>' -}}
{% for tool in tools %}{{ '\n' + tool | tojson }}{% endfor %}
{{- '\n</tools>\n\nFor each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>' -}}
{% endif %}
{{- '<|im_end|>\n' -}}
{% for message in messages %}
{%- if message.role == 'tool' %}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{ '<|im_start|>user' }}{% endif %}
{{- '\n<tool_response>\n' + message.content + '\n</tool_response>' -}}
{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\n' }}{% endif %}
{%- elif message.role == 'assistant' %}
{{- '<|im_start|>assistant\n' -}}
{% generation %}
{{- message.content or '' -}}
{% for call in message.tool_calls or [] %}
{%- if message.content or not loop.first %}{{ '\n' }}{% endif %}
{%- set call = call.function or call -%}
{{ '<tool_call>\n{"name": "' + call.name + '", "arguments": ' + call.arguments | tojson + '}\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>' -}}
{% endgeneration %}
{{- '\n' -}}
{% elif message.role != 'system' or not loop.first %}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' -}}
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}
)";

// Stands before kChatml: a system message if there is none.
constexpr std::string_view kSmollm2Start = R"({% if messages[0].role != 'system' %}
{{- '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' -}}
{% endif %}
)";

constexpr std::string_view kZephyr = R"({% for message in messages %}
{{- '<|' + message.role + '|>\n' -}}
{% if message.role == 'assistant' %}
{% generation %}{{ message.content + eos_token }}{% endgeneration %}
{% else %}
{{- message.content + eos_token -}}
{% endif %}
{{- '\n' -}}
{% endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}
)";

}  // namespace

std::span<const BuiltinTemplate> builtin_templates() {
  static const std::string smollm2 = concat(kSmollm2Start, kChatml);
  static const std::vector<BuiltinTemplate> all = {
      {"alpaca", kAlpaca, {}},
      {"chatml", kChatml, {"<|im_start|>", "<|im_end|>"}},
      {"gemma", kGemma, {"<start_of_turn>", "<end_of_turn>"}},
      {"llama3", kLlama3, {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}},
      {"mistral", kMistral, {}},
      {"phi3", kPhi3, {"<|user|>", "<|assistant|>", "<|end|>"}},
      {"plain", kPlain, {}},
      {"qwen", kQwen, {"<|im_start|>", "<|im_end|>"}},
      {"smollm2", smollm2, {"<|im_start|>", "<|im_end|>"}},
      {"zephyr", kZephyr, {}},
  };
  return all;
}

Tokenizer with_builtin_template(const Tokenizer& tokenizer, const BuiltinTemplate& builtin) {
  for (const std::string& token : builtin.needs)
    HONE_CHECK(tokenizer.find(token), "chat template ", builtin.name, " needs the token ", token,
               ", which the tokenizer lacks");
  const std::vector<int32_t> empty_document = tokenizer.encode_document("");
  const bool begins_with_bos = !empty_document.empty() && tokenizer.bos() == empty_document.front();
  const std::string_view bos = builtin.name == "plain" && begins_with_bos ? "{{ bos_token }}" : "";
  return tokenizer.with_chat_template(concat(bos, builtin.text), concat("built-in chat template ", builtin.name));
}

const BuiltinTemplate* find_builtin_template(std::string_view name) {
  const auto all = builtin_templates();
  const auto found = std::ranges::find(all, name, &BuiltinTemplate::name);
  return found == all.end() ? nullptr : &*found;
}

}  // namespace hone
