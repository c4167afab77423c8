"""What the Python processes of hone share: their streams, the user's file, and the text of an error.

The program prepends this text to that of each process (rewards/plugins/python_process.h).
"""
import importlib.machinery
import importlib.util
import os
import sys
import traceback


def take_over_streams():
    """Returns files for requests and answers. What the user's code prints goes to standard error."""
    requests = os.fdopen(os.dup(0), "r", encoding="utf-8", errors="replace")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return requests, answers


def load_module(file, name):
    """Runs the user's file as the module `name`. The file may import its neighbors."""
    sys.path.insert(0, os.path.dirname(os.path.abspath(file)))
    loader = importlib.machinery.SourceFileLoader(name, file)  # whatever the file's suffix is
    spec = importlib.util.spec_from_file_location(name, file, loader=loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def explain(error):
    """Returns the error and the last line of the user's file in its traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    place = ""
    if frames and frames[-1].filename != "<string>":
        place = f" (line {frames[-1].lineno} of {os.path.basename(frames[-1].filename)})"
    return f"{type(error).__name__}: {error}{place}"


