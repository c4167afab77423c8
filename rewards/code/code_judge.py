# The judge runs the tests. Every answer of the worker counts as the program's.
import _ast
import builtins

EXCEPTIONS = {
    name: kind for name, kind in vars(builtins).items()
    if isinstance(kind, type) and issubclass(kind, Exception) and not name.endswith('Group')
    and not issubclass(kind, (UnicodeError, SyntaxError, StopIteration, StopAsyncIteration))}
# Names of the standard library that tests use without an import.
HELPERS = {name: module for module, names in {
    'math': 'isclose sqrt pi inf nan floor ceil fabs factorial gcd isnan isinf log exp sin cos',
    'collections': 'Counter OrderedDict defaultdict deque namedtuple', 'fractions': 'Fraction', 'decimal': 'Decimal',
    'itertools': 'chain combinations permutations product', 'functools': 'reduce', 'copy': 'deepcopy',
    'datetime': 'date datetime timedelta',
    'random': 'randint', 'typing': 'Any Dict List Optional Set Tuple Union'}.items() for name in names.split()}
ALIASES = {'np': 'numpy'}


class SolutionError(Exception):
    """An exception of the program that is not a built-in one."""


class Gone(BaseException):
    """The worker has ended or broken the protocol, no request follows. `except Exception` does not catch it."""


class BrokenTask(Exception):
    """The tests are not Python."""


# ---- objects of the worker

# Attribute names of plain values. An object with methods of these names could deceive a test that expects a text or a
# list.
PLAIN_NAMES = {
    name for kind in (int, float, complex, str, bytes, bytearray, tuple, list, dict, set, frozenset, range)
    for name in dir(kind)}


class Remote:
    """An object in the worker: a function or class under test, or a result of one. It equals only itself. A test that
    compares it with a value fails, so the program's own __eq__ never counts. `role` is 'class' (under test), 'own' (an
    instance of such a class that the tests made, or a part of one) or 'other'."""
    __slots__ = ('__number__', '__role__')  # these names are never requested from the program

    def __init__(self, number, role='other'):
        object.__setattr__(self, '__number__', number)
        object.__setattr__(self, '__role__', role)

    def __eq__(self, other):
        if other is None or type(other) is Remote:
            return other is not None and other.__number__ == self.__number__
        raise TypeError('the program gave an object where a test compares values')

    def __hash__(self):
        return hash(self.__number__)

    def __call__(self, *arguments, **named):
        return given(request('call', self, arguments, named), 'own' if self.__role__ == 'class' else 'other')

    def __getattr__(self, name):
        if name.startswith('__'):
            raise AttributeError(name)
        if self.__role__ == 'other' and name in PLAIN_NAMES:
            raise TypeError('the program gave an object where a test asks a value for .' + name)
        return given(request('get', self, name), 'own' if self.__role__ == 'own' else 'other')

    def __setattr__(self, name, value):
        request('set', self, name, value)

    def __getitem__(self, index):
        if self.__role__ != 'own':
            raise TypeError('the program gave an object where a test takes an item')
        return request('item', self, index)

    def __iter__(self):
        source, count = request('iter', self), 1
        while items := taken(source, count):
            yield from items
            count = min(2 * count, 1024)

    def __next__(self):
        for item in taken(self, 1):
            return item
        raise StopIteration

    def __len__(self):
        return request('len', self)

    def __bool__(self):
        return request('bool', self)

    def __str__(self):
        return request('str', self)

    def __repr__(self):
        return '<object>'


def given(value, role):
    if type(value) is Remote:
        object.__setattr__(value, '__role__', role)
    return value


def taken(source, count):
    items = request('take', source, count)
    if type(items) is not list or len(items) > count:
        raise Gone(lose('the program broke the rules: it gave no items'))
    return items


# ---- requests

lost = ''  # why there is no worker


def lose(why):
    global lost
    lost = lost or why
    return lost


def number_of(value):
    if type(value) is Remote:
        return value.__number__
    raise TypeError('a test cannot hand the program a ' + type(value).__name__)


def ended():
    """Says how the worker ended after it has closed its pipe."""
    import time
    for _ in range(100):
        process, status = os.waitpid(worker, os.WNOHANG)
        if process:
            code = os.waitstatus_to_exitcode(status)
            return 'the program ended itself with ' + ('exit code %d' % code if code >= 0 else 'signal %d' % -code)
        time.sleep(0.001)
    return 'the program closed its channel'


def request(*message_parts):
    if lost:
        raise Gone(lost)
    message, ticket = pack_value(message_parts, number_of), os.urandom(8)
    try:
        link.send(ticket, message)
        answered, message = link.receive()
        if answered != ticket:
            raise Refused('an answer to another question')
        answer = unpack_value(message, Remote)
        kinds = tuple(map(type, answer)) if type(answer) is tuple else ()
        ok = kinds[:1] == (str,) and answer[0] == 'ok' and len(kinds) == 2
        raised = kinds == (str, str, str) and answer[0] == 'raise'
        if not ok and not raised:
            raise Refused('an answer out of form')
    except (EOFError, BrokenPipeError):
        raise Gone(lose(ended()))
    except Refused as error:
        raise Gone(lose('the program broke the rules: ' + str(error)))
    except BaseException:
        lose('an answer of the program was not read whole')
        raise
    if answer[0] == 'ok':
        return answer[1]
    if answer[1] in EXCEPTIONS:
        raise EXCEPTIONS[answer[1]](answer[2])
    raise SolutionError(answer[1] + ': ' + answer[2])


# ---- names

def parsed(text, what):
    try:
        return compile(text, what, 'exec', 0x400)  # a syntax tree
    except (SyntaxError, ValueError) as error:
        raise BrokenTask('%s is not Python: %s' % (what, error))


def nodes(tree):
    found = [tree]
    for node in found:
        for field in node._fields:
            value = getattr(node, field, None)
            found += [v for v in (value if type(value) is list else [value]) if isinstance(v, _ast.AST)]
    return found


def names_in(trees, context=_ast.expr_context):
    return {node.id for tree in trees for node in nodes(tree)
            if isinstance(node, _ast.Name) and isinstance(node.ctx, context)}


def parameters_of(function):
    return [node.arg for node in nodes(function.args) if isinstance(node, _ast.arg)]


def functions_in(trees):
    """Returns the parameter lists of the functions that tests define, by name. A name may have several."""
    found = {}
    for node in (node for tree in trees for node in nodes(tree)):
        if isinstance(node, _ast.FunctionDef):
            found.setdefault(node.name, []).append(parameters_of(node))
        elif isinstance(node, _ast.Assign) and isinstance(node.value, _ast.Lambda):
            for name in names_in(node.targets):
                found.setdefault(name, []).append(parameters_of(node.value))
    return found


# Statements whose parts count separately. Any other statement counts as one: the condition of an `if` decides whether
# its asserts run.
COMPOUND = (_ast.FunctionDef, _ast.AsyncFunctionDef, _ast.ClassDef, _ast.For, _ast.AsyncFor, _ast.With, _ast.AsyncWith,
            _ast.Try)


class Usage:
    """How the code of tests uses names."""

    def __init__(self, trees):
        self.loaded, self.bound, self.called = set(), set(), set()
        self.assigned = []  # (names, names in their assigned value)
        self.statements = []
        self.functions = functions_in(trees)
        for node in (node for tree in trees for node in nodes(tree)):
            self.add(node)

    def add(self, node):
        if (isinstance(node, _ast.Assert) and isinstance(node.test, _ast.BoolOp) and isinstance(node.test.op, _ast.And)
                and not node.msg):
            self.statements += node.test.values
        elif isinstance(node, _ast.stmt) and not isinstance(node, COMPOUND):
            self.statements.append(node)
        if isinstance(node, _ast.Name):
            (self.loaded if isinstance(node.ctx, _ast.Load) else self.bound).add(node.id)
        elif isinstance(node, (_ast.FunctionDef, _ast.ClassDef)):
            self.bound.add(node.name)
            self.assigned.append(({node.name}, names_in(n for n in nodes(node) if isinstance(n, _ast.Return))))
        elif isinstance(node, _ast.arg):
            self.bound.add(node.arg)
        elif isinstance(node, _ast.alias):
            self.bound.add((node.asname or node.name).split('.')[0])
        elif isinstance(node, _ast.ExceptHandler) and node.name:
            self.bound.add(node.name)
        elif isinstance(node, _ast.Call):
            self.add_call(node)
        elif isinstance(node, _ast.Assign):
            self.assigned.append((names_in(node.targets), names_in([node.value])))
        elif isinstance(node, (_ast.AnnAssign, _ast.AugAssign, _ast.NamedExpr)) and node.value:
            self.assigned.append((names_in([node.target]), names_in([node.value])))
        elif isinstance(node, (_ast.For, _ast.comprehension)):
            self.assigned.append((names_in([node.target]), names_in([node.iter])))
        elif isinstance(node, _ast.withitem) and node.optional_vars:
            self.assigned.append((names_in([node.optional_vars]), names_in([node.context_expr])))

    def add_call(self, node):
        if isinstance(node.func, _ast.Name):
            self.called.add(node.func.id)
            for parameters in self.functions.get(node.func.id, []):
                self.assign_parameters(parameters, node)
        elif isinstance(node.func, _ast.Lambda):
            self.assign_parameters(parameters_of(node.func), node)
        elif isinstance(node.func, _ast.Attribute):  # list.append(value)
            self.assigned.append((names_in([node.func.value]) & self.bound, names_in(node.args + node.keywords)))

    def assign_parameters(self, parameters, call):
        for i, value in enumerate(call.args):
            one = parameters[i:i + 1] if not isinstance(value, _ast.Starred) else []
            self.assigned.append((set(one or parameters), names_in([value])))
        for value in call.keywords:
            self.assigned.append(({value.arg} if value.arg else set(parameters), names_in([value])))

    def derived(self, name):
        """Returns this name and the names whose values derive from it."""
        out, size = {name}, 0
        while len(out) > size:
            size = len(out)
            for targets, used in self.assigned:
                if used & out:
                    out |= targets
        return out

    def met(self, free):
        """Returns the undefined names that share a statement with another one. Such a name could state the verdict on
        the other's result, or receive the expected value: `assert close(f(1), 0.5)`, `assert f(1) == approx(0.5)`."""
        held, out = {name: self.derived(name) for name in free}, set()
        for statement in self.statements:
            uses = [{n for n in free if name in held[n]} for name in names_in([statement], _ast.Load)]
            found = {n for a in uses for b in uses if a is not b for n in a if b - {n}}
            if len(found) > 1 and not takes_objects(statement, found):
                out |= found
        return out


def takes_objects(statement, names):
    """`assert total([Pair(1, 2)]) == 3`: a function gets objects of a class, and both belong to the program."""
    test = statement.test if isinstance(statement, _ast.Assert) else statement
    if not isinstance(test, _ast.Compare) or not isinstance(test.left, _ast.Call):
        return False
    if not isinstance(test.left.func, _ast.Name):
        return False
    given, classes = test.left.args + test.left.keywords, {n for n in names if n[:1].isupper()}
    plain = not any(isinstance(node, _ast.Attribute) for tree in given for node in nodes(tree))
    return plain and names - classes == {test.left.func.id} and not names_in(test.comparators) & names


def module_of(name, usage):
    """Returns the module that a name stands for without an import, or ''."""
    if name in usage.called:
        return ''
    return ALIASES.get(name, name if name in sys.stdlib_module_names else '')


def under_test(job, usage):
    """Returns the names that the program must define, which are all that tests take from it."""
    if job['function']:
        return {'Solution', job['function']}
    if job['entry']:
        return {job['entry']}
    if wanted := usage.loaded & set(job['defines']):
        return wanted
    # The task does not say what is under test: take the names that neither the tests nor Python nor its library define.
    free = {n for n in usage.loaded - usage.bound
            if not n.startswith('__') and not hasattr(builtins, n) and not module_of(n, usage)}
    free = {n for n in free if n not in HELPERS} or free
    return free - usage.met(free)


def library_names(job, usage, wanted):
    """Returns the names that tests use without an import: of Python's library, or imports of the reference solution."""
    imported, out = {}, {}
    for line in job['imports']:
        try:
            exec(line, imported)
        except Exception:
            pass
    for name in usage.loaded - usage.bound - wanted - set(vars(builtins)):
        module = module_of(name, usage)
        try:
            if name in imported:
                out[name] = imported[name]
            elif module:
                out[name] = __import__(module)
            elif name in HELPERS:
                out[name] = getattr(__import__(HELPERS[name]), name)
        except ImportError:
            pass
    return out


def stub_names(stub, entry):
    """Returns the names that the stub defines. It ends in the function that the completion continues, which may have no
    body yet."""
    for text in (stub, stub + '\n    pass\n'):
        try:
            names = {}
            exec(compile(text, 'stub', 'exec'), names)
            names.pop('__builtins__', None)
            names.pop(entry, None)
            return names
        except Exception:
            continue
    return {}


INERT = ('Expression', 'Constant', 'UnaryOp', 'BinOp', 'BoolOp', 'Compare', 'List', 'Tuple', 'Set', 'Dict')


def inert_eval(text, *_):
    """eval() for tests: numbers, texts, containers and operators. A test may evaluate a text of the program, so no name
    is allowed in it."""
    tree = compile(text, 'eval', 'eval', 0x400)
    for node in nodes(tree):
        operator = isinstance(node, (_ast.operator, _ast.unaryop, _ast.boolop, _ast.cmpop, _ast.expr_context))
        if not operator and type(node).__name__ not in INERT:
            raise ValueError('eval in a test takes operators and constants alone')
    return eval(compile(tree, 'eval', 'eval'), {'__builtins__': {}})


def no_exec(*_):
    raise ValueError('exec is not there in a test')


def test_names(job, usage, tell):
    wanted = under_test(job, usage)
    classes = set(job['classes']) if wanted & set(job['defines']) else {n for n in wanted if n[:1].isupper()}
    names = {'eval': inert_eval, 'exec': no_exec}
    names.update(library_names(job, usage, wanted))
    tell('test 0')
    found = request('load', job['program'], sorted(wanted))
    if type(found) is not dict or not wanted.issuperset(found):
        raise Gone(lose('the program broke the rules: names that were not asked for'))
    for name, value in found.items():
        names[name] = given(value, 'class' if name in classes or name == 'Solution' else 'other')
    names.update(stub_names(job['stub'], job['entry']))
    if (job['entry'] or job['function']) and not found:
        raise SolutionError('there is no ' + (job['entry'] or job['function']))
    return names


# ---- tests

def listed(value):
    return [listed(v) for v in value] if isinstance(value, (list, tuple)) else value


def call(names, function, arguments, expected):
    owner = names['Solution']() if 'Solution' in names else None
    found = getattr(owner, function) if owner is not None else names[function]
    got = listed(found(*arguments))
    assert got == expected or [got] == expected, 'expected %.60r, got %.60r' % (expected, got)


def line_of(text):
    """Returns the text as one printable line."""
    return ''.join(c if c.isprintable() else ' ' for c in text[:200]).strip()


def failure(where, error):
    try:
        text = str(error).strip().split('\n')[-1][:120]
    except BaseException:
        text = ''
    if isinstance(error, Gone):
        return text + ' in ' + where
    if isinstance(error, AssertionError):
        return 'wrong answer on ' + where + (': ' + text if text else '')
    kind = '' if isinstance(error, SolutionError) else type(error).__name__ + (': ' if text else '')
    return kind + text + ' in ' + where


def judge(job, tell):
    """Runs the tests. Returns the number that passed and why the first failed test failed."""
    seed(job['stub'] + job['setup'] + ''.join(job['tests']))
    trees = [parsed(job['setup'], 'setup')]
    trees += [parsed(text, 'test %d' % (i + 1)) for i, text in enumerate(job['tests'])]
    try:
        names = test_names(job, Usage(trees), tell)
        exec(compile(trees[0], 'setup', 'exec'), names)
    except BaseException as error:
        return 0, failure('the program itself', error)
    tests = [lambda t=t: exec(compile(t, 'test', 'exec'), names) for t in trees[1:]]
    tests += [lambda c=c: call(names, job['function'], *c) for c in job['calls']]
    passed, note = 0, ''
    for number, test in enumerate(tests, 1):
        tell('test %d' % number)
        try:
            test()
            if lost:
                raise Gone(lost)
            passed += 1
        except BaseException as error:
            note = note or failure('test %d' % number, error)
            if not job['all'] or lost:
                break
    return passed, note


def hide():
    """Makes this process unreadable for other processes of the same user, through /proc or ptrace."""
    try:
        import ctypes
        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        pass


# ---- start of both processes

sys.path[:] = [p for p in sys.path if p]  # no imports from the working folder
to_worker, to_judge = os.pipe(), os.pipe()
worker = os.fork()
null = os.open(os.devnull, os.O_RDWR)
if worker == 0:
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    for descriptor in (to_worker[1], to_judge[0], null):
        os.close(descriptor)
    work(Link(to_worker[0], to_judge[1]))
if 'exposed' in sys.argv:
    hide()
from _signal import SIGINT, SIG_IGN, signal
signal(SIGINT, SIG_IGN)
os.close(to_worker[0])
os.close(to_judge[1])
link = Link(to_judge[0], to_worker[1])
verdict = os.dup(1)
with os.fdopen(0, 'rb', closefd=False) as source:
    job = unpack_value(source.read(), None)
for descriptor in (0, 1, 2):
    os.dup2(null, descriptor)


def tell(fact):
    os.write(verdict, (job['nonce'] + ' ' + fact + '\n').encode('utf-8', 'replace'))


try:
    passed, note = judge(job, tell)
    tell('passed %d %s' % (passed, line_of(note)))
except MemoryError:
    tell('passed 0 out of memory')
except BaseException as error:
    tell('failed ' + line_of(type(error).__name__ + ': ' + str(error)))
os._exit(0)
