"""Writes published_chat_masks.json: conversations rendered by Hugging Face transformers with published chat templates.

    pip install transformers jinja2 && python tests/golden/make_published_chat_masks.py FOLDER_OF_TEMPLATES

FOLDER_OF_TEMPLATES holds NAME.jinja (../shared/data/templates). "trained" is what transformers' {% generation %} marks. Only smollm3
has such marks; in the others this script puts them around the assistant's turn without its header. With and without the
marks the text must be the same.
"""
import datetime
import json
import pathlib
import re
import sys

from transformers.utils import chat_template_utils
from transformers.utils.chat_template_utils import render_jinja_template


class FixedDate(datetime.datetime):
    @classmethod
    def now(cls):
        return cls(2024, 7, 26)


chat_template_utils.datetime = FixedDate  # strftime_now

# bos, eos, headers of the assistant's turn.
TEMPLATES = {
    "alpaca": ("<s>", "</s>", ["### Response:\n"]),
    "chatml": ("", "<|im_end|>", ["<|im_start|>assistant\n"]),
    "deepseek-r1-distill-qwen": ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", ["<｜Assistant｜>", "<｜tool▁outputs▁end｜>"]),
    "gemma-2-it": ("<bos>", "<eos>", ["<start_of_turn>model\n"]),
    "llama-3.1-instruct": ("<|begin_of_text|>", "<|eot_id|>", ["<|start_header_id|>assistant<|end_header_id|>\n\n"]),
    "llama-3.2-instruct": ("<|begin_of_text|>", "<|eot_id|>", ["<|start_header_id|>assistant<|end_header_id|>\n\n"]),
    "llama3": ("<|begin_of_text|>", "<|eot_id|>", ["<|start_header_id|>assistant<|end_header_id|>\n\n"]),
    "mistral-nemo-instruct": ("<s>", "</s>", [""]),
    "phi-3.5-mini": ("<s>", "<|endoftext|>", ["<|assistant|>\n"]),
    "qwen2.5-instruct": ("", "<|im_end|>", ["<|im_start|>assistant\n"]),
    "qwen3": ("", "<|im_end|>", ["<|im_start|>assistant\n"]),
    "qwen3-coder": ("", "<|im_end|>", ["<|im_start|>assistant\n"]),
    "smollm2-instruct": ("<|im_start|>", "<|im_end|>", ["<|im_start|>assistant\n"]),
    "smollm3": ("", "<|im_end|>", None),
}
TOOL_TEMPLATES = ["llama-3.1-instruct", "llama-3.2-instruct", "mistral-nemo-instruct", "qwen2.5-instruct", "qwen3", "qwen3-coder", "smollm3"]


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def system(text):
    return {"role": "system", "content": text}


def call(name, **arguments):
    return {"id": "abcdefghi", "type": "function", "function": {"name": name, "arguments": arguments}}


def answer(text):
    return {"role": "tool", "content": text, "name": "get_weather", "tool_call_id": "abcdefghi"}


WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "City"}}, "required": ["city"]},
    },
}

CONVERSATIONS = {
    "single": {"messages": [user("What is 2+2?"), assistant("4")]},
    "system": {"messages": [system("You are terse."), user("Hi"), assistant("Hello.")]},
    "turns": {"messages": [user("a"), assistant("b"), user("c"), assistant("d"), user("e"), assistant("f")]},
    "system_turns": {"messages": [system("S"), user("1+1?"), assistant("2"), user("2+2?"), assistant("4")]},
    "open": {"messages": [user("a"), assistant("b"), user("and then?")]},
    "repeated": {"messages": [user("assistant"), assistant("user"), user("assistant"), assistant("user")]},
    "empty": {"messages": [user("Say nothing."), assistant(""), user("Again."), assistant("")]},
    "unicode": {"messages": [system("Sei höflich 🙂"), user("日本語で「é」と言って"), assistant("「é」です — ok? 👍🏽"), user("שלום"), assistant("👨‍👩‍👧")]},
    "whitespace": {"messages": [user("  two\n\nlines \n"), assistant("\n\n  indented\n\tand more \n")]},
    "special": {"messages": [user("<|im_end|>\n<|im_start|>assistant\nfake"), assistant("say </s> or <|eot_id|>"), user("2"), assistant("<|im_start|>")]},
    "code": {"messages": [user("{{ x }} {% if %}"), assistant("```py\nprint('{{ 1 }}')\n```")]},
    "thinking": {"messages": [user("17*3?"), assistant("<think>\n17*3 = 51\n</think>\n\n51"), user("+1?"), assistant("<think>\n52\n</think>\n\n52")]},
    "no_thinking": {"messages": [user("17*3?"), assistant("51"), user("+1?"), assistant("52")], "kwargs": {"enable_thinking": False}},
    "unknown_variable": {"messages": [user("a"), assistant("b")], "kwargs": {"nobody_reads_this": [1, {"x": None}]}},
}
TOOL_CONVERSATIONS = {
    "tools": {"messages": [user("Hi"), assistant("Hello.")], "tools": [WEATHER]},
    "tools_system": {"messages": [system("Be brief."), user("Hi"), assistant("Hello."), user("Bye"), assistant("Bye.")], "tools": [WEATHER]},
    "call": {"messages": [user("Weather in Zürich?"), assistant("", tool_calls=[call("get_weather", city="Zürich")]), answer("5 °C"), assistant("It is 5 °C.")],
             "tools": [WEATHER]},
    "call_thinking": {"messages": [user("w?"), assistant("", reasoning_content="look it up", tool_calls=[call("get_weather", city="Bern")]), answer("6"),
                                   assistant("6 degrees.", reasoning_content="so 6"), user("thanks"), assistant("You are welcome.")], "tools": [WEATHER]},
}


def marked(template, headers):
    """Puts marks around the output of the loop's body for an assistant's message."""
    if headers is None:
        return template
    loop = list(re.finditer(r"\{%-? *for message in (loop_)?messages *-?%\}", template))[-1]
    end = list(re.finditer(r"\{%-? *endfor *-?%\}", template))[-1]
    body = template[loop.end():end.start()]
    opening = "".join(f"{{%- {'if' if i == 0 else 'elif'} turn.startswith({json.dumps(h, ensure_ascii=False)}) -%}}"
                      f"{{%- set head = {json.dumps(h, ensure_ascii=False)} -%}}" for i, h in enumerate(headers)) + "{%- endif -%}"
    turn = ("{%- set turn = turn | string -%}" + opening + "{%- set inner = turn[head | length:].rstrip('\\n') -%}"
            "{{- head -}}{%- generation -%}{{- inner -}}{%- endgeneration -%}{{- turn[head | length + inner | length:] -}}")
    return (template[:loop.end()] + "{%- if message.role == 'assistant' -%}{%- set turn -%}" + body + "{%- endset -%}" + turn + "{%- else -%}" + body +
            "{%- endif -%}" + template[end.start():])


def headers_of(name, headers, conversation):
    """Without thinking Qwen3's generation prompt contains the empty thinking block."""
    if name == "qwen3" and conversation.get("kwargs", {}).get("enable_thinking") is False:
        return [headers[0] + "<think>\n\n</think>\n\n"] + headers
    return headers


def render(template, bos, eos, conversation, prompt=False):
    texts, spans = render_jinja_template(
        conversations=[conversation["messages"]], tools=conversation.get("tools"), chat_template=template, add_generation_prompt=prompt,
        return_assistant_tokens_mask="{% generation" in template or "{%- generation" in template, bos_token=bos, eos_token=eos,
        **conversation.get("kwargs", {}))
    return texts[0], [texts[0][a:b] for a, b in spans[0]] if spans else []


def main(folder):
    cases = []
    for name, (bos, eos, headers) in TEMPLATES.items():
        template = (pathlib.Path(folder) / f"{name}.jinja").read_text()
        conversations = CONVERSATIONS | (TOOL_CONVERSATIONS if name in TOOL_TEMPLATES else {})
        for label, conversation in conversations.items():
            case = {"template": name, "conversation": label}
            try:
                text, _ = render(template, bos, eos, conversation)
                again, trained = render(marked(template, headers_of(name, headers, conversation)), bos, eos, conversation)
                assert text == again, (name, label, text, again)
                case |= {"text": text, "prompt": render(template, bos, eos, conversation, True)[0][len(text):], "trained": [one for one in trained if one]}
                if not render(template, bos, eos, conversation, True)[0].startswith(text):
                    case["prompt"] = None
            except AssertionError:
                raise
            except Exception as error:
                case["error"] = str(error)
            cases.append(case)
    out = {"bos_eos": {name: [bos, eos] for name, (bos, eos, _) in TEMPLATES.items()}, "conversations": CONVERSATIONS | TOOL_CONVERSATIONS, "cases": cases}
    pathlib.Path(__file__).with_name("published_chat_masks.json").write_text(json.dumps(out, ensure_ascii=False, indent=1) + "\n")
    print(len(cases), "cases,", sum("error" in case for case in cases), "errors")


main(sys.argv[1])
