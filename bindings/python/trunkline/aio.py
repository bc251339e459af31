"""The same for `grpc.aio`: channels and servers in an event loop, any number of loops, no thread.

Each loop that calls has a queue of the library's, whose descriptor it watches.
"""

import asyncio
import collections
import concurrent.futures
import contextvars
import functools
import inspect
import logging
import threading
import time
import weakref

import grpc
import grpc.aio

from . import _intercepted, _library, _server
from ._channel import refuse_credentials
from ._errors import (
    NO_RESPONSE,
    TOO_MANY_RESPONSES,
    UNREADABLE,
    UNSENDABLE,
    code_of,
    execution_of,
    invalid_metadata,
    serialized,
    words_of,
)
from ._library import (
    Ending,
    Library,
    LibraryError,
    Living,
    MetadataError,
    Options,
    as_slice,
    call_back,
    end_of,
    ffi,
    is_answer,
    lib,
    message_of,
    pairs,
)
from ._server import NO_REQUEST, Abortion, ContextWords, Handlers, LibraryServer, outcome_of, port_of

_LOG = logging.getLogger(__name__)
_ROOM = 64
# Operations that are done at once before other tasks of the loop get their turn: about a millisecond.
_AT_ONCE = 64

EOF = grpc.aio.EOF

# The call a handler's task works for, and tasks it starts.
_SERVED = contextvars.ContextVar("trunkline_served", default=None)


class _Event:
    """What came of an operation, without handles."""

    def __init__(self, event, take):
        self.kind = event.kind
        self.call = event.call.id
        self.message = take(event) if event.message.id else None
        self.headers = pairs(event.headers) if event.headers.id else ()
        self.ending = end_of(event)


# What comes of the opening of a call that could not be made.
_Refused = collections.namedtuple("_Refused", ("ending",))
_NO_CALL = ffi.new("tl_call *")[0]


class _Queue:
    """Operations of one event loop."""

    def __init__(self, loop):
        # The loop refers to this, and is found by it in `_QUEUES`: a reference back would keep both for ever.
        self._loop = weakref.ref(loop)
        self.handle = _library.new_queue()
        self._waiting = {}  # what is told of the event, and how its message is taken, by tag
        self._tag = 0
        self._is_draining = False
        self._at_once = 0  # how many operations looked for their events since the loop came round
        self._events, self._count = ffi.new("tl_event[]", _ROOM), ffi.new("size_t *")
        self.on_call = self.on_over = None
        self._release = weakref.finalize(self, lib.tl_queue_release, self.handle)
        # By this the loop keeps the queue, until it is closed.
        self._descriptor = lib.tl_queue_fd(self.handle)
        self._is_closed = False
        loop.add_reader(self._descriptor, self._drain)

    def _drain(self):
        if self._is_draining or self._is_closed:
            return
        self._is_draining = True
        try:
            # Once more than there was something: operations go on in here.
            lib.tl_queue_next(self.handle, self._events, _ROOM, 0, self._count, ffi.NULL)
            for index in range(self._count[0]):
                try:
                    self._tell(self._events[index])
                except Exception:
                    # What else has come is told.
                    _LOG.exception("an event could not be told")
                finally:
                    lib.tl_event_clear(ffi.addressof(self._events, index))
        finally:
            self._is_draining = False

    def _tell(self, event):
        if event.kind == lib.TL_EVENT_CALL:
            self.on_call(event.call.id)
        elif event.kind == lib.TL_EVENT_OVER and not event.tag:
            # A delivered call. Tags are those of calls that were made.
            self.on_over(event.call.id)
        else:
            told, take = self._waiting.pop(event.tag, (None, None))
            if told is not None:
                told(_Event(event, take))

    def begin_for(self, told, start, take=message_of):
        """Begins an operation by `start(queue, tag, status)`; `told` is called with its event, whose message `take` takes."""
        self._tag += 1
        tag, status = self._tag, ffi.new("tl_status *")
        _library.check(start(self.handle, tag, status), status)
        self._waiting[tag] = (told, take)

    def begin(self, start, take=message_of):
        """The same; a future of the event. What has come meanwhile is told at once: it may be the very same event.

        To await what is done does not suspend. So after `_AT_ONCE` it is told when the loop has come round, and other
        tasks get their turn beside a stream that always has something."""
        future = asyncio.get_running_loop().create_future()
        self.begin_for(lambda event: future.done() or future.set_result(event), start, take)
        if not self.is_turn_over():
            self._drain()
        return future

    def is_turn_over(self):
        """Whether as many operations were done at once as may be before the loop comes round; counts one more."""
        if not self._at_once:
            asyncio.get_running_loop().call_soon(self._come_round)
        self._at_once += 1
        return self._at_once > _AT_ONCE

    def _come_round(self):
        is_late, self._at_once = self._at_once > _AT_ONCE, 0
        if is_late:
            self._drain()

    def close(self):
        if self._is_closed:
            return
        self._is_closed = True
        loop = self._loop()
        if loop is not None and not loop.is_closed():
            loop.remove_reader(self._descriptor)
        self._release()

    def close_if_deserted(self):
        """Cancels what a loop that was closed has left under way."""
        loop = self._loop()
        if loop is None or loop.is_closed():
            self.close()


# The queue of each loop. Only the loop keeps it: what waits in it refers to the loop.
_QUEUES = weakref.WeakKeyDictionary()
_ALL = Living()


def _queue():
    loop = asyncio.get_running_loop()
    found = _QUEUES.get(loop)
    queue = None if found is None else found()
    if queue is None:
        for other in _ALL.all():
            other.close_if_deserted()
        queue = _Queue(loop)
        _QUEUES[loop] = weakref.ref(queue)
        _ALL.add(queue)
    return queue


def _aio_error(ending, initial=()):
    trailing, how = _metadata(ending.trailers), execution_of(ending)
    code = code_of(ending.code)
    return grpc.aio.AioRpcError(code, _metadata(initial), trailing, details=ending.message, debug_error_string=how)


def _metadata(found):
    return grpc.aio.Metadata(*((key, value) for key, value in found))


class Channel(grpc.aio.Channel):
    """Calls through the host's daemon, in whichever loop they are made."""

    def __init__(self, library, interceptors=None):
        self._library = library
        self._given = interceptors = tuple(interceptors or ())
        self._interceptors = _intercepted.by_kind(interceptors)
        self._waiting = set()  # for the channel to be closed

    async def __aenter__(self):
        return self

    async def __aexit__(self, exc_type, exc_val, exc_tb):
        await self.close()

    def typed(self, package):
        """The same for linear messages of a package (`trunkline.linear`): what generated stubs call through."""
        return Channel(self._library.typed(package), self._given)

    async def close(self, grace=None):
        if self._library.is_closed:
            return
        if grace and grace < 0:
            raise ValueError(f"grace must be non-negative, got {grace}.")
        calls = self._library.close()
        for changed in list(self._waiting):
            if not changed.get_loop().is_closed():
                changed.get_loop().call_soon_threadsafe(_set, changed)
        if grace:
            ends = [end for end in (_waited_for(call) for call in calls if not call.done()) if end is not None]
            if ends:
                await asyncio.wait(ends, timeout=grace)
        for call in calls:
            _cancel(call)
        self._library.release()

    def get_state(self, try_to_connect=False):
        """Connections are the daemon's; whether a target can be reached shows when it is called."""
        is_closed = self._library.is_closed
        return grpc.ChannelConnectivity.SHUTDOWN if is_closed else grpc.ChannelConnectivity.READY

    async def wait_for_state_change(self, last_observed_state):
        if last_observed_state == self.get_state():
            changed = asyncio.get_running_loop().create_future()
            self._waiting.add(changed)
            try:
                await changed
            finally:
                self._waiting.discard(changed)

    async def channel_ready(self):
        if self._library.is_closed:
            raise grpc.aio.UsageError("Channel is closed.")

    def unary_unary(self, method, request_serializer=None, response_deserializer=None, _registered_method=False):
        return self._method(_UnaryUnary, method, request_serializer, response_deserializer)

    def unary_stream(self, method, request_serializer=None, response_deserializer=None, _registered_method=False):
        return self._method(_UnaryStream, method, request_serializer, response_deserializer)

    def stream_unary(self, method, request_serializer=None, response_deserializer=None, _registered_method=False):
        return self._method(_StreamUnary, method, request_serializer, response_deserializer)

    def stream_stream(self, method, request_serializer=None, response_deserializer=None, _registered_method=False):
        return self._method(_StreamStream, method, request_serializer, response_deserializer)

    def _method(self, kind, method, serializer, deserializer):
        return kind(self._library, method, serializer, deserializer, self._interceptors[kind.INTERCEPTED.KIND])


def _set(future):
    if not future.done():
        future.set_result(None)


async def _end_of(call):
    """Waits for the end of a call, however it ends."""
    try:
        await call.code()
    except Exception:
        pass  # who has made it is told


def _waited_for(call):
    """The end of a call of whichever loop, to be waited for in this one; None if that loop does not run."""
    loop = call.get_loop()
    if loop is asyncio.get_running_loop():
        return asyncio.ensure_future(_end_of(call))
    if not loop.is_running():
        return None
    ending = _end_of(call)
    try:
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(ending, loop))
    except RuntimeError:  # it was closed meanwhile
        ending.close()
        return None


def _cancel(call):
    """Cancels a call of whichever loop, there: its callbacks run where it was made."""
    loop = call.get_loop()
    if loop.is_closed():
        call.give_up()
    elif loop is asyncio.get_running_loop() or not loop.is_running():
        call.cancel()
    else:
        try:
            loop.call_soon_threadsafe(call.cancel)
        except RuntimeError:  # it was closed meanwhile
            call.give_up()


class _Method:
    def __init__(self, library, method, serializer, deserializer, interceptors=()):
        self._name = method if isinstance(method, bytes) else method.encode("ascii")
        self._interceptors = interceptors
        self.library = library
        self.path, self._path_bytes = as_slice(self._name)
        self._serializer = serializer or bytes
        self._deserializer = deserializer or bytes

    def serialize(self, request):
        return serialized(self.library, self._serializer, request, _aio_error)

    def deserialize(self, response):
        try:
            return self._deserializer(response)
        except Exception as error:
            _LOG.exception("Exception deserializing message!")
            raise _aio_error(UNREADABLE) from error

    def _call(self, request, timeout, metadata, credentials, wait_for_ready, compression):
        if not self._interceptors:
            return self._begin(request, timeout, metadata, credentials, wait_for_ready, compression)
        metadata = metadata if isinstance(metadata, grpc.aio.Metadata) else _metadata(metadata or ())
        details = grpc.aio.ClientCallDetails(self._name, timeout, metadata, credentials, wait_for_ready)
        begin = functools.partial(self._begin_as, compression)
        call = self.INTERCEPTED(self._interceptors, begin, details, request)
        self.library.calls.add(call)
        return call

    def _begin_as(self, compression, details, request):
        """Begins a call as the last interceptor has it."""
        method, name = self, details.method
        name = name if isinstance(name, bytes) else name.encode("ascii")
        if name != self._name:
            method = type(self)(self.library, name, self._serializer, self._deserializer)
        how = (details.timeout, details.metadata, details.credentials, details.wait_for_ready, compression)
        return method._begin(request, *how)

    def _begin(self, request, timeout, metadata, credentials, wait_for_ready, compression):
        refuse_credentials(credentials)
        if self.library.is_closed:
            raise grpc.aio.UsageError("Channel is closed.")
        metadata = self.library.metadata(metadata, compression)
        return self._call_of(request, timeout, metadata, wait_for_ready)


class _UnaryUnary(_Method, grpc.aio.UnaryUnaryMultiCallable):
    INTERCEPTED = _intercepted.UnaryUnary

    def __call__(
        self, request, *, timeout=None, metadata=None, credentials=None, wait_for_ready=None, compression=None
    ):
        return self._call(request, timeout, metadata, credentials, wait_for_ready, compression)

    def _call_of(self, request, *how):
        return UnaryUnaryCall(self, _queue(), request, None, *how)


class _UnaryStream(_Method, grpc.aio.UnaryStreamMultiCallable):
    INTERCEPTED = _intercepted.UnaryStream

    def __call__(
        self, request, *, timeout=None, metadata=None, credentials=None, wait_for_ready=None, compression=None
    ):
        return self._call(request, timeout, metadata, credentials, wait_for_ready, compression)

    def _call_of(self, request, *how):
        return UnaryStreamCall(self, _queue(), request, None, *how)


class _StreamUnary(_Method, grpc.aio.StreamUnaryMultiCallable):
    INTERCEPTED = _intercepted.StreamUnary

    def __call__(
        self,
        request_iterator=None,
        timeout=None,
        metadata=None,
        credentials=None,
        wait_for_ready=None,
        compression=None,
    ):
        return self._call(request_iterator, timeout, metadata, credentials, wait_for_ready, compression)

    def _call_of(self, request_iterator, *how):
        return StreamUnaryCall(self, _queue(), None, request_iterator, *how)


class _StreamStream(_Method, grpc.aio.StreamStreamMultiCallable):
    INTERCEPTED = _intercepted.StreamStream

    def __call__(
        self,
        request_iterator=None,
        timeout=None,
        metadata=None,
        credentials=None,
        wait_for_ready=None,
        compression=None,
    ):
        return self._call(request_iterator, timeout, metadata, credentials, wait_for_ready, compression)

    def _call_of(self, request_iterator, *how):
        return StreamStreamCall(self, _queue(), None, request_iterator, *how)


class _Call:
    """A call under way. `_opened` is done when it can be used, `_over` when it has ended: when its responses have been
    read, too, unless it was cut short."""

    def __init__(self, method, queue, request, requests, timeout, metadata, wait_for_ready):
        self._method = method
        self._queue = queue
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._loop = asyncio.get_running_loop()
        self._initial = self._loop.create_future()
        self._over = self._loop.create_future()
        self._finished = self._loop.create_future()  # how it ended, also while responses wait to be read
        self._unread = collections.deque()  # responses that came before anybody read them
        self._last = None  # the end, once it was received
        self._is_cancelled_here = False  # by `cancel`, whatever a server says in the same words
        self._handle = None
        self._callbacks = []
        self._waiters = []
        self._feeder = None
        served = _SERVED.get()
        parent = None if served is None or served.is_released else served.call
        try:
            self._begin(request, timeout, metadata, parent, wait_for_ready)
        except MetadataError as error:
            self._begin_failed(invalid_metadata(error))
        except grpc.aio.AioRpcError:
            self._begin_failed(UNSENDABLE)
        else:
            method.library.calls.add(self)
            self._go_on(requests)

    def _begin(self, request, timeout, metadata, parent, wait_for_ready):
        options, handle = Options(timeout, metadata, parent), ffi.new("tl_call *")
        try:
            channel = self._method.library.channel(wait_for_ready)
            self._queue.begin_for(
                self._follow(),
                lambda q, tag, status: self._start(channel, request, options, handle, q, tag, status),
                self._method.library.take,
            )
        finally:
            options.release()
        self._handle = handle[0]

    def _begin_failed(self, ending):
        """It cannot be made: who uses it is told."""
        self._handle = _NO_CALL
        self._follow()
        self._opened.set_result(_Refused(ending))
        self._end(ending)
        self._go_on(None)

    def _follow(self):
        """Who is told that the call was opened."""
        self._opened = self._loop.create_future()
        return lambda event: self._opened.done() or self._opened.set_result(event)

    def _go_on(self, requests):
        self._receiving = asyncio.Lock()
        self._begun = self._loop.create_task(self._open(self._opened))
        if requests is not None:
            self._feeder = self._loop.create_task(self._feed(requests))

    def _start(self, channel, request, options, handle, queue, tag, status):
        first, _kept = as_slice(b"" if request is None else self._method.serialize(request))
        flags = lib.TL_NO_MESSAGE if request is None else lib.TL_LAST
        path = self._method.path
        return lib.tl_call_open(channel, path, first, flags, options.value, queue, tag, handle, status)

    async def _open(self, begun):
        event = await begun
        if event.ending.code:
            self._end(event.ending)
        if not self._over.done():
            this = weakref.ref(self)

            def told(_):
                if (call := this()) is not None:
                    call._note_end()

            self._queue.begin_for(
                told, lambda queue, tag, status: lib.tl_call_watch(self._handle, queue, tag, status)
            )

    def _note_end(self):
        """The call has ended; perhaps nobody reads."""
        if not self._over.done():
            self._reads_rest = self._loop.create_task(self._read_rest())

    async def _read_rest(self):
        async with self._receiving:
            while self._last is None and not self._over.done():
                await self._next()
            self._end_if_read()

    def _end_if_read(self):
        """What the handler has answered is read first; that a call was cut short is told at once."""
        if self._last is None or self._over.done():
            return
        if not self._finished.done():
            self._finished.set_result(self._last)
        if not self._unread or not is_answer(self._last):
            self._end(self._last)

    def _end(self, ending):
        if self._over.done():
            return
        if not self._initial.done():
            self._initial.set_result(())
        if not self._finished.done():
            self._finished.set_result(ending)
        self._over.set_result(ending)
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        lib.tl_call_release(self._handle)
        if self._feeder is not None:
            self._feeder.cancel()
        for callback in self._callbacks:
            call_back(callback, self)

    async def _feed(self, requests):
        try:
            if hasattr(requests, "__aiter__"):
                async for request in requests:
                    if not await self._is_taken(request):
                        return
            else:
                for request in requests:
                    if not await self._is_taken(request):
                        return
            await self._done_writing()
        except asyncio.CancelledError as error:
            if not self._over.done():
                # Not because the call has ended: its server must not wait for what does not come.
                if _is_raised():
                    self._cut_short_by(error)
                else:
                    self.cancel()
            raise
        except grpc.aio.AioRpcError as error:
            self._cut_short(Ending(error.code().value[0], error.details(), (), 2))
        except Exception as error:
            self._cut_short_by(error)

    async def _is_taken(self, request):
        """Whether the call still took a request of the iterator's. Who reads is told why it did not."""
        try:
            return await self._send(request)
        except LibraryError:
            return False

    def _cut_short_by(self, error):
        """Its requests cannot be had."""
        _LOG.error("exception iterating requests", exc_info=error)
        code = grpc.StatusCode.UNKNOWN.value[0]
        self._cut_short(Ending(code, f"Exception iterating requests: {words_of(error, repr)}", (), 2))

    def _cut_short(self, ending):
        lib.tl_call_cancel(self._handle, ffi.NULL)
        self._unread.clear()
        self._end(ending)

    async def _send(self, request):
        """Whether the call still took it."""
        await asyncio.shield(self._begun)
        if self._over.done():
            return False
        message, _kept = as_slice(self._method.serialize(request))
        sent = await self._queue.begin(
            lambda queue, tag, status: lib.tl_call_send(self._handle, message, 0, queue, tag, status)
        )
        return not sent.ending.code

    async def _done_writing(self):
        await asyncio.shield(self._begun)
        lib.tl_call_end_requests(self._handle, ffi.NULL)

    async def _receive(self):
        """The next response as bytes; EOF after the last."""
        # Shielded: who waits and is cancelled ends no opening that others wait for.
        await asyncio.shield(self._begun)
        if self._unread and self._queue.is_turn_over():
            await asyncio.sleep(0)
        async with self._receiving:
            while not self._unread and self._last is None and not self._over.done():
                await self._next()
            message = self._unread.popleft() if self._unread else EOF
            self._end_if_read()
        return message

    async def _next(self):
        """Receives what comes next, with the lock for that: headers, a response, or the end."""
        receive = self._queue.begin(
            lambda queue, tag, status: lib.tl_call_receive(self._handle, queue, tag, ffi.NULL, status),
            self._method.library.take,
        )
        try:
            event = await receive
        except asyncio.CancelledError:
            self.cancel()
            raise
        if event.kind == lib.TL_EVENT_HEADERS:
            if not self._initial.done():
                self._initial.set_result(event.headers)
        elif event.kind == lib.TL_EVENT_MESSAGE:
            if not self._initial.done():
                self._initial.set_result(())
            self._unread.append(event.message)
        else:
            self._last = event.ending

    def _error(self, ending):
        return _aio_error(ending, self._initial.result() if self._initial.done() else ())

    def _deserialized(self, response):
        try:
            return self._method.deserialize(response)
        except grpc.aio.AioRpcError:
            self._cut_short(UNREADABLE)
            raise

    def _raise_if_failed(self):
        ending = self._over.result()
        if ending.code:
            if self._is_cancelled_here:
                raise asyncio.CancelledError()
            raise self._error(ending)

    def cancelled(self):
        return self._over.done() and self._over.result().code == grpc.StatusCode.CANCELLED.value[0]

    def done(self):
        return self._over.done()

    def time_remaining(self):
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def cancel(self):
        if self._over.done():
            return False
        self._is_cancelled_here = True
        self._cut_short(Ending(grpc.StatusCode.CANCELLED.value[0], _CANCELLED, (), 2))
        return True

    def get_loop(self):
        return self._loop

    def give_up(self):
        """Its loop is closed: nobody is told."""
        lib.tl_call_cancel(self._handle, ffi.NULL)

    def add_done_callback(self, callback):
        if self._over.done():
            callback(self)
        else:
            self._callbacks.append(callback)

    async def initial_metadata(self):
        return _metadata(await self._until(self._initial))

    async def trailing_metadata(self):
        return _metadata((await asyncio.shield(self._over)).trailers)

    async def code(self):
        return code_of((await asyncio.shield(self._over)).code)

    async def details(self):
        return (await asyncio.shield(self._over)).message

    async def debug_error_string(self):
        return execution_of(await asyncio.shield(self._over))

    async def until_finished(self):
        """Until it has ended, though responses wait to be read."""
        await asyncio.shield(self._finished)

    async def _until(self, future):
        return await asyncio.shield(future)

    async def wait_for_connection(self):
        """Until it is open, or could not be opened."""
        await asyncio.shield(self._begun)
        if self._over.done():
            self._raise_if_failed()

    def __del__(self):
        if self._handle is not None and not self._over.done():
            lib.tl_call_release(self._handle)


_CANCELLED = "Locally cancelled by application!"


class _OneResponse:
    """A call of one response: an awaitable of it. It is received whether or not anybody awaits it."""

    def __init__(self, *how):
        super().__init__(*how)
        self._response = self._loop.create_task(self._receive_all())
        # Whoever does not await it does not want to hear of it.
        self._response.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def _receive_all(self):
        responses = []
        while (message := await self._receive()) is not EOF:
            responses = [*responses[:1], message]
        self._raise_if_failed()
        if len(responses) != 1:
            raise _aio_error(TOO_MANY_RESPONSES if responses else NO_RESPONSE)
        return self._deserialized(responses[0])

    def __await__(self):
        try:
            return (yield from asyncio.shield(self._response).__await__())
        except asyncio.CancelledError:
            self.cancel()
            raise


class _ManyResponses:
    """A call of many responses: read, or iterated over."""

    # The receiving of a response before anybody reads it; and a future that is done when it is read.
    _ahead = _taken = None

    async def read(self):
        ahead, self._ahead = self._ahead, None
        if self._taken is not None:
            self._taken.set_result(None)
            self._taken = None
        try:
            message = await (self._receive() if ahead is None else asyncio.shield(ahead))
        except asyncio.CancelledError:
            self.cancel()
            raise
        if message is EOF:
            self._raise_if_failed()
            return EOF
        return self._deserialized(message)

    async def _until(self, future):
        """Waits for headers, although perhaps nobody reads: one response is received ahead."""
        while not future.done():
            if self._ahead is None:
                self._ahead = self._loop.create_task(self._receive())
            if not self._ahead.done():
                waited = self._ahead
            else:
                self._ahead.result()
                if self._taken is None:
                    self._taken = self._loop.create_future()
                waited = self._taken
            await asyncio.wait({future, waited}, return_when=asyncio.FIRST_COMPLETED)
        return future.result()

    async def _iterate(self):
        while (message := await self.read()) is not EOF:
            yield message

    def __aiter__(self):
        return self._iterate()


class _ManyRequests:
    """A call that is written to."""

    _is_done_writing = False

    async def write(self, request):
        if self._feeder is not None:
            raise grpc.aio.UsageError("the requests are those of the iterator")
        if self.done():
            raise asyncio.InvalidStateError("RPC already finished.")
        if self._is_done_writing:
            raise asyncio.InvalidStateError('RPC is half closed after calling "done_writing".')
        try:
            if await self._send(request):
                return
            # Responses that wait to be read are left to who reads them.
            ending = await asyncio.shield(self._finished)
        except asyncio.CancelledError:
            self.cancel()
            raise
        if ending.code:
            raise self._error(ending)
        raise asyncio.InvalidStateError("the call has ended with OK: its responses can be read, and nothing written")

    async def done_writing(self):
        if self._feeder is not None:
            raise grpc.aio.UsageError("the requests are those of the iterator")
        self._is_done_writing = True
        await self._done_writing()


class UnaryUnaryCall(_Call, grpc.aio.UnaryUnaryCall):
    """One request, one response: opened and received in one operation, and no task."""

    _response = None

    def _start(self, channel, request, options, handle, queue, tag, status):
        first, _kept = as_slice(self._method.serialize(request))
        return lib.tl_unary_start(channel, self._method.path, first, options.value, queue, tag, handle, status)

    def _follow(self):
        return self._on_reply

    def _begin_failed(self, ending):
        self._handle = _NO_CALL
        self._end(ending)

    def _go_on(self, requests):
        """Its reply is told: there is nothing to wait for."""

    def _on_reply(self, event):
        if self._over.done():
            return
        self._response = event.message
        if not self._initial.done():
            self._initial.set_result(event.headers)
        self._end(event.ending)

    async def wait_for_connection(self):
        """It is opened and answered at once."""
        await asyncio.shield(self._over)
        self._raise_if_failed()

    def __await__(self):
        if not self._over.done():
            # One of its own: who awaits it and is cancelled cancels what it waits for.
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            try:
                yield from waiter.__await__()
            except asyncio.CancelledError:
                self.cancel()
                raise
        self._raise_if_failed()
        return self._deserialized(self._response)


class UnaryStreamCall(_ManyResponses, _Call, grpc.aio.UnaryStreamCall):
    """One request, many responses."""


class StreamUnaryCall(_ManyRequests, _OneResponse, _Call, grpc.aio.StreamUnaryCall):
    """Many requests, one response."""


class StreamStreamCall(_ManyRequests, _ManyResponses, _Call, grpc.aio.StreamStreamCall):
    """Many requests, many responses."""


def insecure_channel(
    target="", options=None, compression=None, interceptors=None, *, socket=None, embedded=None, name=None
):
    """As `trunkline.insecure_channel`, for `grpc.aio`'s stubs."""
    return Channel(Library(target, socket, embedded, name, compression), interceptors)


# ---- the server


async def _aside(act, *arguments):
    """Waits for something on a thread of its own. Those of the loop's executor are the program's, which may keep all of
    them busy until the server has ended."""
    done = concurrent.futures.Future()
    # It goes on though who waits is cancelled.
    done.set_running_or_notify_cancel()

    def run():
        try:
            done.set_result(act(*arguments))
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, name="trunkline-server", daemon=True).start()
    return await asyncio.wrap_future(done)


class Server(grpc.aio.Server):
    """Serves through the host's daemon; handlers are coroutines of the loop it is started in. Those that are none run in
    threads, as with grpcio."""

    def __init__(
        self, handlers=None, interceptors=None, maximum_concurrent_rpcs=None, compression=None, pool=None, **where
    ):
        wrong = [one for one in interceptors or () if not isinstance(one, grpc.aio.ServerInterceptor)]
        if wrong:
            raise ValueError(f"interceptors of this server are of grpc.aio.ServerInterceptor: {wrong} are not")
        self._pool, self._own_pool = pool, None
        self._handlers = Handlers(handlers, interceptors)
        self._most = maximum_concurrent_rpcs
        self._compression = compression
        self._where = where
        self._library = None
        self._queue = None
        self._calls = {}
        self._ended = asyncio.Event()

    def add_generic_rpc_handlers(self, generic_rpc_handlers):
        self._handlers.add_generic(generic_rpc_handlers)
        self._serve_added()

    def add_registered_method_handlers(self, service_name, method_handlers):
        self._handlers.add_registered(service_name, method_handlers)
        self._serve_added()

    def add_typed_method_handlers(self, service_name, package, method_handlers):
        """Handlers of linear messages (`trunkline.linear`): what generated code registers."""
        self._handlers.add_typed(service_name, package, method_handlers)
        self._serve_added()

    def _serve_added(self):
        if self._library is not None:
            self._library.serve(self._handlers)

    def add_insecure_port(self, address):
        return port_of(address)

    def add_secure_port(self, address, server_credentials):
        raise ValueError("TLS is the daemon's: [tls] in its configuration")

    async def start(self):
        if self._ended.is_set():
            raise grpc.aio.UsageError("the server was stopped")
        if self._library is not None:
            return  # As with grpcio.
        loop = asyncio.get_running_loop()
        self._queue = _Queue(loop)
        self._queue.on_call, self._queue.on_over = self._take, self._over
        self._library = LibraryServer(self._handlers, queue=self._queue.handle, **self._where)

    async def ready(self, timeout=None):
        """Waits until the daemon knows the services; a `TimeoutError` after `timeout` seconds, and the server goes on."""
        given_up = []
        try:
            await _aside(self._library.ready, timeout, lambda: not given_up)
        except asyncio.CancelledError:
            given_up.append(True)
            raise

    async def stop(self, grace):
        if self._library is not None and not self._ended.is_set():
            # Several may wait here, each with a grace of its own: the first that is over ends the server.
            await _aside(self._library.stop, grace)
        if self._library is not None and not self._ended.is_set():
            for task, _ in list(self._calls.values()):
                task.cancel()
            self._library.release()
            self._queue.close()
            if self._own_pool is not None:
                self._own_pool.shutdown(wait=False)
        self._ended.set()

    async def wait_for_termination(self, timeout=None):
        try:
            await asyncio.wait_for(self._ended.wait(), timeout)
        except asyncio.TimeoutError:
            return True
        return False

    def _take(self, number):
        context = Context(ffi.new("tl_call *", (number,))[0], self._queue)
        context.set_compression(self._compression)
        too_many = self._most is not None and len(self._calls) >= self._most
        task = asyncio.get_running_loop().create_task(self._handle(context, number, too_many))
        self._calls[number] = (task, context)
        # Not by the task itself: one that is cancelled before it began never runs.
        task.add_done_callback(lambda _: self._forget(context, number))

    def _forget(self, context, number):
        self._calls.pop(number, None)
        context.release()

    def _over(self, number):
        task, context = self._calls.get(number, (None, None))
        if task is not None and not context.is_answered:
            context.note_over()
            # Its caller has gone.
            task.cancel()

    async def _handle(self, context, number, too_many):
        try:
            if too_many:
                code = grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
                return await context.finish(Ending(code, "Concurrent RPC limit exceeded!", (), 0))
            _SERVED.set(context)
            await self._run(context)
        except asyncio.CancelledError:
            if not (context.is_answered or context.is_gone) and _is_raised():
                await context.finish(context.ending_by("Unexpected CancelledError: of what the handler waited for"))
        except Exception:
            _LOG.exception("a call could not be served")
        return None

    async def _run_in_a_thread(self, context, method, handler):
        """A handler that is no coroutine: its context's methods are functions, and it may block."""
        if self._pool is None and self._own_pool is None:
            self._own_pool = concurrent.futures.ThreadPoolExecutor(thread_name_prefix="trunkline-handler")
        served = _server.Context(context.call, self._queue.handle)
        served.set_compression(self._compression)
        # Its call is watched, in the loop.
        context.watch()
        served._watched = True
        running = asyncio.get_running_loop().run_in_executor(
            self._pool or self._own_pool, _server.answer, served, method, self._handlers, lambda: handler, words_of_a_loop
        )
        while not running.done():
            try:
                await asyncio.shield(running)
            except asyncio.CancelledError:
                # The call is over; a thread is not cancelled, and its handler is told.
                served.note_over()
            except BaseException:
                _LOG.exception("a handler could not be run")
        served.note_over()

    async def _run(self, context):
        method = _library.said(lib.tl_call_method(context.call)).decode("utf-8")
        try:
            handler = await self._handlers.find_async(method, context)
            if handler is None:
                return await context.finish(
                    Ending(grpc.StatusCode.UNIMPLEMENTED.value[0], "Method not found!", (), 0)
                )
            context.take = self._handlers.take_of(method)
            context.serialize = handler.response_serializer or bytes
            context.deserialize = handler.request_deserializer or bytes
            # When its caller goes, it is cancelled: of use if it waits for something before it answers.
            asyncio.get_running_loop().call_soon(context.watch_unless_answered)
            if not _is_async(_behavior_of(handler)):
                return await self._run_in_a_thread(context, method, handler)
            request = context.requests() if handler.request_streaming else await context.read()
            if request is EOF:
                return await context.finish(NO_REQUEST)
            if handler.response_streaming:
                behavior = handler.stream_stream if handler.request_streaming else handler.unary_stream
                responses = behavior(request, context)
                if inspect.isawaitable(responses):
                    await responses
                elif hasattr(responses, "__aiter__"):
                    async for response in responses:
                        await context.write(response)
                else:
                    for response in responses:
                        await context.write(response)
                return await context.finish(context.ending())
            behavior = handler.stream_unary if handler.request_streaming else handler.unary_unary
            response = behavior(request, context)
            if inspect.isawaitable(response):
                response = await response
            ending = context.ending()
            return await context.finish(ending, None if ending.code else context.serialize(response))
        except Abortion:
            await context.finish(context.ending())
        except Exception as error:
            _LOG.exception("exception calling %s", method)
            await context.finish(context.ending_by(words_of_a_loop(error)))
        return None


def words_of_a_loop(error, _doing=None):
    """What a caller is told of an exception that a handler raised, as grpcio's servers of a loop say it, whatever it was doing."""
    return f"Unexpected {type(error)}: {words_of(error)}"


def _behavior_of(handler):
    if handler.response_streaming:
        return handler.stream_stream if handler.request_streaming else handler.unary_stream
    return handler.stream_unary if handler.request_streaming else handler.unary_unary


def _is_async(behavior):
    """Whether a handler belongs to the loop: by what it is, for what it does shows only when it has been called."""
    own = (behavior, getattr(behavior, "__call__", None))
    return any(inspect.iscoroutinefunction(one) or inspect.isasyncgenfunction(one) for one in own)


def _is_raised():
    """Whether a CancelledError comes from what a task waited for, and nobody has cancelled the task itself. Pythons
    before 3.11 do not say so."""
    cancelling = getattr(asyncio.current_task(), "cancelling", None)
    return cancelling is not None and not cancelling()


class Context(ContextWords, grpc.aio.ServicerContext):
    """The context of a call whose handler is a coroutine."""

    def __init__(self, call, queue):
        super().__init__(call, queue.handle)
        self._loop_queue = queue
        self.serialize = self.deserialize = bytes
        self.is_answered = False
        self._is_aborted = False
        self.is_gone = False  # a request or response has found it over

    def watch_unless_answered(self):
        if not self.is_answered:
            self.watch()

    async def read(self):
        event = await self._loop_queue.begin(
            lambda queue, tag, status: lib.tl_call_receive(self.call, queue, tag, ffi.NULL, status), self.take
        )
        if event.kind == lib.TL_EVENT_MESSAGE:
            return self.deserialize(event.message)
        if event.kind == lib.TL_EVENT_REQUESTS_END:
            return EOF
        self.is_gone = True
        raise asyncio.CancelledError()

    async def requests(self):
        while (request := await self.read()) is not EOF:
            yield request

    async def write(self, message):
        await self._begin_answer()
        slice_, _kept = as_slice(self.serialize(message))
        flags = self._flags()
        sent = await self._loop_queue.begin(
            lambda queue, tag, status: lib.tl_call_send(self.call, slice_, flags, queue, tag, status)
        )
        if sent.ending.code:
            self.is_gone = True
            raise asyncio.CancelledError()

    async def _begin_answer(self):
        """Says how the answer is compressed, if that was asked for and headers have not said it."""
        if self._compression is not None and not self._headers_sent:
            await self.send_initial_metadata(())

    async def send_initial_metadata(self, initial_metadata):
        if self._headers_sent:
            raise grpc.aio.UsageError("Send initial metadata failed: already sent")
        self._headers_sent = True
        headers = _library.metadata_handle(_library.compressed(initial_metadata, self._compression))
        try:
            await self._loop_queue.begin(
                lambda queue, tag, status: lib.tl_call_send_headers(self.call, headers, queue, tag, status)
            )
        finally:
            lib.tl_metadata_release(headers)

    async def finish(self, ending, message=None):
        self.is_answered = True
        if message is not None:
            await self._begin_answer()
        flags = 0 if message is None else self._flags()
        kept, slice_ = (None, ffi.NULL) if message is None else self._slice(message)
        outcome, is_sendable = outcome_of(ending, flags)
        if not is_sendable:
            slice_ = ffi.NULL
        try:
            await self._loop_queue.begin(
                lambda queue, tag, status: lib.tl_call_finish(self.call, outcome.value, slice_, queue, tag, status)
            )
        except LibraryError:
            pass  # it was answered
        finally:
            outcome.release()
            del kept

    async def abort(self, code, details="", trailing_metadata=()):
        if self._is_aborted:
            raise grpc.aio.UsageError("Abort already called!")
        self._is_aborted = True
        raise self._aborted(code, details, trailing_metadata)

    async def abort_with_status(self, status):
        await self.abort(status.code, status.details, status.trailing_metadata or ())

    def ending_by(self, message):
        """The end after an exception: the code that the handler has said before counts, or how it has aborted the call."""
        ending = super().ending_by(message)
        return ending if self._is_aborted else ending._replace(message=message)

    def trailing_metadata(self):
        return self._trailing or ()

    def details(self):
        return self._details or ""

    def add_done_callback(self, callback):
        self._callbacks.append(lambda: callback(self))

    def cancelled(self):
        return self._over and not self.is_answered

    def done(self):
        return self._over or self.is_answered


def server(
    migration_thread_pool=None,
    handlers=None,
    interceptors=None,
    options=None,
    maximum_concurrent_rpcs=None,
    compression=None,
    *,
    socket=None,
    embedded=None,
    name=None,
    workers=1,
):
    """As `trunkline.server`, for servicers of `grpc.aio`."""
    where = {"socket": socket, "embedded": embedded, "name": name, "workers": workers}
    return Server(handlers, interceptors, maximum_concurrent_rpcs, compression, migration_thread_pool, **where)
