"""Values as bytes, exchanged by the judge and the worker that runs the program (docs/explain/sandbox.md).

The format is plain data: it cannot name a class other than Python's plain ones, an object, or code. The reader does not
trust the bytes. It checks each length against the remaining bytes, bounds depth, sizes and the number of values, and
raises Refused for anything else. A value is a tag and:

  N T F                    nothing: None, True, False
  i  size bytes            an integer, little-endian, signed
  f  8 bytes               a float
  s  size bytes            text, UTF-8 that may hold lone surrogates
  b  size bytes            bytes
  l t e z  count values    list, tuple, set, frozenset
  d  count keys, values    dict, in order
  x  text tuple            a kind of EXTENSIONS by name, made of plain values
  h  integer               an object of the worker, by number

Sizes and counts have 4 bytes, little-endian. An instance of a subclass (a named tuple, an enum of integers) is sent as
its plain value.
"""
import os
import struct
import sys

MOST_BYTES = 64 << 20
MOST_VALUES = 4 << 20
MOST_DEPTH = 100
MOST_INTEGER_BYTES = 1 << 20


class Refused(Exception):
    """The bytes are not a value."""


def aware(datetime, *parts):
    zone = None if parts[7] is None else datetime.timezone(parts[7])
    return datetime.datetime(*parts[:7], tzinfo=zone)


# For each kind: its module, its parts, the types of the parts, and the function that makes it (default: the class).
EXTENSIONS = {
    'complex': ('builtins', lambda v: (v.real, v.imag), 'float float'),
    'bytearray': ('builtins', lambda v: (bytes(v),), 'bytes'),
    'range': ('builtins', lambda v: (v.start, v.stop, v.step), 'int int int'),
    'Fraction': ('fractions', lambda v: (v.numerator, v.denominator), 'int int'),
    'Decimal': ('decimal', lambda v: (str(v),), 'str'),
    'OrderedDict': ('collections', lambda v: (dict(v),), 'dict'),
    'Counter': ('collections', lambda v: (dict(v),), 'dict'),
    'deque': ('collections', lambda v: (list(v), v.maxlen), 'list int|NoneType'),
    'date': ('datetime', lambda v: (v.year, v.month, v.day), 'int int int'),
    'time': ('datetime', lambda v: (v.hour, v.minute, v.second, v.microsecond), 'int int int int'),
    'timedelta': ('datetime', lambda v: (v.days, v.seconds, v.microseconds), 'int int int'),
    'datetime': ('datetime',
                 lambda v: (v.year, v.month, v.day, v.hour, v.minute, v.second, v.microsecond, v.utcoffset()),
                 'int int int int int int int timedelta|NoneType', aware),
    'type': ('builtins', lambda v: (v.__name__,), 'str', lambda _, name: TYPES[name]),  # plain types only
}
TYPES = {kind.__name__: kind for kind in (
    bool, int, float, complex, str, bytes, bytearray, tuple, list, dict, set, frozenset, range, object)}
PLAIN = ('NoneType', 'bool', 'int', 'float', 'str', 'bytes', 'list', 'tuple', 'set', 'frozenset', 'dict')
FORMS = {('builtins', name): name for name in PLAIN} | {(kind[0], name): name for name, kind in EXTENSIONS.items()} | {
    ('numpy', 'generic'): 'item', ('numpy', 'ndarray'): 'tolist'}
GROUPS = {'list': b'l', 'tuple': b't', 'set': b'e', 'frozenset': b'z'}


def form_of(kind):
    for base in kind.__mro__:
        form = FORMS.get((base.__module__, base.__qualname__))
        if form:
            return form


def pack_value(value, number_of):
    """Returns the bytes of a value. number_of(object) returns the number of an object that is not data, or raises.
    Raises ValueError if the value exceeds a bound."""
    out, left = bytearray(), MOST_VALUES

    def sized(tag, body):
        out.extend(tag)
        out.extend(len(body).to_bytes(4, 'little'))
        out.extend(body)

    def integer(number):
        body = number.to_bytes(number.bit_length() // 8 + 1, 'little', signed=True)
        if len(body) > MOST_INTEGER_BYTES:
            raise ValueError('an integer of %d bits is too large' % number.bit_length())
        sized(b'i', body)

    def group(tag, values, depth):
        out.extend(tag)
        out.extend(len(values).to_bytes(4, 'little'))
        for value in values:
            put(value, depth + 1)

    def put(value, depth):
        nonlocal left
        left -= 1
        if left < 0 or depth > MOST_DEPTH or len(out) > MOST_BYTES:
            raise ValueError('a value is too large or nested too deeply')
        form = form_of(type(value))
        if form is None or (form == 'type' and TYPES.get(value.__name__) is not value):
            number = number_of(value)
            out.extend(b'h')
            integer(number)
        elif form == 'int':
            integer(int.__int__(value))
        elif form == 'str':
            sized(b's', str.encode(value, 'utf-8', 'surrogatepass'))
        elif form == 'float':
            out.extend(b'f')
            out.extend(struct.pack('<d', value))
        elif form == 'NoneType':
            out.extend(b'N')
        elif form == 'bool':
            out.extend(b'T' if value else b'F')
        elif form == 'bytes':
            sized(b'b', memoryview(value))
        elif form == 'dict':
            pairs = list(dict.items(value))
            out.extend(b'd')
            out.extend(len(pairs).to_bytes(4, 'little'))
            for key, member in pairs:
                put(key, depth + 1)
                put(member, depth + 1)
        elif form in GROUPS:
            group(GROUPS[form], tuple(value), depth)
        elif form in EXTENSIONS:
            out.extend(b'x')
            put(form, depth + 1)
            put(EXTENSIONS[form][1](value), depth + 1)
        else:
            put(getattr(value, form)(), depth + 1)

    put(value, 0)
    if len(out) > MOST_BYTES:
        raise ValueError('a value is too large')
    return bytes(out)


def extension(name, parts):
    if type(name) is not str or name not in EXTENSIONS:
        raise Refused('a kind of value that is not known')
    module, _, kinds, *make = EXTENSIONS[name]
    kinds = kinds.split()
    if type(parts) is not tuple or len(parts) != len(kinds):
        raise Refused('a %s of other parts' % name)
    if not all(type(p).__name__ in k.split('|') for p, k in zip(parts, kinds)):
        raise Refused('a %s of other parts' % name)
    module = __import__(module)
    try:
        return make[0](module, *parts) if make else getattr(module, name)(*parts)
    except Exception as error:
        raise Refused('a %s that cannot be made' % name) from error


def unpack_value(data, object_of):
    """Returns the value of bytes, or raises Refused. object_of(number) returns the proxy of a worker's object."""
    at, left = 0, MOST_VALUES

    def take(count):
        nonlocal at
        if count > len(data) - at:
            raise Refused('a value is cut short')
        at += count
        return data[at - count:at]

    def size():
        return int.from_bytes(take(4), 'little')

    def count():
        number = size()
        if number > len(data) - at:
            raise Refused('a value is cut short')
        return number

    def integer():
        length = size()
        if length > MOST_INTEGER_BYTES:
            raise Refused('an integer is too large')
        return int.from_bytes(take(length), 'little', signed=True)

    def group(depth):
        return [read(depth + 1) for _ in range(count())]

    def read(depth):
        nonlocal left
        left -= 1
        if left < 0 or depth > MOST_DEPTH:
            raise Refused('a value is too large or nested too deeply')
        tag = take(1)
        if tag == b'i':
            return integer()
        if tag == b's':
            return take(size()).decode('utf-8', 'surrogatepass')
        if tag == b'f':
            return struct.unpack('<d', take(8))[0]
        if tag == b'N':
            return None
        if tag == b'T':
            return True
        if tag == b'F':
            return False
        if tag == b'b':
            return take(size())
        if tag == b'l':
            return group(depth)
        if tag == b't':
            return tuple(group(depth))
        if tag == b'e':
            return set(group(depth))
        if tag == b'z':
            return frozenset(group(depth))
        if tag == b'd':
            return dict([(read(depth + 1), read(depth + 1)) for _ in range(count())])
        if tag == b'x':
            name = read(depth + 1)
            return extension(name, read(depth + 1))
        if tag == b'h':
            if take(1) != b'i':
                raise Refused('an object without a number')
            return object_of(integer())
        raise Refused('a value of no known kind')

    try:
        value = read(0)
    except (ValueError, TypeError) as error:  # text that is not UTF-8, a key without a hash
        raise Refused('a value out of form') from error
    if at != len(data):
        raise Refused('bytes after a value')
    return value


class Link:
    """Messages over two pipes. Each has a ticket of 8 bytes; an answer repeats the ticket of its request."""

    def __init__(self, source, sink):
        self.source, self.sink = os.fdopen(source, 'rb'), os.fdopen(sink, 'wb')

    def send(self, ticket, message):
        self.sink.write(ticket + len(message).to_bytes(8, 'little') + message)
        self.sink.flush()

    def receive(self):
        head = self.source.read(16)
        size = int.from_bytes(head[8:], 'little')
        if size > MOST_BYTES:
            raise Refused('a message of %d bytes' % size)
        message = self.source.read(size)
        if len(head) < 16 or len(message) < size:
            raise EOFError
        return head[:8], message


def seed(text):
    if 'random' in text:
        import random
        random.seed(0)
