#include "rewards/code_harness.h"

namespace hone {

std::string_view code_harness() {
  return R"PY(import sys
sys.path[:] = [p for p in sys.path if p]  # nothing is imported from the working folder
import io, os, pickle, signal, struct

PLAIN = (int, float, complex, str, bytes, bytearray, tuple, list, dict, set, frozenset)
SAFE = {('builtins', t.__name__) for t in PLAIN + (bool, range, slice)} | {
    ('collections', n) for n in ('OrderedDict', 'deque', 'Counter', 'defaultdict')} | {
    ('datetime', n) for n in ('date', 'time', 'datetime', 'timedelta', 'timezone')} | {
    ('decimal', 'Decimal'), ('fractions', 'Fraction')}


class Link:
    """Messages over two pipes."""

    def __init__(self, source, sink):
        self.source, self.sink = os.fdopen(source, 'rb'), os.fdopen(sink, 'wb')

    def send(self, message):
        self.sink.write(struct.pack('<q', len(message)) + message)
        self.sink.flush()

    def receive(self):
        head = self.source.read(8)
        if len(head) < 8:
            raise EOFError
        return self.source.read(struct.unpack('<q', head)[0])


def seed(text):
    if 'random' in text:
        import random
        random.seed(0)


# ---- the worker

kept = []  # what the judge holds by number


def remote(number):
    raise NotImplementedError  # the judge knows it as Remote


class WorkerPickler(pickle.Pickler):
    def reducer_override(self, value):
        kind = type(value)
        if kind is type(remote) and value is remote or (kind.__module__, kind.__qualname__) in SAFE:
            return NotImplemented
        if isinstance(value, type) and (value.__module__, value.__qualname__) in SAFE:
            return NotImplemented
        for plain in PLAIN:
            if issubclass(kind, plain):
                return plain, (plain(value),)
        kept.append(value)
        return remote, (len(kept) - 1,)


class WorkerUnpickler(pickle.Unpickler):
    def persistent_load(self, number):
        return kept[number]


ASKED = {'call': lambda f, a, k: f(*a, **k), 'get': getattr, 'set': setattr, 'item': lambda v, i: v[i], 'list': list, 'len': len, 'bool': bool, 'str': str}


def work(link):
    import types
    module = types.ModuleType('solution')
    sys.modules['solution'] = module

    def load(source):
        seed(source)
        exec(compile(source, 'solution.py', 'exec'), module.__dict__)
        names = {n: v for n, v in module.__dict__.items() if not n.startswith('__')}
        modules = {n: names.pop(n).__name__ for n in list(names) if isinstance(names[n], types.ModuleType)}
        return names, modules

    while True:
        try:
            verb, arguments = WorkerUnpickler(io.BytesIO(link.receive())).load()
            answer = ('ok', load(*arguments) if verb == 'load' else ASKED[verb](*arguments))
        except EOFError:
            os._exit(0)
        except BaseException as error:
            where = 'line %s: ' % error.lineno if isinstance(error, SyntaxError) else ''
            answer = ('raise', type(error).__name__, where + str(error)[:200])
        out = io.BytesIO()
        try:
            WorkerPickler(out, 4).dump(answer)
        except BaseException as error:
            out = io.BytesIO(pickle.dumps(('raise', type(error).__name__, str(error)[:200]), 4))
        link.send(out.getvalue())


# ---- the judge

class SolutionError(Exception):
    """Raised by the program, and no exception of Python's own."""


class Gone(Exception):
    pass


class Remote:
    """A thing of the worker's. It is equal to itself alone: a program's own idea of equality does not count."""
    __slots__ = ('number',)

    def __init__(self, number):
        object.__setattr__(self, 'number', number)

    def __eq__(self, other):
        return type(other) is Remote and other.number == self.number

    def __hash__(self):
        return hash(self.number)

    def __call__(self, *arguments, **named):
        return ask('call', self, arguments, named)

    def __getattr__(self, name):
        if name.startswith('__'):
            raise AttributeError(name)
        return ask('get', self, name)

    def __setattr__(self, name, value):
        ask('set', self, name, value)

    def __getitem__(self, index):
        return ask('item', self, index)

    def __iter__(self):
        return iter(ask('list', self))

    def __len__(self):
        return ask('len', self)

    def __bool__(self):
        return ask('bool', self)

    def __str__(self):
        return ask('str', self)


class JudgePickler(pickle.Pickler):
    def persistent_id(self, value):
        return value.number if type(value) is Remote else None


class JudgeUnpickler(pickle.Unpickler):
    def find_class(self, module, name):
        if (module, name) == ('__main__', 'remote'):
            return Remote
        if (module, name) in SAFE:
            return super().find_class(module, name)
        raise pickle.UnpicklingError('the program answered with ' + module + '.' + name)


def ask(verb, *arguments):
    out = io.BytesIO()
    JudgePickler(out, 4).dump((verb, arguments))
    try:
        link.send(out.getvalue())
        answer = JudgeUnpickler(io.BytesIO(link.receive())).load()
    except (EOFError, BrokenPipeError):
        status = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
        raise Gone('the program ended itself with %s' % ('exit code %d' % status if status >= 0 else 'signal %d' % -status))
    if answer[0] == 'ok':
        return answer[1]
    import builtins
    kind = getattr(builtins, answer[1], None)
    if not (isinstance(kind, type) and issubclass(kind, Exception)) or issubclass(kind, (UnicodeError, SyntaxError, StopIteration, StopAsyncIteration)):
        raise SolutionError(answer[1] + ': ' + answer[2])
    raise kind(answer[2])


def listed(value):
    return [listed(v) for v in value] if isinstance(value, (list, tuple)) else value


def call(names, function, arguments, expected):
    owner = names['Solution']() if 'Solution' in names else None
    found = getattr(owner, function) if owner is not None else names[function]
    got = listed(found(*arguments))
    assert got == expected or [got] == expected, 'expected %.60r, got %.60r' % (expected, got)


def judge(job, tell):
    import builtins
    seed(job['stub'] + job['setup'] + ''.join(job['tests']))
    passed, note, total = 0, '', len(job['tests']) + len(job['calls'])

    def failure(where, error):
        text = str(error).strip().split('\n')[-1][:120]
        if isinstance(error, Gone):
            return text + ' in ' + where
        if isinstance(error, AssertionError):
            return 'wrong answer on ' + where + (': ' + text if text else '')
        kind = '' if isinstance(error, SolutionError) else type(error).__name__ + (': ' if text else '')
        return kind + text + ' in ' + where

    tell(test=0)
    names = {}
    try:
        given, modules = ask('load', job['solution'])
        # What tests call `sorted` is Python's, unless the task's own solution defines it.
        free = lambda name: not name.startswith('__') and (name in job['defines'] or not hasattr(builtins, name))
        for name, value in given.items():
            if free(name):
                names[name] = value
        for name, module in modules.items():
            if free(name) and module.split('.')[0] in sys.stdlib_module_names:
                names[name] = __import__(module, fromlist=['*'])
        if job['stub']:
            own = {'__name__': 'stub'}
            try:
                exec(compile(job['stub'], 'stub', 'exec'), own)
            except Exception:
                own = {}
            own.pop('__builtins__', None)
            own.pop(job['entry'], None)
            names.update(own)
        if job['entry'] and job['entry'] not in names:
            return dict(passed=0, total=total, note='the program has no ' + job['entry'])
        exec(compile(job['setup'], 'setup', 'exec'), names)
    except BaseException as error:
        return dict(passed=0, total=total, note=failure('the program itself', error))
    tests = [lambda t=t: exec(compile(t, 'test', 'exec'), names) for t in job['tests']]
    tests += [lambda c=c: call(names, job['function'], *c) for c in job['calls']]
    for number, test in enumerate(tests, 1):
        tell(test=number)
        try:
            test()
            passed += 1
        except BaseException as error:
            note = note or failure('test %d' % number, error)
            if not job['all'] or isinstance(error, Gone):
                break
    return dict(passed=passed, total=total, note=note)


to_worker, to_judge = os.pipe(), os.pipe()
worker = os.fork()
null = os.open(os.devnull, os.O_RDWR)
if worker == 0:
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.close(to_worker[1]), os.close(to_judge[0]), os.close(null)
    work(Link(to_worker[0], to_judge[1]))
signal.signal(signal.SIGINT, signal.SIG_IGN)
os.close(to_worker[0]), os.close(to_judge[1])
link = Link(to_judge[0], to_worker[1])
verdict = os.fdopen(os.dup(1), 'w')
import json
job = json.load(sys.stdin)
os.dup2(null, 0), os.dup2(null, 1), os.dup2(null, 2)


def tell(**facts):
    verdict.write(job['nonce'] + ' ' + json.dumps(facts) + '\n')
    verdict.flush()


tell(**judge(job, tell))
os._exit(0)
)PY";
}

}  // namespace hone
