"""Fields of linear messages: where each lies in its message's block, and how it is read and written.

A field is a descriptor of Python: `message.name` asks it. What many share is `Field`; a message gives it `_tl_arena`
and `_tl_at` (the place of its block, 0 if it has none yet).
"""

import collections.abc
import math
import struct

from ._memory import PAIR, U32

# Formats of `struct` and `memoryview`, and how wide they are.
_WIDTHS = {"i": 4, "I": 4, "q": 8, "Q": 8, "f": 4, "d": 8, "?": 1}
_STRUCTS = {kind: struct.Struct("<" + kind) for kind in _WIDTHS}
# What a buffer's elements are: numpy says `l` for what is `q` here.
_SORTS = {**dict.fromkeys("bhilqn", "signed"), **dict.fromkeys("BHILQN", "unsigned")}
_SORTS.update(dict.fromkeys("fd", "float"))
_SORTS["?"] = "bool"


def _packed(kind, value, where):
    """A number as it lies in memory."""
    if kind == "?" and not isinstance(value, int):
        raise TypeError(f"{where}: {value!r} is no bool")
    try:
        return _STRUCTS[kind].pack(value)
    except OverflowError:
        if kind == "f" and isinstance(value, float):
            return _STRUCTS[kind].pack(math.copysign(math.inf, value))
        raise ValueError(f"{where}: {value} is out of range") from None
    except struct.error:
        if isinstance(value, int):
            raise ValueError(f"{where}: {value} is out of range") from None
        raise TypeError(f"{where}: {value!r} is no number of this kind") from None


def _raw_text(value, where):
    if isinstance(value, str):
        try:
            return value.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            raise ValueError(f"{where}: {error}") from None
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"{where}: {value!r} is no text")


def _raw_bytes(value, where):
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"{where}: {value!r} is no bytes")


def _text(data):
    # What need not be UTF-8 (proto2) is not lost: it is written as it was read.
    return str(data, "utf-8", "surrogateescape")


class Field:
    """A field: its name in the `.proto` file, its number, the place of its slot and of its presence bit."""

    is_repeated = False
    width = 8  # of its slot

    def __init__(self, name, number, slot, bit, *, presence=False, required=False, oneof=None):
        self.name = name
        self.number = number
        self.has_presence = presence or required or oneof is not None
        self.is_required = required
        self.oneof = oneof
        self.where = name
        self._slot = slot
        self._byte = 4 + bit // 8
        self._mask = 1 << bit % 8
        self._siblings = ()
        self._oneof_bytes = 0

    def __set_name__(self, owner, name):
        self.attribute = name

    def in_oneof(self, members):
        """Told of all members of its oneof, which share a slot."""
        self._siblings = tuple(member for member in members if member is not self)
        self._oneof_bytes = max(member.width for member in members)

    def of_type(self, full_name):
        """Told whose field it is."""
        self.where = f"{full_name}.{self.name}"

    def is_present(self, message):
        at = message._tl_at or message._tl_find()
        return bool(at and message._tl_arena.data[at + self._byte] & self._mask)

    def clear(self, message):
        """It is absent from here on, and nothing of it is sent."""
        if self.is_present(message):
            at = message._tl_need()
            arena = message._tl_arena
            self._forget(arena, at + self._slot)
            arena.data[at + self._byte] &= ~self._mask & 0xFF
            arena.data[at + self._slot : at + self._slot + self.width] = bytes(self.width)

    def _forget(self, arena, slot):
        """What it has is left behind."""
        arena.leave()

    def _mark(self, message):
        """The arena and the place of the slot of a field that is about to be written."""
        at = message._tl_need()
        data = message._tl_arena.data
        if self._siblings and not data[at + self._byte] & self._mask:
            for sibling in self._siblings:
                sibling.clear(message)
            data[at + self._slot : at + self._slot + self._oneof_bytes] = bytes(self._oneof_bytes)
        data[at + self._byte] |= self._mask
        return message._tl_arena, at + self._slot

    def __repr__(self):
        return f"<field {self.where} = {self.number}>"


class Number(Field):
    """A number, a bool or an enum's number."""

    def __init__(self, name, number, slot, bit, kind, default=0, **more):
        super().__init__(name, number, slot, bit, **more)
        self.kind = kind
        self.width = _WIDTHS[kind]
        self._default = {"f": float, "d": float, "?": bool}.get(kind, int)(default)
        self._struct = _STRUCTS[kind]

    def __get__(self, message, owner=None):
        if message is None:
            return self
        at = message._tl_at or message._tl_find()
        if at:
            data = message._tl_arena.data
            if data[at + self._byte] & self._mask:
                return self._struct.unpack_from(data, at + self._slot)[0]
        return self._default

    def _forget(self, arena, slot):
        """Nothing is left of a number: its slot is zeroed."""

    def check(self, value):
        """Raises what a value has against it."""
        return _packed(self.kind, value, self.where)

    def __set__(self, message, value):
        raw = self.check(value)
        arena, slot = self._mark(message)
        arena.data[slot : slot + self.width] = raw

    initialize = __set__

    def copy(self, to, message):
        """Writes into a message what another has. A zero that does not count as present is nothing to copy."""
        at = message._tl_at + self._slot
        raw = bytes(message._tl_arena.data[at : at + self.width])
        if self.has_presence or any(raw):
            arena, slot = self._mark(to)
            arena.data[slot : slot + self.width] = raw


class Text(Field):
    """A string: decoded when it is asked for."""

    _raw = staticmethod(_raw_text)

    def __init__(self, name, number, slot, bit, default="", **more):
        super().__init__(name, number, slot, bit, **more)
        self._default = default

    def __get__(self, message, owner=None):
        if message is None:
            return self
        found = self._found(message)
        return self._default if found is None else self._value(message._tl_arena, found)

    def _found(self, message):
        if not self.is_present(message):
            return None
        arena = message._tl_arena
        offset, count = arena.span((message._tl_at or message._tl_find()) + self._slot, 1, self.where)
        return arena.data[offset : offset + count]

    def _value(self, arena, found):
        return _text(found)

    def check(self, value):
        return self._raw(value, self.where)

    def __set__(self, message, value):
        raw = self.check(value)
        message._tl_trim()
        self._write(message, raw)

    def initialize(self, message, value):
        self._write(message, self.check(value))

    def _write(self, message, raw):
        is_present = self.is_present(message)
        arena, slot = self._mark(message)
        arena.put(slot, is_present, raw, self.where)

    def _forget(self, arena, slot):
        arena.shorten(slot, 0, 1, self.where)

    def copy(self, to, message):
        found = self._found(message)
        if self.has_presence or len(found):
            self._write(to, bytes(found))


class Blob(Text):
    """Bytes: of a received message a `memoryview`, else a copy."""

    _raw = staticmethod(_raw_bytes)

    def __init__(self, name, number, slot, bit, default=b"", **more):
        super().__init__(name, number, slot, bit, default, **more)

    def _value(self, arena, found):
        return found if arena.is_received else bytes(found)


class Child(Field):
    """A message, or a group."""

    width = 4

    def __init__(self, name, number, slot, bit, type_, **more):
        super().__init__(name, number, slot, bit, **more)
        self.type = type_
        self.has_presence = True

    def __get__(self, message, owner=None):
        if message is None:
            return self
        at = self.place(message)
        return self.type()._tl_part(message._tl_arena, at, message, self)

    def place(self, message):
        """The place of the block, 0 if there is none."""
        at = message._tl_at or message._tl_find()
        arena = message._tl_arena
        if not at or not arena.data[at + self._byte] & self._mask:
            return 0
        return arena.block(U32.unpack_from(arena.data, at + self._slot)[0], self.type().BLOCK_BYTES, self.where)

    def make(self, message):
        """The place of the block, made if there is none."""
        at = self.place(message)
        if not at:
            message._tl_need()
            at = message._tl_arena.zeroed(self.type().BLOCK_BYTES, 8)
            arena, slot = self._mark(message)
            U32.pack_into(arena.data, slot, at)
        return at

    def __set__(self, message, value):
        raise AttributeError(f"{self.where}: a message is not assigned; change it, or copy into it with CopyFrom()")

    def initialize(self, message, value):
        made = self.__get__(message)
        made.SetInParent()
        if isinstance(value, collections.abc.Mapping):
            made._tl_initialize(value)
        else:
            made.CopyFrom(value)

    def copy(self, to, message):
        made = self.__get__(to)
        made.SetInParent()
        made._tl_merge(self.__get__(message))


class _Repeated(Field):
    """A repeated field. Its elements are as wide as `element_bytes`, whatever they stand for."""

    is_repeated = True
    element_bytes = alignment = 4

    def __get__(self, message, owner=None):
        return self if message is None else self.values(message)

    def __set__(self, message, value):
        raise AttributeError(f"{self.where}: a repeated field is not assigned; use extend() or [:] = ...")

    def span(self, message):
        if not self.is_present(message):
            return 0, 0
        at = message._tl_at or message._tl_find()
        return message._tl_arena.span(at + self._slot, self.element_bytes, self.where)

    def place(self, message, more):
        """The place of more elements, which the message has from here on."""
        is_present = self.is_present(message)
        arena, slot = self._mark(message)
        return arena.place(slot, is_present, self.element_bytes, more, self.alignment, self.where)

    def shorten(self, message, count):
        arena, slot = self._mark(message)
        arena.shorten(slot, count, self.element_bytes, self.where)

    def _forget(self, arena, slot):
        arena.shorten(slot, 0, self.element_bytes, self.where)
        arena.leave()

    def leave(self, message, at):
        """The element in a place is about to go."""
        message._tl_arena.leave()

    def initialize(self, message, values):
        self.values(message).extend(values)

    def copy(self, to, message):
        self.values(to).extend(self.values(message))


class Numbers(_Repeated):
    """Numbers: of a received message a `memoryview` of them where they lie, else a list that can be changed."""

    def __init__(self, name, number, slot, bit, kind):
        super().__init__(name, number, slot, bit)
        self.kind = kind
        self.element_bytes = self.alignment = _WIDTHS[kind]
        self._struct = _STRUCTS[kind]

    def _forget(self, arena, slot):
        arena.shorten(slot, 0, self.element_bytes, self.where)

    def leave(self, message, at):
        """Nothing is left of a number."""

    def values(self, message):
        arena = message._tl_arena
        if not arena.is_received:
            return NumberList(message, self)
        offset, count = self.span(message)
        return arena.data[offset : offset + count * self.element_bytes].cast(self.kind)

    def read(self, message, at):
        return self._struct.unpack_from(message._tl_arena.data, at)[0]

    def raw(self, message, value):
        return _packed(self.kind, value, self.where)

    def as_they_lie(self, values):
        """The bytes of numbers that lie in a buffer as they would here; None if they do not."""
        if isinstance(values, NumberList):
            values = values.copy_out()
        if not isinstance(values, memoryview):
            if isinstance(values, (bytes, bytearray)) or not hasattr(values, "__len__"):
                return None
            try:
                values = memoryview(values)
            except TypeError:
                return None
        sort = _SORTS.get(values.format.lstrip("@=<" if _IS_LITTLE else "@="))
        if values.ndim != 1 or sort != _SORTS[self.kind] or values.itemsize != self.element_bytes:
            return None
        return values.tobytes()


_IS_LITTLE = struct.pack("=I", 1) == struct.pack("<I", 1)


class Texts(_Repeated):
    """Strings."""

    element_bytes = 8
    _raw = staticmethod(_raw_text)

    def values(self, message):
        return List(message, self)

    def read(self, message, at):
        arena = message._tl_arena
        offset, count = arena.span(at, 1, self.where)
        return self._value(arena, arena.data[offset : offset + count])

    def _value(self, arena, found):
        return _text(found)

    def raw(self, message, value):
        raw = self._raw(value, self.where)
        message._tl_need()
        return PAIR.pack(message._tl_arena.append(raw), len(raw))

    def leave(self, message, at):
        message._tl_arena.erase(at, self.where)


class Blobs(Texts):
    """Byte strings: of a received message `memoryview`s, else copies."""

    _raw = staticmethod(_raw_bytes)

    def _value(self, arena, found):
        return found if arena.is_received else bytes(found)


class Children(_Repeated):
    """Messages."""

    def __init__(self, name, number, slot, bit, type_):
        super().__init__(name, number, slot, bit)
        self.type = type_

    def values(self, message):
        return MessageList(message, self)

    def read(self, message, at):
        arena, type_ = message._tl_arena, self.type()
        place = arena.block(U32.unpack_from(arena.data, at)[0], type_.BLOCK_BYTES, self.where)
        return type_._tl_part(arena, place, None, None)

    def raw(self, message, value):
        """A copy of a message, or an empty one for None."""
        message._tl_need()
        type_ = self.type()
        if value is not None and not isinstance(value, (type_, collections.abc.Mapping)):
            raise TypeError(f"{self.where}: {value!r} is no {type_.FULL_NAME}")
        at = message._tl_arena.zeroed(type_.BLOCK_BYTES, 8)
        made = type_._tl_part(message._tl_arena, at, None, None)
        if isinstance(value, collections.abc.Mapping):
            made._tl_initialize(value)
        elif value is not None:
            made._tl_merge(value)
        return U32.pack(at)


class List(collections.abc.MutableSequence):
    """The elements of a repeated field. What was received does not change."""

    __slots__ = ("_message", "_field")

    def __init__(self, message, field):
        self._message = message
        self._field = field

    def __len__(self):
        return self._field.span(self._message)[1]

    def __getitem__(self, index):
        offset, count = self._field.span(self._message)
        read, width = self._field.read, self._field.element_bytes
        if isinstance(index, slice):
            return [read(self._message, offset + at * width) for at in range(*index.indices(count))]
        return read(self._message, offset + self._index(index, count) * width)

    def __iter__(self):
        at = 0
        while at < len(self):
            yield self[at]
            at += 1

    def _index(self, index, count):
        index = index.__index__()
        if not -count <= index < count:
            raise IndexError(f"{self._field.where}: there is no element {index} of {count}")
        return index % count

    def append(self, value):
        self._append(self._field.raw(self._message, value))

    def _append(self, raw):
        at = self._field.place(self._message, 1)
        self._message._tl_arena.data[at : at + len(raw)] = raw

    def extend(self, values):
        for value in list(values) if isinstance(values, List) else values:
            self.append(value)

    def insert(self, index, value):
        count = len(self)
        index = max(0, index + count) if index < 0 else min(index, count)
        self.append(value)
        self._move(index, index + 1, count - index, self._raw_at(count))

    def __setitem__(self, index, value):
        self._message._tl_trim()
        if isinstance(index, slice):
            values = list(self)
            values[index] = value
            self._message._tl_need()
            self.clear()
            return self.extend(values)
        raw = self._field.raw(self._message, value)
        offset, count = self._field.span(self._message)
        at = offset + self._index(index, count) * self._field.element_bytes
        self._field.leave(self._message, at)
        self._message._tl_arena.data[at : at + len(raw)] = raw
        return None

    def __delitem__(self, index):
        if isinstance(index, slice):
            for at in sorted(range(*index.indices(len(self))), reverse=True):
                del self[at]
            return
        self._message._tl_need()
        self._message._tl_trim()
        offset, count = self._field.span(self._message)
        index = self._index(index, count)
        self._field.leave(self._message, offset + index * self._field.element_bytes)
        self._move(index + 1, index, count - index - 1, b"")
        self._field.shorten(self._message, count - 1)

    def _raw_at(self, index):
        at = self._field.span(self._message)[0] + index * self._field.element_bytes
        return bytes(self._message._tl_arena.data[at : at + self._field.element_bytes])

    def _move(self, first, to, count, behind):
        """Moves elements within the array, and puts one where the first of them was."""
        offset, width = self._field.span(self._message)[0], self._field.element_bytes
        data = self._message._tl_arena.data
        moved = data[offset + first * width : offset + (first + count) * width]
        data[offset + to * width : offset + (to + count) * width] = moved
        data[offset + first * width : offset + first * width + len(behind)] = behind

    def clear(self):
        self._message._tl_need()
        self._message._tl_trim()
        self._field.clear(self._message)

    def __eq__(self, other):
        return list(self) == list(other) if isinstance(other, collections.abc.Sequence) else NotImplemented

    def __repr__(self):
        return repr(list(self))


class NumberList(List):
    """Numbers of a message that is being built."""

    __slots__ = ()

    def extend(self, values):
        raw = self._field.as_they_lie(values)
        if raw is None:
            values = [self._field.raw(self._message, value) for value in values]
            raw = b"".join(values)
        self._message._tl_need()
        if raw:
            at = self._field.place(self._message, len(raw) // self._field.element_bytes)
            self._message._tl_arena.data[at : at + len(raw)] = raw

    def copy_out(self):
        """A `memoryview` of a copy."""
        offset, count = self._field.span(self._message)
        raw = bytes(self._message._tl_arena.data[offset : offset + count * self._field.element_bytes])
        return memoryview(raw).cast(self._field.kind)

    def __getitem__(self, index):
        return self.copy_out()[index].tolist() if isinstance(index, slice) else super().__getitem__(index)

    def __iter__(self):
        return iter(self.copy_out())

    def __setitem__(self, index, value):
        if isinstance(index, slice):
            values = self.copy_out().tolist()
            values[index] = value
            packed = b"".join(self._field.raw(self._message, each) for each in values)
            self.clear()
            if packed:
                at = self._field.place(self._message, len(values))
                self._message._tl_arena.data[at : at + len(packed)] = packed
        else:
            super().__setitem__(index, value)


class MessageList(List):
    """Messages of a repeated field."""

    __slots__ = ()

    def add(self, /, **fields):
        """One more, which is given to be filled."""
        self._append(self._field.raw(self._message, fields or None))
        return self[-1]

    def __setitem__(self, index, value):
        if isinstance(index, slice):
            # What stays is copied, too: an element of a message has one place.
            return super().__setitem__(index, value)
        raise TypeError(f"{self._field.where}: an element is not assigned; copy into it with CopyFrom()")


class Map(Field):
    """A map: a mapping of Python. Of entries with one key the last counts."""

    is_repeated = True

    def __init__(self, name, number, slot, bit, block_bytes, key, value):
        super().__init__(name, number, slot, bit)
        self.key = key
        self.value = value
        self._block_bytes = block_bytes

    def of_type(self, full_name):
        super().of_type(full_name)
        self.key.of_type(self.where)
        self.value.of_type(self.where)

    def __get__(self, message, owner=None):
        return self if message is None else MapValues(message, self)

    def __set__(self, message, value):
        raise AttributeError(f"{self.where}: a map is not assigned; use update()")

    def entries(self, message):
        """The entries in the order in which they came."""
        if not self.is_present(message):
            return
        arena = message._tl_arena
        offset, count = arena.span((message._tl_at or message._tl_find()) + self._slot, 4, self.where)
        for index in range(count):
            yield self._entry(arena, U32.unpack_from(arena.data, offset + 4 * index)[0])

    def _entry(self, arena, at):
        return _Entry(arena, arena.block(at, self._block_bytes, self.where))

    def index(self, message):
        """Places of entries by key."""
        arena, slot = message._tl_arena, (message._tl_at or message._tl_find()) + self._slot
        if arena.is_received or not self.is_present(message):
            return {self.key.__get__(entry): entry._tl_at for entry in self.entries(message)}
        if slot not in arena.maps:
            arena.maps[slot] = {self.key.__get__(entry): entry._tl_at for entry in self.entries(message)}
        return arena.maps[slot]

    def entry_of(self, message, key):
        """The entry of a key, made if there is none."""
        message._tl_need()
        self.key.check(key)
        at = self.index(message).get(key)
        if at is not None:
            return _Entry(message._tl_arena, at)
        entry = _Entry(message._tl_arena, message._tl_arena.zeroed(self._block_bytes, 8))
        self.key.__set__(entry, key)
        self.add(message, entry)
        self.index(message)[self.key.__get__(entry)] = entry._tl_at
        return entry

    def add(self, message, entry):
        is_present = self.is_present(message)
        arena, slot = self._mark(message)
        U32.pack_into(arena.data, arena.place(slot, is_present, 4, 1, 4, self.where), entry._tl_at)

    def remove(self, message, key):
        """Takes out every entry of a key."""
        message._tl_need()
        kept = [entry._tl_at for entry in self.entries(message) if self.key.__get__(entry) != key]
        arena, slot = self._mark(message)
        offset = PAIR.unpack_from(arena.data, slot)[0]
        for index, at in enumerate(kept):
            U32.pack_into(arena.data, offset + 4 * index, at)
        arena.shorten(slot, len(kept), 4, self.where)
        arena.maps.pop(slot, None)
        arena.leave()

    def _forget(self, arena, slot):
        arena.shorten(slot, 0, 4, self.where)
        arena.maps.pop(slot, None)
        arena.leave()

    def initialize(self, message, values):
        MapValues(message, self).update(values)

    def copy(self, to, message):
        if self.is_present(to):
            return MapValues(to, self).update(MapValues(message, self))
        to._tl_need()
        for entry in list(self.entries(message)):
            made = _Entry(to._tl_arena, to._tl_arena.zeroed(self._block_bytes, 8))
            for field in (self.key, self.value):
                if field.is_present(entry):
                    field.copy(made, entry)
            self.add(to, made)
        return None


class _Entry:
    """An entry of a map, for the fields that read and write it."""

    __slots__ = ("_tl_arena", "_tl_at")

    def __init__(self, arena, at):
        self._tl_arena = arena
        self._tl_at = at

    def _tl_find(self):
        return self._tl_at

    def _tl_need(self):
        return self._tl_at

    def _tl_trim(self):
        """Not in the middle of what is done with it."""


class MapValues(collections.abc.MutableMapping):
    """Keys and values of a map."""

    __slots__ = ("_message", "_field", "_received")

    def __init__(self, message, field):
        self._message = message
        self._field = field
        self._received = None

    def _index(self):
        if not self._message._tl_arena.is_received:
            return self._field.index(self._message)
        if self._received is None:
            self._received = self._field.index(self._message)
        return self._received

    def __getitem__(self, key):
        is_made = isinstance(self._field.value, Child) and not self._message._tl_arena.is_received
        at = self._index().get(key)
        if at is not None and not is_made:
            return self._field.value.__get__(_Entry(self._message._tl_arena, at))
        if is_made:
            return self.get_or_create(key)
        raise KeyError(key)

    def get_or_create(self, key):
        """The message of a key, made if there is none."""
        entry = self._field.entry_of(self._message, key)
        self._field.value.make(entry)
        return self._field.value.__get__(entry)

    def __contains__(self, key):
        return key in self._index()

    def get(self, key, default=None):
        return self[key] if key in self else default

    def __setitem__(self, key, value):
        field = self._field.value
        if isinstance(field, Child):
            raise ValueError(f"{self._field.where}: a message is not assigned; copy into it with CopyFrom()")
        field.check(value)
        self._message._tl_trim()
        field.__set__(self._field.entry_of(self._message, key), value)

    def update(self, other=(), **more):
        pairs = other.items() if hasattr(other, "items") else other
        for key, value in [*pairs, *more.items()]:
            if isinstance(self._field.value, Child):
                entry = self._field.entry_of(self._message, key)
                self._field.value.clear(entry)
                self._field.value.initialize(entry, value)
            else:
                self[key] = value

    def __delitem__(self, key):
        if key not in self:
            raise KeyError(key)
        self._message._tl_need()
        self._message._tl_trim()
        self._field.remove(self._message, key)

    def clear(self):
        self._message._tl_need()
        self._message._tl_trim()
        self._field.clear(self._message)

    def __iter__(self):
        return iter(list(self._index()))

    def __len__(self):
        return len(self._index())

    def __eq__(self, other):
        return dict(self) == dict(other) if isinstance(other, collections.abc.Mapping) else NotImplemented

    def __repr__(self):
        return repr(dict(self))
