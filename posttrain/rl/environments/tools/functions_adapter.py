"""Calls the functions of a Python file for the tool "functions" (docs/howto/tools.md).

The first line is {"file", "functions", "seed"} and its answer {} or {"error": text}. Each following line {"id", "name",
"arguments"} is answered by {"id", "text"} or {"id", "error"}. The program prepends rewards/plugins/python_process.py.
"""
import asyncio
import inspect
import json
import random


def text_of(value):
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return str(value)


def call(module, request):
    try:
        value = getattr(module, request["name"])(**request["arguments"])
        if inspect.isawaitable(value):
            value = asyncio.run(value)
        return {"text": text_of(value)}
    except (Exception, SystemExit) as error:  # the policy reads it
        return {"error": f"{type(error).__name__}: {error}"}


def main():
    requests, answers = take_over_streams()
    module = None
    for line in requests:
        request = json.loads(line)
        if module is None:
            random.seed(request["seed"])
            module = load_module(request["file"], "tools_file")
            answer = {}
        else:
            answer = {"id": request["id"], **call(module, request)}
        json.dump(answer, answers)
        answers.write("\n")
        answers.flush()


main()
