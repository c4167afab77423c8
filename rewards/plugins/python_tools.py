"""Makes the tool schemas of a Python file's functions (docs/howto/tools.md).

Type hints and a docstring in Google's style become a JSON schema with the members that get_json_schema of transformers
writes: TRL and chat templates expect them. It needs Python alone. One line {"file", "functions"} comes in; one line
{"schemas": [...]} or {"error": text} goes out. The program prepends python_process.py.
"""
import difflib
import enum
import inspect
import json
import re
import sys
import traceback
import types
import typing

SCALARS = {int: "integer", float: "number", str: "string", bool: "boolean", type(None): "null"}
NAMED = {**{hint: {"type": name} for hint, name in SCALARS.items()},
         list: {"type": "array"}, tuple: {"type": "array"}, dict: {"type": "object"}, typing.Any: {}}


class SchemaError(Exception):
    pass


def enum_schema(values):
    if not values or any(type(value) not in SCALARS for value in values):
        raise SchemaError(f"its values {values} are not int, float, str, bool or None")
    names = list(dict.fromkeys(SCALARS[type(value)] for value in values))
    return {"type": names[0] if len(names) == 1 else names, "enum": list(values)}


def union_schema(members):
    schemas = [hint_schema(member) for member in members if member is not type(None)]
    if len(schemas) == 1:
        out = schemas[0]
    elif all(set(schema) == {"type"} and isinstance(schema["type"], str) for schema in schemas):
        names = sorted({schema["type"] for schema in schemas})
        out = {"type": names[0] if len(names) == 1 else names}
    else:
        out = {"anyOf": schemas}
    return {**out, "nullable": True} if type(None) in members else out


def hint_schema(hint):
    origin, members = typing.get_origin(hint), typing.get_args(hint)
    if origin is None:
        if isinstance(hint, type) and issubclass(hint, enum.Enum):
            return enum_schema([member.value for member in hint])
        try:
            return dict(NAMED[hint])
        except (KeyError, TypeError):
            raise SchemaError(f"{hint!r} has no JSON schema; use int, float, str, bool, list, tuple, dict, Literal, an "
                              "Enum or a union of them") from None
    if origin is typing.Union or origin is getattr(types, "UnionType", None):
        return union_schema(members)
    if origin is typing.Literal:
        return enum_schema(list(members))
    if origin is list:
        return {"type": "array", "items": hint_schema(members[0])}
    if origin is tuple:
        if len(members) == 1 or ... in members:
            raise SchemaError(f"{hint}: use list[...] for lists of any length")
        return {"type": "array", "prefixItems": [hint_schema(member) for member in members]}
    if origin is dict:
        out = {"type": "object"}
        if len(members) == 2:
            out["additionalProperties"] = hint_schema(members[1])
        return out
    raise SchemaError(f"{hint} has no JSON schema")


def sections(doc):
    """Returns the description, the arguments' descriptions by name, and the description of the result or None."""
    head = re.search(r"^(.*?)\s*(?:Args:|Returns:|Raises:|\Z)", doc, re.DOTALL).group(1).strip()
    block = re.search(r"\n\s*Args:\n(.*?)\s*(?:Returns:|Raises:|\Z)", doc, re.DOTALL)
    result = re.search(r"\n\s*Returns:\n\s*(.*?)\s*(?:Raises:|\Z)", doc, re.DOTALL)
    found, indent, name = {}, None, None
    for line in block.group(1).split("\n") if block else []:
        start = re.match(r"([ \t]*)(\w+):\s*(.*)", line)
        deeper = start and indent is not None and len(start.group(1)) > len(indent)
        if start and not deeper:
            indent, name = start.group(1), start.group(2)
            found[name] = [start.group(3)]
        elif line.strip() and name:
            found[name].append(line)
    arguments = {key: " ".join(line.strip() for line in lines if line.strip()) for key, lines in found.items()}
    return head, arguments, result.group(1).strip() if result else None


def parameters_schema(function):
    """Returns the schema of the parameters, and the type hints."""
    hints, parameters = typing.get_type_hints(function), inspect.signature(function).parameters
    first = next(iter(parameters.values()), None)
    if first and first.name in ("self", "cls") and first.annotation is first.empty:
        parameters = {name: p for name, p in parameters.items() if name != first.name}
    for name, parameter in parameters.items():
        if parameter.annotation is parameter.empty:
            raise SchemaError(f"the argument {name} has no type hint")
    properties = {}
    for name in parameters:
        try:
            properties[name] = hint_schema(hints[name])
        except SchemaError as error:
            raise SchemaError(f"the argument {name}: {error}") from None
    out = {"type": "object", "properties": properties}
    required = [name for name, parameter in parameters.items() if parameter.default is parameter.empty]
    if required:
        out["required"] = required
    return out, hints


def function_schema(function):
    doc = (inspect.getdoc(function) or "").strip()
    if not doc:
        raise SchemaError("there is no docstring")
    description, arguments, result_doc = sections(doc)
    schema, hints = parameters_schema(function)
    for name, argument in schema["properties"].items():
        if name not in arguments:
            raise SchemaError(f"the docstring's Args do not describe the argument {name}")
        text = arguments[name]
        choices = re.search(r"\(choices:\s*(.*?)\)\s*$", text, re.IGNORECASE)
        if choices:
            values = json.loads(choices.group(1))
            argument["enum"] = [value.strip() if isinstance(value, str) else value for value in values]
            text = text[:choices.start()].strip()
        argument["description"] = text
    out = {"name": function.__name__, "description": description, "parameters": schema}
    if "return" in hints:
        try:
            out["return"] = hint_schema(hints["return"])
            if result_doc is not None:
                out["return"]["description"] = result_doc
        except SchemaError:  # the model never writes it
            pass
    return {"type": "function", "function": out}


def tool_functions(file, names):
    module = load_module(file, "tool_file")
    found = {k: v for k, v in vars(module).items()
             if inspect.isfunction(v) and v.__module__ == "tool_file" and not k.startswith("_")}
    for name in names:
        if not callable(getattr(module, name, None)):
            near = difflib.get_close_matches(name, found, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise SchemaError(f"there is no function {name}{hint}; the file defines {', '.join(found) or 'none'}")
    if not names and not found:
        raise SchemaError("the file defines no function")
    return {name: getattr(module, name) for name in names} if names else found


def schemas(file, functions):
    out = []
    for name, function in tool_functions(file, functions).items():
        try:
            out.append(function_schema(function))
        except (SchemaError, ValueError, NameError) as error:
            raise SchemaError(f"{name}: {error}") from None
    return out


def main():
    requests, answers = take_over_streams()
    sys.dont_write_bytecode = True
    try:
        answer = {"schemas": schemas(**json.loads(requests.readline()))}
    except SchemaError as error:
        answer = {"error": str(error)}
    except (Exception, SystemExit) as error:
        traceback.print_exc()
        answer = {"error": f"{type(error).__name__}: {error}"}
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
