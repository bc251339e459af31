"""libtrunkline, through its C ABI.

The shared object and its header lie together below a prefix: the one TRUNKLINE_PREFIX names, else the one in this
package, which wheels have. Declarations are read from the header, so the two cannot differ.
"""

import collections
import logging
import os
import re
import threading
import weakref

import cffi

_PREFIX = os.environ.get("TRUNKLINE_PREFIX") or os.path.join(os.path.dirname(__file__), "prefix")

_LOG = logging.getLogger(__name__)

ffi = cffi.FFI()


def _declarations(header):
    """A header without what only a compiler reads."""
    header = re.sub(r"//.*", "", header)
    header = re.sub(r"#ifdef __cplusplus.*?#endif[^\n]*", "", header, flags=re.S)
    return "\n".join(line for line in header.splitlines() if not re.match(r"\s*#(?!define \w+ \d)", line))


with open(os.path.join(_PREFIX, "include", "trunkline.h"), encoding="utf-8") as _header:
    ffi.cdef(_declarations(_header.read()))

lib = ffi.dlopen(os.path.join(_PREFIX, "lib", "libtrunkline.so.0"))
# cffi looks a function up at its first use, with a lock. A collection of garbage in there may end objects that use another
# function: that would wait for the lock for ever.
for _name in dir(lib):
    getattr(lib, _name)

# What a call's metadata are, as grpcio has them: pairs with names.
Pair = collections.namedtuple("Pair", ("key", "value"))

# How something ended: number of the code, text, and metadata with gRPC's details among them.
Ending = collections.namedtuple("Ending", ("code", "message", "trailers", "execution"))

DETAILS = "grpc-status-details-bin"
NO_QUEUE = ffi.new("tl_queue *")[0]
NO_MESSAGE = ffi.new("tl_slice *")[0]
EXECUTED, NOT_EXECUTED, UNKNOWN = lib.TL_EXECUTED, lib.TL_NOT_EXECUTED, lib.TL_EXECUTION_UNKNOWN
# What the library itself says to an operation in the wrong place.
FAILED_PRECONDITION = 9


class LibraryError(Exception):
    """The library refused something; not what a call came to."""

    def __init__(self, ending):
        super().__init__(ending.message)
        self.ending = ending


class MetadataError(LibraryError):
    """Metadata that cannot be sent."""


def call_back(callback, *arguments):
    """Calls a function of the program's. What it raises is logged: whoever calls back has more to do."""
    try:
        callback(*arguments)
    except Exception:
        _LOG.exception("a callback failed")


class Living:
    """Objects, as long as something else refers to them. Without a lock, which a forked child could find taken."""

    def __init__(self):
        self._references = {}

    def add(self, thing):
        references, key = self._references, id(thing)
        references[key] = weakref.ref(thing, lambda _: references.pop(key, None))

    def all(self):
        found = [reference() for reference in list(self._references.values())]
        return [thing for thing in found if thing is not None]


def said(slice_):
    """The bytes of a slice."""
    return ffi.buffer(slice_.data, slice_.len)[:] if slice_.len else b""


# Named once: a type's name is looked up at each use.
_SLICE, _OCTETS, _OUTCOME = ffi.typeof("tl_slice *"), ffi.typeof("uint8_t[]"), ffi.typeof("tl_outcome *")


def as_slice(data):
    """Bytes as a slice, and what keeps them alive."""
    kept = ffi.from_buffer(_OCTETS, data)
    return ffi.new(_SLICE, (kept, len(kept)))[0], kept


def pairs(metadata):
    """Metadata as grpcio has them."""
    if not metadata.id:
        return ()
    key, value = ffi.new(_SLICE), ffi.new(_SLICE)
    out = []
    for index in range(lib.tl_metadata_count(metadata)):
        lib.tl_metadata_at(metadata, index, key, value, ffi.NULL)
        name, bytes_ = said(key[0]).decode("ascii"), said(value[0])
        out.append(Pair(name, bytes_ if name.endswith("-bin") else bytes_.decode("ascii")))
    return tuple(out)


def check(code, status):
    """Raises what a function refused."""
    if code:
        raise LibraryError(ending_of(status[0]))


def metadata_handle(metadata):
    """A handle with these pairs, to be released; 0 for none."""
    handle, status = ffi.new("tl_metadata *"), ffi.new("tl_status *")
    if not metadata:
        return handle[0]
    check(lib.tl_metadata_new(handle, status), status)
    try:
        for key, value in metadata:
            if not isinstance(value, (str, bytes)):
                raise TypeError(f"metadata of {key!r} are str or bytes, not {type(value).__name__}")
            name, _name = as_slice(key.lower().encode("ascii"))
            text, _text = as_slice(value if isinstance(value, bytes) else value.encode("utf-8"))
            if lib.tl_metadata_add(handle[0], name, text, status):
                raise MetadataError(ending_of(status[0]))
    except BaseException:
        lib.tl_metadata_release(handle[0])
        raise
    return handle[0]


def ending_of(status, release=True):
    """What a status says. It is released."""
    message = said(lib.tl_status_message(status)).decode("utf-8", "replace")
    details, trailers = said(lib.tl_status_details(status)), ()
    handle = ffi.new("tl_metadata *")
    if status.id and not lib.tl_status_metadata(status, handle, ffi.NULL):
        trailers = pairs(handle[0])
        lib.tl_metadata_release(handle[0])
    if details:
        trailers += (Pair(DETAILS, details),)
    execution = lib.tl_status_execution(status) if status.id else lib.TL_EXECUTED
    ending = Ending(lib.tl_status_code(status), message, trailers, execution)
    if release:
        lib.tl_status_release(status)
    return ending


def is_answer(ending):
    """Whether a handler has said so: not cancelled, too late (servers of gRPC say so themselves), or cut off."""
    return ending.execution == lib.TL_EXECUTED and ending.code not in (lib.TL_CANCELLED, lib.TL_DEADLINE_EXCEEDED)


def end_of(event):
    """How an event says that a call ended."""
    if event.code:
        return ending_of(event.status, release=False)
    return Ending(0, "", pairs(event.trailers), lib.TL_EXECUTED)


def message_of(event):
    """The message of an event, copied."""
    return said(lib.tl_message_bytes(event.message))


def lent_message_of(event):
    """The message of an event where the daemon put it: its memory goes back when nothing refers to it any more."""
    slice_, message = lib.tl_message_bytes(event.message), ffi.new("tl_message *", (event.message.id,))[0]
    event.message.id = 0
    owned = ffi.gc(slice_.data, lambda _: lib.tl_message_release(message))
    return memoryview(ffi.buffer(owned, slice_.len)).toreadonly()


# grpcio's numbers of compressions, as the daemon names them.
_COMPRESSIONS = {0: "identity", 1: "deflate", 2: "gzip"}


def compressed(metadata, compression):
    """Metadata that ask for one of grpc.Compression towards a gRPC peer, too; None asks for nothing."""
    if compression is None:
        return metadata
    name = _COMPRESSIONS.get(int(compression))
    if name is None:
        raise ValueError(f"{compression!r} is not one of grpc.Compression")
    return (*(metadata or ()), ("grpc-encoding", name))


class Cancellation:
    """By which the calls of one thread that waits for them are cancelled, one after the other."""

    def __init__(self):
        self.handle = None
        out, status = ffi.new("tl_call *"), ffi.new("tl_status *")
        check(lib.tl_cancellation_new(out, status), status)
        self.handle = out[0]
        # What a call has to say that says nothing else.
        self.options = Options(None, None, cancellation=self.handle)

    def release(self):
        """Cancels what is under way, and lets go of it. A thread may be about to call with it: the library refuses that."""
        handle, self.handle = self.handle, None
        if handle is not None:
            lib.tl_call_release(handle)

    def __del__(self):
        self.release()


class Options:
    """Options of one call, and what they point to."""

    def __init__(self, timeout, metadata, parent=None, cancellation=None):
        self.value = ffi.new("tl_call_options *")
        self.value.size = ffi.sizeof("tl_call_options")
        if timeout is not None:
            # 0 would be no limit, and what has passed has passed.
            self.value.timeout_ns = max(1, int(min(timeout * 1e9, 2**62)))
        if parent is not None:
            self.value.parent = parent
        if cancellation is not None:
            self.value.cancellation = cancellation
        self.value.metadata = metadata_handle(metadata)

    def release(self):
        lib.tl_metadata_release(self.value.metadata)


class Outcome:
    """How a served call ends, and what that points to. Null: it went well, and there is nothing to say of it."""

    def __init__(self, code, message, trailers, flags=0):
        self._kept = []
        if not (code or message or trailers or flags):
            self.value = ffi.NULL
            return
        self.value = ffi.new(_OUTCOME)
        self.value.size = ffi.sizeof("tl_outcome")
        self.value.code = code
        self.value.flags = flags
        self.value.message = self._slice((message or "").encode("utf-8", "replace"))
        rest = [pair for pair in trailers or () if pair[0] != DETAILS]
        details = [value for key, value in trailers or () if key == DETAILS]
        self.value.details = self._slice(details[0] if details else b"")
        self.value.trailers = metadata_handle(rest)

    def _slice(self, data):
        slice_, kept = as_slice(data)
        self._kept.append(kept)
        return slice_

    def release(self):
        if self.value:
            lib.tl_metadata_release(self.value.trailers)


CLOSED = "Cannot invoke RPC on closed channel!"
# What the library says of a channel that was released, and of a cancellation.
_RELEASED = ("is no open channel", "is no open call")


class Library:
    """A channel of the library, with and without waiting for whoever serves."""

    # Messages of calls as bytes of their own.
    take = staticmethod(message_of)

    # What cannot be written is told with the field that is wrong, as an exception of its own.
    names_fields = False

    def __init__(self, target, socket=None, embedded=None, name=None, compression=None):
        self._settings = (target, socket, embedded, name)
        self._compression = compression
        self._channels = {}
        # Of one that nobody closes. The process's end needs none.
        weakref.finalize(self, _release_channels, self._channels).atexit = False
        self._typed = {}
        self.is_closed = False
        self.calls = Living()  # of asyncio and of streams: they have an end to be told
        self._thread = threading.local()
        self._cancellations = Living()  # of threads that wait for calls

    def channel(self, wait_for_ready):
        """The handle calls are made through."""
        if self.is_closed:
            raise ValueError(CLOSED)
        wait_for_ready = bool(wait_for_ready)
        channel = self._channels.get(wait_for_ready)
        if channel is None:
            # Without a lock, which a forked child could find taken: of two threads one is too late.
            opened = self._open(wait_for_ready)
            channel = self._channels.setdefault(wait_for_ready, opened)
            if channel is not opened:
                lib.tl_channel_release(opened)
        return channel

    def metadata(self, metadata, compression):
        """Metadata of a call that asks for this compression, or for none of its own."""
        return compressed(metadata, self._compression if compression is None else compression)

    def cancellation(self):
        """What the calls of this thread are cancelled by that wait for their answers."""
        found = getattr(self._thread, "cancellation", None)
        if found is None:
            found = self._thread.cancellation = Cancellation()
            self._cancellations.add(found)
            if self.is_closed:
                # By another thread, which has not seen this one.
                raise ValueError(CLOSED)
        return found

    def ending_of(self, status):
        """What a status says of a call: that its channel was closed, if that was so just before it was made."""
        ending = ending_of(status)
        if self.is_closed and ending.code == lib.TL_INVALID_ARGUMENT and ending.message.endswith(_RELEASED):
            return Ending(lib.TL_CANCELLED, "Channel closed!", (), NOT_EXECUTED)
        return ending

    def typed(self, package):
        """The same for messages of a package, linear ones."""
        return self._typed.setdefault(package, TypedLibrary(self, package))

    def _open(self, wait_for_ready):
        target, socket, embedded, name = self._settings
        options, out, status = ffi.new("tl_channel_options *"), ffi.new("tl_channel *"), ffi.new("tl_status *")
        options.size = ffi.sizeof("tl_channel_options")
        options.wait_for_ready = wait_for_ready
        options.daemon = daemon_of(embedded)
        kept = []
        for field, text in (("target", target), ("socket", socket), ("name", name)):
            slice_, buffer = as_slice((text or "").encode("utf-8"))
            setattr(options, field, slice_)
            kept.append(buffer)
        check(lib.tl_channel_new(options, out, status), status)
        return out[0]

    def close(self):
        """Lets no more calls begin, and ends those that threads wait for. The others, to be ended by who knows how."""
        self.is_closed = True
        for cancellation in self._cancellations.all():
            cancellation.release()
        return self.calls.all() + [call for typed in list(self._typed.values()) for call in typed.close()]

    def release(self):
        for typed in list(self._typed.values()):
            typed.release()
        _release_channels(self._channels)


def _release_channels(channels):
    for wait_for_ready in (False, True):
        channel = channels.pop(wait_for_ready, None)
        if channel is not None:
            lib.tl_channel_release(channel)


class TypedLibrary(Library):
    """A channel for linear messages of one package, which are read where they lie."""

    take = staticmethod(lent_message_of)
    names_fields = True

    def __init__(self, library, package):
        super().__init__(None, compression=library._compression)
        self._library = library
        self._package = package

    def typed(self, package):
        return self._library.typed(package)

    def _open(self, wait_for_ready):
        out, status = ffi.new("tl_channel *"), ffi.new("tl_status *")
        untyped = self._library.channel(wait_for_ready)
        check(lib.tl_channel_typed(untyped, self._package.handle(), out, status), status)
        return out[0]


def daemon_of(embedded):
    """Which daemon, as the library counts them."""
    if embedded is None:
        return lib.TL_ANY_DAEMON
    return lib.TL_EMBEDDED if embedded else lib.TL_ATTACHED


def new_queue():
    """A completion queue."""
    queue, status = ffi.new("tl_queue *"), ffi.new("tl_status *")
    check(lib.tl_queue_new(queue, status), status)
    return queue[0]
