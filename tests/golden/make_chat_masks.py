"""Writes chat_masks.json: conversations rendered by Hugging Face transformers with the assistant's text as its templates' {% generation %} marks it.

    pip install transformers jinja2 && python tests/golden/make_chat_masks.py

The templates are our own, one for each habit of published ones. Without the marks they must give the same text and the same spans.
"""
import json
import pathlib

from transformers.utils.chat_template_utils import render_jinja_template

MARK, END = "{% generation %}", "{% endgeneration %}"

TEMPLATES = {
    # ChatML: a newline behind the end of turn.
    "plain": "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' %}" + MARK + "{{ m.content }}<|im_end|>" + END + "{% else %}{{ m.content }}<|im_end|>{% endif %}{{ '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{{ '' }}{% endif %}",
    # Content is trimmed, roles have other names, the end of turn follows on a line of its own.
    "trimmed": "{{ bos_token }}{% for m in messages %}<|im_start|>{{ 'model' if m.role == 'assistant' else m.role }}\n"
    "{% if m.role == 'assistant' %}" + MARK + "{{ m.content | trim }}{{ '\n' }}<|im_end|>" + END +
    "{% else %}{{ m.content | trim }}{{ '\n' }}<|im_end|>{% endif %}{{ '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>model\n{{ '' }}{% endif %}",
    # Thinking of earlier turns is dropped; the last turn always has a thinking block; tool calls follow the text.
    "thinking": "{% set ns = namespace(last=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    "{% for m in messages %}{% if m.role == 'assistant' %}{% set thought = '' %}{% set content = m.content %}"
    "{% if '</think>' in content %}{% set thought = content.split('</think>')[0].split('<think>')[-1].strip('\n') %}"
    "{% set content = content.split('</think>')[-1].lstrip('\n') %}{% endif %}<|im_start|>assistant\n" + MARK +
    "{% if loop.index0 > ns.last and (loop.last or thought) %}{{ '<think>\n' + thought + '\n</think>\n\n' }}{% endif %}{{ content }}"
    "{% for call in m.tool_calls or [] %}{{ '\n<tool_call>' + (call | tojson) + '</tool_call>' }}{% endfor %}<|im_end|>" + END +
    "{{ '\n' }}{% elif m.role == 'tool' %}<|im_start|>user\n<result>{{ m.content }}</result><|im_end|>\n"
    "{% else %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{{ '' }}{% endif %}",
    # What asks for a reply begins the thinking block; replies are shown without theirs.
    "prefilled": "{% for m in messages %}{% if m.role == 'assistant' %}<|im_start|>assistant:" + MARK +
    "{{ m.content.split('</think>')[-1] }}<|im_end|>" + END + "{% else %}<|im_start|>{{ m.role }}:{{ m.content }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant:<think>\n{{ '' }}{% endif %}",
    # No header before a reply; the system message goes into the last question; tool calls replace the text; roles must alternate.
    "bracketed": "{% set ns = namespace(i=0) %}{% for m in messages if m.role != 'system' and m.role != 'tool' and not m.tool_calls %}"
    "{% if (m.role == 'user') != (ns.i % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}{% set ns.i = ns.i + 1 %}{% endfor %}"
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST]{% if loop.last and messages[0].role == 'system' %}"
    "{{ messages[0].content + '\n\n' }}{% endif %}{{ m.content }}[/INST]{% elif m.role == 'tool' %}[RESULT]{{ m.content }}[/RESULT]"
    "{% elif m.tool_calls %}" + MARK + "[CALLS]{{ m.tool_calls | tojson }}{{ eos_token }}" + END +
    "{% elif m.role == 'assistant' %}" + MARK + "{{ m.content }}{{ eos_token }}" + END + "{% endif %}{% endfor %}",
    # The end of the conversation has a token of its own.
    "closed": "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}" + MARK + "{{ m.content }}<|im_end|>" + END +
    "{% else %}{{ m.content }}<|im_end|>{% endif %}{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{{ '' }}{% else %}{{ eos_token }}{% endif %}",
}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def call(city):
    return [{"name": "weather", "arguments": {"city": city}}]


SYSTEM = {"role": "system", "content": "Be brief."}
RESULT = {"role": "tool", "content": "sunny"}
CONVERSATIONS = {
    "one turn": [user("1+1?"), assistant("2")],
    "two turns": [user("1+1?"), assistant("2"), user("2+2?"), assistant("4")],
    "system": [SYSTEM, user("1+1?"), assistant("2"), user("2+2?"), assistant("4")],
    "equal texts": [user("2"), assistant("2"), user("2"), assistant("2")],
    "white space": [user(" q \n"), assistant("  x\n"), user("r"), assistant("\n\ny  ")],
    "empty replies": [user("q"), assistant(""), user("r"), assistant("")],
    "thinking": [user("1+1?"), assistant("<think>\nhm\n</think>\n\n2"), user("2+2?"), assistant("<think>\nho\n</think>\n\n4")],
    "question last": [user("q"), assistant("x"), user("r")],
    "replies in a row": [user("q"), assistant("x"), assistant("y"), user("r"), assistant("z")],
    "special tokens in the text": [user("<|im_start|>assistant\nno<|im_end|>"), assistant("say <|im_end|> or </s>"), user("ok?"), assistant("ok")],
    "tool loop": [user("w?"), assistant("<think>\nlook\n</think>\n\nSee.", tool_calls=call("Rome")), RESULT,
                  assistant("<think>\nyes\n</think>\n\nSunny."), user("thanks"), assistant("bye")],
    "tool call with special text": [user("w?"), assistant("", tool_calls=call("<|im_end|>")), RESULT, assistant("Sunny.")],
}


def main():
    cases = []
    for name, template in TEMPLATES.items():
        for title, messages in CONVERSATIONS.items():
            case = {"template": name, "conversation": title}
            try:
                texts, spans = render_jinja_template([messages], chat_template=template, return_assistant_tokens_mask=True,
                                                     bos_token="<s>", eos_token="</s>")
                case |= {"text": texts[0], "trained": [texts[0][begin:end] for begin, end in spans[0]]}
            except Exception as error:  # the template's own complaint
                case |= {"error": str(error)}
            cases.append(case)
    golden = {"templates": TEMPLATES, "conversations": CONVERSATIONS, "cases": cases}
    path = pathlib.Path(__file__).with_name("chat_masks.json")
    path.write_text(json.dumps(golden, indent=1, ensure_ascii=False) + "\n")


main()
