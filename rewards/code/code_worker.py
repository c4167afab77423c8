# The worker runs the program and answers the judge's requests. The program may do anything within this process.
kept = []  # objects that the judge refers to by number


def keep(value):
    kept.append(value)
    return len(kept) - 1


def take_items(iterator, count):
    from itertools import islice
    return list(islice(iterator, count))


OPERATIONS = {
    'call': lambda f, a, k: f(*a, **k), 'get': getattr, 'set': setattr, 'item': lambda v, i: v[i], 'iter': iter,
    'take': take_items, 'len': len, 'bool': bool, 'str': str}


def described(error):
    """Returns an exception's name and text. The program computes the text, which may raise."""
    try:
        where = 'line %s: ' % error.lineno if isinstance(error, SyntaxError) else ''
        return 'raise', type(error).__name__, where + str(error)[:200]
    except BaseException:
        return 'raise', 'Exception', ''


def work(link):
    import types
    module = types.ModuleType('solution')
    sys.modules['solution'] = module

    def load(source, names):
        seed(source)
        exec(compile(source, 'solution.py', 'exec'), module.__dict__)
        return {name: module.__dict__[name] for name in names if name in module.__dict__}

    while True:
        try:
            ticket, message = link.receive()
        except EOFError:
            os._exit(0)
        try:
            verb, *arguments = unpack_value(message, kept.__getitem__)
            answer = 'ok', load(*arguments) if verb == 'load' else OPERATIONS[verb](*arguments)
            packed = pack_value(answer, keep)
        except BaseException as error:
            packed = pack_value(described(error), keep)
        link.send(ticket, packed)
