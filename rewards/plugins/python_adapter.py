"""Runs a reward function written for TRL as a reward process of hone (docs/howto/plugins.md).

It calls the function as TRL does: by keyword with prompts, completions, completion_ids and every other column of the
dataset, each a list with one entry per completion. In a conversation a prompt is its messages and a completion is
[{"role": "assistant", "content": text}]. The function returns a list of numbers or None and may be a coroutine
function. The program prepends python_process.py.
"""
import asyncio
import difflib
import inspect
import json
import math
import traceback

PROTOCOL = 1
NOT_COLUMNS = ("prompt", "completion", "completion_ids")  # TRL passes these under other names


def check_parameters(function, columns):
    """Raises ValueError if the function needs a parameter that no call has."""
    given = {"prompts", "completions", "completion_ids", *(c for c in columns if c not in NOT_COLUMNS)}
    for p in inspect.signature(function).parameters.values():
        if p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL) or p.default is not p.empty or p.name in given:
            continue
        near = difflib.get_close_matches(p.name, given, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"{function.__name__} has a parameter {p.name}, and no column has that name{hint}; "
                         f"it gets {', '.join(sorted(given))}")


def load(file, function, columns=None):
    loaded = find(file, function)
    if columns is not None:
        check_parameters(loaded, columns)
    return loaded


def find(file, function):
    module = load_module(file, "reward_file")
    found = {k: v for k, v in vars(module).items()
             if inspect.isfunction(v) and v.__module__ == "reward_file" and not k.startswith("_")}
    if function:
        if not callable(getattr(module, function, None)):
            near = difflib.get_close_matches(function, found, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(f"{file} has no function {function}{hint}; it defines {', '.join(found) or 'none'}")
        return getattr(module, function)
    if len(found) != 1:
        raise ValueError(f"{file} defines {', '.join(found) or 'no function'}: say which by function = \"...\"")
    return next(iter(found.values()))


def arguments(function, request):
    conversation = isinstance(request["prompts"][0], list)
    completions = request["completions"]
    if "messages" in request:
        completions = request["messages"]
    elif conversation:
        completions = [[{"role": "assistant", "content": text}] for text in completions]
    out = {k: v for k, v in request["columns"].items() if k not in NOT_COLUMNS}
    if any(request["answers"]):
        out.setdefault("answer", request["answers"])
    out.update(prompts=request["prompts"], completions=completions, completion_ids=request["completion_ids"])
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return out
    wanted = {p.name for p in parameters}
    return {k: v for k, v in out.items() if k in wanted}


def entry(value):
    if value is None:
        return None
    number = float(value)
    return number if math.isfinite(number) else {"error": f"its score is {number}"}


def judge(function, request, loop):
    returned = function(**arguments(function, request))
    if inspect.isawaitable(returned):
        returned = loop.run_until_complete(returned)
    scores = [entry(value) for value in returned]
    if len(scores) != len(request["completions"]):
        raise ValueError(f"it returned {len(scores)} scores for {len(request['completions'])} completions")
    return scores


def main():
    requests, answers = take_over_streams()
    loop = asyncio.new_event_loop()
    function = None
    for line in requests:
        request = json.loads(line)
        try:
            if "options" in request:
                function = load(**request["options"])
                answer = {"protocol": PROTOCOL}
            else:
                answer = {"scores": judge(function, request, loop)}
        except (Exception, SystemExit) as error:
            traceback.print_exc()
            answer = {"error": explain(error)}
        answers.write(json.dumps({"id": request["id"], **answer}) + "\n")
        answers.flush()


main()
