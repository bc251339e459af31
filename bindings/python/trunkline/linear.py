"""Messages without copies: what `protoc-gen-trunkline` makes with `lang=python` is built on this.

    request = search_linear.Query(text="ink", limit=10)
    found = search_linear.SearchStub(channel).Find(request)
    prices = numpy.asarray(found.prices)      # the memory the daemon put them into, read-only

A message that was received is read where it lies and cannot be changed; `copy.deepcopy`, or `CopyFrom` into another,
gives one that can. What was read from it (`memoryview`s, messages in it) keeps its memory. A message that is built lies
in memory of this process, and is copied once when it is sent. Names are those protobuf's own classes have.
"""

import importlib
import math

import grpc

from ._fields import Blob, Blobs, Child, Children, Field, Map, Number, Numbers, Text, Texts
from ._library import LibraryError, as_slice, check, ffi, lib, said
from ._memory import HEADER_BYTES, U32, Arena, MalformedError

__all__ = [
    "Blob",
    "Blobs",
    "Child",
    "Children",
    "Enum",
    "MalformedError",
    "Map",
    "Message",
    "Number",
    "Numbers",
    "Package",
    "Text",
    "Texts",
    "handler",
    "method",
    "unimplemented",
]


NAN, INFINITY = math.nan, math.inf


def _checked(call):
    """What a function of the library refuses, as an error of messages."""
    status = ffi.new("tl_status *")
    try:
        check(call(status), status)
    except LibraryError as error:
        raise MalformedError(str(error)) from None


class Package:
    """The types of a protobuf package, known to the library from the first use on."""

    def __init__(self, module, own_name, descriptor_set):
        # Where this module was put is where those of other packages are.
        self._root = module[: -len(own_name)] if module.endswith(own_name) else ""
        self._descriptor_set = descriptor_set
        self._handles = []  # the first counts: of two threads that read the types at once one is too late

    def handle(self):
        if not self._handles:
            made, (set_, _kept) = ffi.new("tl_schema *"), as_slice(self._descriptor_set)
            _checked(lambda status: lib.tl_schema_new(set_, made, status))
            self._handles.append(made[0])
        return self._handles[0]

    def module(self, name):
        """The module of another package."""
        return importlib.import_module(self._root + name)

    def channel(self, channel):
        """A channel like another, for messages of these types."""
        if not hasattr(channel, "typed"):
            raise TypeError(f"{channel!r} is no channel of trunkline's: interceptors by trunkline.intercept_channel")
        return channel.typed(self)

    def serve(self, server, name, handlers):
        if not hasattr(server, "add_typed_method_handlers"):
            raise TypeError(f"{server!r} is no server of trunkline's")
        server.add_typed_method_handlers(name, self, handlers)


class Enum:
    """An enum: `Color.COLOR_RED`, `Color.Name(1)`, `Color.Value("COLOR_RED")`. Values are ints."""

    def __init__(self, full_name, values):
        self.FULL_NAME = full_name
        self._values = dict(values)
        self._names = {}
        for name, number in values:
            self._names.setdefault(number, name)

    def Name(self, number):
        if number not in self._names:
            raise ValueError(f"{self.FULL_NAME} has no name for {number!r}")
        return self._names[number]

    def Value(self, name):
        if name not in self._values:
            raise ValueError(f"{self.FULL_NAME} has no value {name!r}")
        return self._values[name]

    def keys(self):
        return list(self._values)

    def values(self):
        return list(self._values.values())

    def items(self):
        return list(self._values.items())

    def __getattr__(self, name):
        if name.startswith("_") or name not in self._values:
            raise AttributeError(f"{self.FULL_NAME} has no value {name!r}")
        return self._values[name]

    def __repr__(self):
        return f"<enum {self.FULL_NAME}>"


class Message:
    """What every message has, beside its fields."""

    __slots__ = ("_tl_arena", "_tl_at", "_tl_parent", "__weakref__")
    __hash__ = None

    def __init_subclass__(cls, *, package, name, block, fingerprint):
        cls._tl_package, cls.FULL_NAME, cls.BLOCK_BYTES, cls.FINGERPRINT = package, name, block, fingerprint
        declared = [field for field in vars(cls).values() if isinstance(field, Field)]
        declared.sort(key=lambda field: field.number)
        cls._tl_fields = {field.name: field for field in declared}
        cls._tl_oneofs = {}
        for field in declared:
            field.of_type(name)
            if hasattr(Message, field.attribute):
                raise TypeError(f"{field.where}: every message has something of this name: generate it anew")
            if not hasattr(cls, field.name):
                setattr(cls, field.name, field)
            if field.oneof is not None:
                cls._tl_oneofs.setdefault(field.oneof, []).append(field)
        for members in cls._tl_oneofs.values():
            for field in members:
                field.in_oneof(members)

    def __init__(self, /, **fields):
        self._tl_become(Arena.empty(type(self)))
        self._tl_at = HEADER_BYTES
        self._tl_parent = None
        if fields:
            self._tl_initialize(fields)

    def _tl_initialize(self, fields):
        for name, value in fields.items():
            if value is not None:
                self._tl_named(name).initialize(self, value)

    @classmethod
    def _tl_part(cls, arena, at, parent, field):
        part = cls.__new__(cls)
        part._tl_arena, part._tl_at = arena, at
        # One that is not there yet is made where it belongs when something is written to it.
        part._tl_parent = None if at or arena.is_received else (parent, field)
        if not arena.is_received:
            arena.hand_out(part)
        return part

    def _tl_become(self, arena):
        """What this whole message is from here on."""
        self._tl_arena = arena
        arena.own(self)

    def _tl_trim(self):
        """Before it is changed: written anew if much of it is unused. Not in the middle of a change."""
        arena = self._tl_arena
        if arena.is_foreign or arena.is_worn and arena.is_large():
            _write_anew(arena)

    def _tl_find(self):
        """The place of the block, 0 if there is none."""
        if self._tl_parent is not None:
            parent, field = self._tl_parent
            self._tl_at = field.place(parent)
            self._tl_arena = parent._tl_arena
        return self._tl_at

    def _tl_need(self):
        """The place of a block that may be changed."""
        if self._tl_arena.is_received:
            raise TypeError(f"{self.FULL_NAME}: a received message cannot be changed: change a copy (copy.deepcopy)")
        if self._tl_arena.is_foreign:
            _write_anew(self._tl_arena)
        if not self._tl_at:
            parent, field = self._tl_parent
            self._tl_at = field.make(parent)
            self._tl_arena = parent._tl_arena
        return self._tl_at

    @classmethod
    def _tl_named(cls, name):
        field = cls._tl_fields.get(name) or vars(cls).get(name)
        if not isinstance(field, Field):
            raise ValueError(f"{cls.FULL_NAME} has no field {name!r}")
        return field

    # ---- fields by name

    def HasField(self, name):
        if name in self._tl_oneofs:
            return self.WhichOneof(name) is not None
        field = self._tl_named(name)
        if field.is_repeated or not field.has_presence:
            raise ValueError(f"{field.where} does not tell absence from zero")
        return field.is_present(self)

    def ClearField(self, name):
        fields = self._tl_oneofs.get(name) or [self._tl_named(name)]
        self._tl_writable()
        self._tl_trim()
        for field in fields:
            field.clear(self)

    def WhichOneof(self, name):
        """The name of the member that is set, or None."""
        if name not in self._tl_oneofs:
            raise ValueError(f"{self.FULL_NAME} has no oneof {name!r}")
        return next((field.name for field in self._tl_oneofs[name] if field.is_present(self)), None)

    def ListFields(self):
        """Fields that are set, by number, each with its value."""
        out = []
        for field in self._tl_fields.values():
            if field.is_present(self):
                value = field.__get__(self)
                if len(value) if field.is_repeated else field.has_presence or value:
                    out.append((field, value))
        return out

    @property
    def unknown_fields(self):
        """Fields the type does not declare, in protobuf's encoding."""
        at = self._tl_at or self._tl_find()
        if not at:
            return b""
        arena = self._tl_arena
        at = U32.unpack_from(arena.data, at)[0]
        if not at:
            return b""
        has_length = at + 4 <= len(arena.data)
        end = at + 4 + U32.unpack_from(arena.data, at)[0] if has_length else 0
        if not has_length or end > len(arena.data):
            raise MalformedError(f"{self.FULL_NAME}: unknown fields at {at} are not within the {len(arena.data)} bytes")
        return arena.data[at + 4 : end] if arena.is_received else bytes(arena.data[at + 4 : end])

    # ---- the whole

    def _tl_writable(self):
        arena = self._tl_arena
        if arena.is_received or arena.is_foreign:
            self._tl_need()

    def _tl_is_whole(self):
        return self._tl_at == HEADER_BYTES

    def Clear(self):
        self._tl_writable()
        if self._tl_is_whole():
            # Messages of it that somebody has keep what they were.
            self._tl_become(Arena.empty(type(self)))
        elif self._tl_at or self._tl_find():
            at = self._tl_at
            self._tl_arena.data[at : at + self.BLOCK_BYTES] = bytes(self.BLOCK_BYTES)
            self._tl_arena.leave()
            for slot in [slot for slot in self._tl_arena.maps if at <= slot < at + self.BLOCK_BYTES]:
                del self._tl_arena.maps[slot]

    def SetInParent(self):
        """Makes it present, with nothing in it."""
        self._tl_need()

    def CopyFrom(self, other):
        if not isinstance(other, type(self)):
            raise TypeError(f"{other!r} is no {self.FULL_NAME}")
        if other is self:
            return
        self._tl_writable()
        arena = other._tl_arena
        if self._tl_is_whole() and other._tl_is_whole() and not arena.has_left:
            self._tl_become(Arena(bytearray(arena.data), False, type(self)))
            self._tl_arena.is_foreign = arena.is_received or arena.is_foreign
            return
        # What is copied may lie in what is cleared.
        other = other._tl_whole() if other._tl_arena is self._tl_arena else other
        self.Clear()
        self._tl_merge(other)

    def MergeFrom(self, other):
        if not isinstance(other, type(self)):
            raise TypeError(f"{other!r} is no {self.FULL_NAME}")
        self._tl_merge(other._tl_whole() if other._tl_arena is self._tl_arena else other)

    def _tl_merge(self, other):
        if not (other._tl_at or other._tl_find()):
            return
        if self._tl_arena.moves is not None:
            self._tl_arena.moves[other._tl_at] = self._tl_at
        for field in other._tl_fields.values():
            if field.is_present(other):
                field.copy(self, other)
        more = bytes(other.unknown_fields)
        if more:
            had = self.unknown_fields
            at = self._tl_need()
            if had:
                first = U32.unpack_from(self._tl_arena.data, at)[0]
                self._tl_arena.data[first : first + 4 + len(had)] = bytes(4 + len(had))
            place = self._tl_arena.append(U32.pack(len(had) + len(more)) + had + more, 4)
            U32.pack_into(self._tl_arena.data, at, place)

    def _tl_whole(self):
        """This, or a copy of it as a message of its own."""
        if self._tl_is_whole():
            return self
        whole = type(self)()
        whole._tl_merge(self)
        return whole

    # ---- bytes

    def _tl_bytes(self):
        whole = self._tl_whole()
        if whole._tl_arena.has_left:
            _write_anew(whole._tl_arena)
        return whole._tl_arena.finish(whole.FINGERPRINT)

    def ToLinear(self):
        """The linear message, copied."""
        return bytes(self._tl_bytes())

    @classmethod
    def FromLinear(cls, data):
        """A message from anybody, checked and not copied (unless the memory may change); `MalformedError` says where it is wrong."""
        view = memoryview(data)
        if not view.readonly or not view.c_contiguous or int(ffi.cast("uintptr_t", ffi.from_buffer(view))) % 8:
            view = memoryview(bytes(view))
        view = view.cast("B") if view.format != "B" or view.ndim != 1 else view
        (slice_, _kept), (name, _name) = as_slice(view), as_slice(cls.FULL_NAME.encode())
        schema = cls._tl_package.handle()
        _checked(lambda status: lib.tl_schema_check(schema, name, slice_, status))
        return cls._tl_received(view[: U32.unpack_from(view, 4)[0]])

    @classmethod
    def _tl_received(cls, view):
        arena = Arena(view, True)
        return cls._tl_part(arena, arena.block(HEADER_BYTES, cls.BLOCK_BYTES, cls.FULL_NAME), None, None)

    @classmethod
    def _tl_sent(cls, message):
        if not isinstance(message, cls):
            raise TypeError(f"{message!r} is no {cls.FULL_NAME}")
        return message._tl_bytes()

    def FindInitializationErrors(self):
        """Paths of required fields (proto2) that are not set."""
        out = []
        for field in self._tl_fields.values():
            if not field.is_present(self):
                out += [field.name] if field.is_required else []
            elif isinstance(field, Child):
                out += [f"{field.name}.{path}" for path in field.__get__(self).FindInitializationErrors()]
            elif isinstance(field, Children):
                for index, each in enumerate(field.__get__(self)):
                    out += [f"{field.name}[{index}].{path}" for path in each.FindInitializationErrors()]
            elif isinstance(field, Map) and isinstance(field.value, Child):
                for key, each in field.__get__(self).items():
                    out += [f"{field.name}[{key!r}].{path}" for path in each.FindInitializationErrors()]
        return out

    def IsInitialized(self):
        return not self.FindInitializationErrors()

    def SerializeToString(self):
        """As protobuf; `MalformedError` if a required field is not set."""
        missing = self.FindInitializationErrors()
        if missing:
            raise MalformedError(f"{self.FULL_NAME} is missing required fields: {', '.join(missing)}")
        return self.SerializePartialToString()

    def SerializePartialToString(self):
        (linear, _kept), (name, _name) = as_slice(self._tl_bytes()), as_slice(self.FULL_NAME.encode())
        made, schema = ffi.new("tl_message *"), self._tl_package.handle()
        _checked(lambda status: lib.tl_schema_encode(schema, name, linear, made, status))
        try:
            return said(lib.tl_message_bytes(made[0]))
        finally:
            lib.tl_message_release(made[0])

    def ByteSize(self):
        return len(self.SerializePartialToString())

    def ParseFromString(self, data):
        """From protobuf; `MalformedError` says where it is wrong, and this is as it was. The number of bytes."""
        self._tl_writable()
        (wire, _kept), (name, _name) = as_slice(data), as_slice(self.FULL_NAME.encode())
        made, count, schema = ffi.new("tl_memory *"), ffi.new("size_t *"), self._tl_package.handle()
        _checked(lambda status: lib.tl_schema_decode(schema, name, wire, made, count, status))
        try:
            parsed = Arena(bytearray(ffi.buffer(made.data, count[0])), False, type(self))
        finally:
            lib.tl_memory_release(made[0])
        if self._tl_is_whole():
            self._tl_become(parsed)
        else:
            self.CopyFrom(self._tl_part(parsed, HEADER_BYTES, None, None))
        return len(data)

    @classmethod
    def FromString(cls, data):
        message = cls()
        message.ParseFromString(data)
        return message

    # ---- as objects of Python

    def __eq__(self, other):
        if not isinstance(other, type(self)):
            return NotImplemented
        return self.ListFields() == other.ListFields() and self.unknown_fields == other.unknown_fields

    def __repr__(self):
        shown = [f"{field.name}={_shown(value)}" for field, value in self.ListFields()]
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def __copy__(self):
        return _copied(type(self), self)

    def __deepcopy__(self, memo):
        return _copied(type(self), self)

    def __reduce__(self):
        return _restored, (type(self), self.ToLinear())


def _copied(cls, other):
    """A message that may be changed."""
    message = cls()
    message.CopyFrom(other)
    return message


def _restored(cls, linear):
    """The same, of `pickle`."""
    return _copied(cls, cls.FromLinear(linear))


def _write_anew(arena):
    """Takes everything out of a message that no field leads to. Messages of it that were handed out go along; those that
    are no part of it any more keep what they were."""
    anew = arena.root()
    fresh = anew._tl_arena
    fresh.moves = {}
    anew._tl_merge(arena.root._tl_part(arena, HEADER_BYTES, None, None))
    moves, fresh.moves = fresh.moves, None
    fresh.note_use()
    arena.root, arena.is_foreign, owner = None, False, arena.owner()
    if owner is not None:
        owner._tl_become(fresh)
    for message in arena.handed_out():
        at = moves.get(message._tl_at)
        if at is not None:
            message._tl_arena, message._tl_at = fresh, at
        if at is not None or not message._tl_at:
            # One that is not there yet is looked for when it is asked for.
            fresh.hand_out(message)


def _shown(value):
    if isinstance(value, memoryview):
        return repr(value.tolist() if value.format != "B" else value.tobytes())
    return repr(value)


# ---- what generated stubs and services say


def method(kind, path, request, response):
    """A method of a stub: `kind` is the channel's `unary_unary`, ..."""
    return kind(path, request_serializer=request._tl_sent, response_deserializer=response._tl_received)


_HANDLERS = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}


def handler(behavior, request, response, *, many_requests=False, many_responses=False):
    """A method of a service."""
    make = _HANDLERS[many_requests, many_responses]
    return make(behavior, request_deserializer=request._tl_received, response_serializer=response._tl_sent)


def unimplemented(context):
    """What a method of a service does that nobody wrote."""
    context.set_code(grpc.StatusCode.UNIMPLEMENTED)
    context.set_details("Method not implemented!")
    raise NotImplementedError("Method not implemented!")
