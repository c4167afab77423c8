"""Runs an environment of a Python file as an environment process of hone (docs/howto/environments.md).

A class without `step` is one for TRL's environment_factory: its public methods are tools, `reset(**row)` returns None
or a text, `get_reward()` or the attribute `reward` is the reward at the end. A class with `step` is in Gymnasium's style.
The program prepends rewards/plugins/python_process.py.
"""
import asyncio
import difflib
import inspect
import json
import random
import re
import sys
import traceback
import types

PROTOCOL = 1
NOT_TOOLS = ("reset", "get_reward")


# ---- The file

def find_factory(file, factory):
    module = load_module(file, "environment_file")
    classes = {k: v for k, v in vars(module).items()
               if inspect.isclass(v) and v.__module__ == "environment_file" and callable(getattr(v, "reset", None))}
    if factory:
        found = getattr(module, factory, None)
        if not callable(found):
            near = difflib.get_close_matches(factory, classes, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(f"{file} has no class {factory}{hint}; it defines {', '.join(classes) or 'none'}")
        return found
    if callable(getattr(module, "environment_factory", None)):
        return module.environment_factory
    if len(classes) != 1:
        raise ValueError(f"{file} defines {', '.join(classes) or 'no class with a method reset'}: say which by "
                         'class = "..."')
    return next(iter(classes.values()))


# ---- Calls

def tool_schemas(tools, text):
    """The schemas of methods. text: rewards/plugins/python_tools.py."""
    module = types.ModuleType("python_tools")
    exec(text, vars(module))
    out = []
    for name, method in tools.items():
        try:
            out.append(module.function_schema(method))
        except (module.SchemaError, ValueError, NameError) as error:
            raise ValueError(f"the tool {name}: {error}") from None
    return out


class Host:
    def __init__(self, file, factory, python_tools):
        self.loop = asyncio.new_event_loop()
        self.environment = find_factory(file, factory)()
        if not callable(getattr(self.environment, "reset", None)):
            raise ValueError(f"{type(self.environment).__name__} has no method reset")
        self.steps = callable(getattr(self.environment, "step", None))
        self.tools = {} if self.steps else {
            name: getattr(self.environment, name)
            for name, _ in inspect.getmembers(type(self.environment), predicate=inspect.isfunction)
            if name not in NOT_TOOLS and not name.startswith("_")}
        self.schemas = tool_schemas(self.tools, python_tools)

    def call(self, function, *arguments, **named):
        returned = function(*arguments, **named)
        return self.loop.run_until_complete(returned) if inspect.isawaitable(returned) else returned

    def reset(self, request):
        row, seed = request["row"], request["seed"]
        random.seed(seed)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(seed)
        given = {"row": row, "options": row, **row, "seed": row.get("seed", seed)}
        parameters = inspect.signature(self.environment.reset).parameters.values()
        named = {p.name: given[p.name] for p in parameters
                 if p.name in given and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        if any(p.kind is p.VAR_KEYWORD for p in parameters):
            named = {**row, **named}
        returned = self.call(self.environment.reset, **named)
        if isinstance(returned, tuple):  # Gymnasium: observation, info
            returned = returned[0]
        answer = dict(returned) if is_answer(returned, "messages", "observation", "tools", "limits") else {}
        if not answer and returned is not None:
            if is_messages(returned):
                answer["messages"] = returned
            else:
                answer["observation"] = text_of(returned)
        if self.tools:
            answer.setdefault("tools", self.schemas)
        return answer

    def step(self, request):
        return self.step_environment(request) if self.steps else self.call_tools(request)

    def call_tools(self, request):
        if not request["tool_calls"]:
            return {"done": True, **self.reward()}
        messages = []
        for call in request["tool_calls"]:
            try:
                if call["name"] not in self.tools:
                    raise ValueError(f"Tool {call['name']} not found.")
                result = self.call(self.tools[call["name"]], **call["arguments"])
            except Exception as error:  # the policy reads it, as in TRL
                result = {"error": str(error)}
            messages.append({"role": "tool", "name": call["name"], "content": text_of(result)})
        return {"messages": messages, "done": False}

    def step_environment(self, request):
        parameters = [p for p in inspect.signature(self.environment.step).parameters.values()
                      if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        action = self.action(request["completion"])
        if action is None:
            space = self.environment.action_space
            first = int(getattr(space, "start", 0))
            return {"messages": f"An action is an integer from {first} to {first + int(space.n) - 1}.", "done": False}
        arguments = [action, request["tool_calls"]] if len(parameters) > 1 else [action]
        returned = self.call(self.environment.step, *arguments)
        if is_answer(returned, "messages", "done", "reward"):
            return dict(returned)
        if not isinstance(returned, tuple) or len(returned) not in (3, 4, 5):
            raise ValueError(f"step returned {type(returned).__name__}: return (observation, reward, terminated, "
                             "truncated, info) or a dict with messages, done and reward")
        observation, reward, done = returned[:3]
        if len(returned) == 5:
            done = done or returned[3]
        answer = {"reward": None if reward is None else float(reward), "done": bool(done)}
        if observation is not None:
            answer["messages"] = observation if is_messages(observation) else text_of(observation)
        return answer

    def action(self, completion):
        """A completion's action: the text itself, or, in a discrete space, the last integer of the text."""
        if callable(getattr(self.environment, "parse_action", None)):
            return self.call(self.environment.parse_action, completion)
        space = getattr(self.environment, "action_space", None)
        if not hasattr(space, "n"):
            return completion
        numbers = re.findall(r"-?\d+", completion)
        first = int(getattr(space, "start", 0))
        return int(numbers[-1]) if numbers and first <= int(numbers[-1]) < first + int(space.n) else None

    def reward(self):
        if self.steps:
            return {}
        if callable(getattr(self.environment, "get_reward", None)):
            reward = self.call(self.environment.get_reward)
        else:
            reward = getattr(self.environment, "reward", None)
        return {} if reward is None else {"reward": float(reward)}


def is_answer(value, *names):
    return isinstance(value, dict) and any(name in value for name in names)


def is_messages(value):
    return isinstance(value, list) and value and all(isinstance(m, dict) and "role" in m for m in value)


def text_of(value):
    if isinstance(value, list) and value and all(isinstance(v, dict) and v.get("type") == "text" for v in value):
        return "".join(v["text"] for v in value)
    return value if isinstance(value, str) else str(value)


def main():
    requests, answers = take_over_streams()
    host = None
    for line in requests:
        request = json.loads(line)
        try:
            if "options" in request:
                host = Host(**request["options"])
                answer = {"protocol": PROTOCOL, "finish": True}
            elif request["method"] == "reset":
                answer = host.reset(request)
            elif request["method"] == "step":
                answer = host.step(request)
            else:
                answer = host.reward()
        except (Exception, SystemExit) as error:
            traceback.print_exc()
            answer = {"error": explain(error)}
        answers.write(json.dumps({"id": request["id"], **answer}, default=str) + "\n")
        answers.flush()


main()
