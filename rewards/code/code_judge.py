# The judge: runs the tests. Whatever comes from the worker is taken for the program's doing.
import _ast
import builtins

EXCEPTIONS = {name: kind for name, kind in vars(builtins).items() if isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(
    kind, (UnicodeError, SyntaxError, StopIteration, StopAsyncIteration)) and not name.endswith('Group')}
# What tests use of the standard library without importing it.
HELPERS = {name: module for module, names in {
    'math': 'isclose sqrt pi inf nan floor ceil fabs factorial gcd isnan isinf log exp sin cos',
    'collections': 'Counter OrderedDict defaultdict deque namedtuple', 'fractions': 'Fraction', 'decimal': 'Decimal',
    'itertools': 'chain combinations permutations product', 'functools': 'reduce', 'copy': 'deepcopy', 'datetime': 'date datetime timedelta',
    'random': 'randint', 'typing': 'Any Dict List Optional Set Tuple Union'}.items() for name in names.split()}
ALIASES = {'np': 'numpy'}


class SolutionError(Exception):
    """Raised by the program, and no exception of Python's own."""


class Gone(BaseException):
    """The worker has ended or broken the rules. Nothing is asked after it; no `except Exception` of a test hides it."""


class BrokenTask(Exception):
    """The tests are no Python."""


# ---- objects of the worker's

# Names that plain values have. An object with methods of these names could say yes where a test takes it for a text or a list.
PLAIN_NAMES = {name for kind in (int, float, complex, str, bytes, bytearray, tuple, list, dict, set, frozenset, range) for name in dir(kind)}


class Remote:
    """An object of the worker's: a function or class under test, or what came of one. It is equal to itself alone, and to compare it with a value
    fails the test: the program's own idea of equality never counts. `role` is 'class' (under test), 'own' (made by the tests, of such a class, or part
    of one that is) or 'other'."""
    __slots__ = ('__number__', '__role__')  # no attribute of the program's is asked by such a name

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
        return given(ask('call', self, arguments, named), 'own' if self.__role__ == 'class' else 'other')

    def __getattr__(self, name):
        if name.startswith('__'):
            raise AttributeError(name)
        if self.__role__ == 'other' and name in PLAIN_NAMES:
            raise TypeError('the program gave an object where a test asks a value for .' + name)
        return given(ask('get', self, name), 'own' if self.__role__ == 'own' else 'other')

    def __setattr__(self, name, value):
        ask('set', self, name, value)

    def __getitem__(self, index):
        if self.__role__ != 'own':
            raise TypeError('the program gave an object where a test takes an item')
        return ask('item', self, index)

    def __iter__(self):
        source, count = ask('iter', self), 1
        while items := taken(source, count):
            yield from items
            count = min(2 * count, 1024)

    def __next__(self):
        for item in taken(self, 1):
            return item
        raise StopIteration

    def __len__(self):
        return ask('len', self)

    def __bool__(self):
        return ask('bool', self)

    def __str__(self):
        return ask('str', self)

    def __repr__(self):
        return '<object>'


def given(value, role):
    if type(value) is Remote:
        object.__setattr__(value, '__role__', role)
    return value


def taken(source, count):
    items = ask('take', source, count)
    if type(items) is not list or len(items) > count:
        raise Gone(lose('the program broke the rules: it gave no items'))
    return items


# ---- questions

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
    """How the worker ended, that has closed its pipe."""
    import time
    for _ in range(100):
        process, status = os.waitpid(worker, os.WNOHANG)
        if process:
            code = os.waitstatus_to_exitcode(status)
            return 'the program ended itself with ' + ('exit code %d' % code if code >= 0 else 'signal %d' % -code)
        time.sleep(0.001)
    return 'the program closed its channel'


def ask(*question):
    if lost:
        raise Gone(lost)
    message, ticket = pack_value(question, number_of), os.urandom(8)
    try:
        link.send(ticket, message)
        answered, message = link.receive()
        if answered != ticket:
            raise Refused('an answer to another question')
        answer = unpack_value(message, Remote)
        kinds = tuple(map(type, answer)) if type(answer) is tuple else ()
        if kinds[:1] != (str,) or not (answer[0] == 'ok' and len(kinds) == 2 or answer[0] == 'raise' and kinds == (str, str, str)):
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
    return {node.id for tree in trees for node in nodes(tree) if isinstance(node, _ast.Name) and isinstance(node.ctx, context)}


def parameters_of(function):
    return [node.arg for node in nodes(function.args) if isinstance(node, _ast.arg)]


def functions_in(trees):
    """The parameters of the functions that tests define, by name. One name may have several."""
    found = {}
    for node in (node for tree in trees for node in nodes(tree)):
        if isinstance(node, _ast.FunctionDef):
            found.setdefault(node.name, []).append(parameters_of(node))
        elif isinstance(node, _ast.Assign) and isinstance(node.value, _ast.Lambda):
            for name in names_in(node.targets):
                found.setdefault(name, []).append(parameters_of(node.value))
    return found


# Statements whose parts stand for themselves. Any other is one whole: what an `if` asks decides whether its asserts are met.
COMPOUND = (_ast.FunctionDef, _ast.AsyncFunctionDef, _ast.ClassDef, _ast.For, _ast.AsyncFor, _ast.With, _ast.AsyncWith, _ast.Try)


class Usage:
    """What the code of tests does with names."""

    def __init__(self, trees):
        self.loaded, self.bound, self.called = set(), set(), set()
        self.assigned = []  # (names, names in what they are set to)
        self.statements = []
        self.functions = functions_in(trees)
        for node in (node for tree in trees for node in nodes(tree)):
            self.add(node)

    def add(self, node):
        if isinstance(node, _ast.Assert) and isinstance(node.test, _ast.BoolOp) and isinstance(node.test.op, _ast.And) and not node.msg:
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
                self.finish_batch(parameters, node)
        elif isinstance(node.func, _ast.Lambda):
            self.finish_batch(parameters_of(node.func), node)
        elif isinstance(node.func, _ast.Attribute):  # list.append(value)
            self.assigned.append((names_in([node.func.value]) & self.bound, names_in(node.args + node.keywords)))

    def finish_batch(self, parameters, call):
        for i, value in enumerate(call.args):
            one = parameters[i:i + 1] if not isinstance(value, _ast.Starred) else []
            self.assigned.append((set(one or parameters), names_in([value])))
        for value in call.keywords:
            self.assigned.append(({value.arg} if value.arg else set(parameters), names_in([value])))

    def derived(self, name):
        """This name and those that hold what came of it."""
        out, size = {name}, 0
        while len(out) > size:
            size = len(out)
            for targets, used in self.assigned:
                if used & out:
                    out |= targets
        return out

    def met(self, free):
        """Of names that nothing defines, those that meet another in a statement. One might state the verdict on the other's result, or be told what is
        expected of it: `assert close(f(1), 0.5)`, `assert f(1) == approx(0.5)`."""
        held, out = {name: self.derived(name) for name in free}, set()
        for statement in self.statements:
            uses = [{n for n in free if name in held[n]} for name in names_in([statement], _ast.Load)]
            found = {n for a in uses for b in uses if a is not b for n in a if b - {n}}
            if len(found) > 1 and not takes_objects(statement, found):
                out |= found
        return out


def takes_objects(statement, names):
    """`assert total([Pair(1, 2)]) == 3`: a function that is handed objects of a class, both of them the program's."""
    test = statement.test if isinstance(statement, _ast.Assert) else statement
    if not isinstance(test, _ast.Compare) or not isinstance(test.left, _ast.Call) or not isinstance(test.left.func, _ast.Name):
        return False
    given, classes = test.left.args + test.left.keywords, {n for n in names if n[:1].isupper()}
    plain = not any(isinstance(node, _ast.Attribute) for tree in given for node in nodes(tree))
    return plain and names - classes == {test.left.func.id} and not names_in(test.comparators) & names


def module_of(name, usage):
    """The module that a name stands for where a test has not imported it; ''."""
    if name in usage.called:
        return ''
    return ALIASES.get(name, name if name in sys.stdlib_module_names else '')


def under_test(job, usage):
    """The names that the program is to define: all that tests take from it."""
    if job['function']:
        return {'Solution', job['function']}
    if job['entry']:
        return {job['entry']}
    if wanted := usage.loaded & set(job['defines']):
        return wanted
    # Nothing says what is under test: what neither the tests, Python nor its library define.
    free = {n for n in usage.loaded - usage.bound if not n.startswith('__') and not hasattr(builtins, n) and not module_of(n, usage)}
    free = {n for n in free if n not in HELPERS} or free
    return free - usage.met(free)


def library_names(job, usage, wanted):
    """What tests use without importing it, from Python's library or what the reference solution imports."""
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
    """What the code before the completion defines. It ends in the function that the completion goes on with, which may have no body yet."""
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
    """eval() of tests: numbers, texts, containers and operators. What a test evaluates may be the program's text, so nothing in it has a name."""
    tree = compile(text, 'eval', 'eval', 0x400)
    for node in nodes(tree):
        if not isinstance(node, (_ast.operator, _ast.unaryop, _ast.boolop, _ast.cmpop, _ast.expr_context)) and type(node).__name__ not in INERT:
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
    found = ask('load', job['program'], sorted(wanted))
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
    """One line of printable text."""
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
    """Runs the tests; the number that passed, and why the first other one did not."""
    seed(job['stub'] + job['setup'] + ''.join(job['tests']))
    trees = [parsed(job['setup'], 'setup')] + [parsed(text, 'test %d' % (i + 1)) for i, text in enumerate(job['tests'])]
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
    """Makes this process one that others of the same user cannot read, where /proc or ptrace might reach it."""
    try:
        import ctypes
        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        pass


# ---- both

sys.path[:] = [p for p in sys.path if p]  # nothing is imported from the working folder
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
