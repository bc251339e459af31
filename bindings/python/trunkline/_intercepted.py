"""Calls of `grpc.aio` through interceptors.

A task runs the interceptors of a call, one in the other, around what makes it. The call that they return in the end
answers for it: metadata, status, responses and cancellation are that call's.
"""

import asyncio
import functools
import time

import grpc
import grpc.aio

from ._library import call_back

EOF = grpc.aio.EOF

_CANCELLED = "Locally cancelled by application!"
_FINISHED = "RPC already finished."
_HALF_CLOSED = 'RPC is half closed after calling "done_writing".'

KINDS = (
    grpc.aio.UnaryUnaryClientInterceptor,
    grpc.aio.UnaryStreamClientInterceptor,
    grpc.aio.StreamUnaryClientInterceptor,
    grpc.aio.StreamStreamClientInterceptor,
)


def by_kind(interceptors):
    """Interceptors by what they intercept, in their order. One of several kinds counts as the first, as with grpcio."""
    found = {kind: [] for kind in KINDS}
    for interceptor in interceptors or ():
        kind = next((kind for kind in KINDS if isinstance(interceptor, kind)), None)
        if kind is None:
            raise ValueError(f"Interceptor {interceptor} must be {' or '.join(kind.__name__ for kind in KINDS)}.")
        found[kind].append(interceptor)
    return found


class _Intercepted:
    """A call that interceptors make. `make(details, request)` begins the innermost."""

    def __init__(self, interceptors, make, details, request):
        self._loop = asyncio.get_running_loop()
        self._deadline = None if details.timeout is None else time.monotonic() + details.timeout
        self._callbacks = []  # to be told of the end, until the interceptors have returned a call
        passing = _Passing(tuple(interceptors), make, type(self))
        self._task = self._loop.create_task(passing.go_on(0, details, request))
        self._task.add_done_callback(self._hand_over)

    def _hand_over(self, task):
        """The interceptors are done: the call that they have returned tells of its end."""
        call = self._returned()
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            if call is None or call.done():
                call_back(callback, self)
            else:
                call.add_done_callback(functools.partial(_with_another, callback, self))

    def _returned(self):
        """The call that the interceptors have returned; None if they have not, or will not."""
        if not self._task.done() or self._task.cancelled() or self._task.exception() is not None:
            return None
        return self._task.result()

    async def _until_returned(self):
        """Waits for the interceptors. Who waits and is cancelled is the only one."""
        return await asyncio.shield(self._task)

    async def _ask(self, what, if_cancelled):
        """What the call says, or the error that an interceptor has raised in its place."""
        try:
            call = await self._until_returned()
        except grpc.aio.AioRpcError as error:
            return getattr(error, what)()
        except asyncio.CancelledError:
            if not self._task.cancelled():
                raise
            return if_cancelled
        return await getattr(call, what)()

    def cancel(self):
        if not self._task.done():
            return self._task.cancel()
        call = self._returned()
        return call is not None and call.cancel()

    def cancelled(self):
        if not self._task.done():
            return False
        if (call := self._returned()) is not None:
            return call.cancelled()
        error = None if self._task.cancelled() else self._task.exception()
        return error is None or isinstance(error, grpc.aio.AioRpcError) and error.code() == grpc.StatusCode.CANCELLED

    def done(self):
        call = self._returned()
        return self._task.done() if call is None else call.done()

    def add_done_callback(self, callback):
        if not self._task.done():
            self._callbacks.append(callback)
        elif self.done():
            callback(self)
        else:
            self._returned().add_done_callback(functools.partial(_with_another, callback, self))

    def get_loop(self):
        return self._loop

    def give_up(self):
        """Its loop is closed: what the interceptors have begun is given up for itself."""

    def time_remaining(self):
        """What the caller has given it, while the interceptors have it; then what they have given the call."""
        if (call := self._returned()) is not None:
            return call.time_remaining()
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    async def initial_metadata(self):
        return await self._ask("initial_metadata", None)

    async def trailing_metadata(self):
        return await self._ask("trailing_metadata", None)

    async def code(self):
        return await self._ask("code", grpc.StatusCode.CANCELLED)

    async def details(self):
        return await self._ask("details", _CANCELLED)

    async def debug_error_string(self):
        return await self._ask("debug_error_string", "")

    async def wait_for_connection(self):
        await (await self._until_returned()).wait_for_connection()

    def __del__(self):
        # Perhaps an interceptor has kept the call. Of a loop that is closed nothing is under way.
        if hasattr(self, "_task") and not self._loop.is_closed():
            self.cancel()


def _with_another(callback, intercepted, _):
    callback(intercepted)


class _Passing:
    """The way of one call through its interceptors."""

    def __init__(self, interceptors, make, kind):
        self._interceptors = interceptors
        self._make = make
        self._kind = kind
        self._last = None  # the call that was made or returned last

    async def go_on(self, index, details, request):
        """What the interceptor of this place, or who makes the call after the last, has to say to it."""
        if index == len(self._interceptors):
            self._last = self._make(details, request)
            return self._last
        intercept = getattr(self._interceptors[index], self._kind.INTERCEPT)
        returned = await intercept(functools.partial(self.go_on, index + 1), details, request)
        is_call = isinstance(returned, self._kind.INTERFACE)
        self._last = returned if is_call else self._kind.stand_in(returned, self._last)
        return self._last


# ---- what interceptors return in place of a call


class _StandIn:
    """A call that went well, and which nobody has made."""

    def cancel(self):
        return False

    def cancelled(self):
        return False

    def done(self):
        return True

    def add_done_callback(self, callback):
        callback(self)

    def time_remaining(self):
        return None

    async def initial_metadata(self):
        return None

    async def trailing_metadata(self):
        return None

    async def code(self):
        return grpc.StatusCode.OK

    async def details(self):
        return ""

    async def debug_error_string(self):
        return None

    async def wait_for_connection(self):
        pass

    async def write(self, request):
        raise asyncio.InvalidStateError(_FINISHED)

    async def done_writing(self):
        pass


class _Answered(_StandIn):
    """A response."""

    def __init__(self, response, _call):
        self._response = response

    def __await__(self):
        return self._response
        yield  # what is awaited is a generator


class _AnsweredUnaryUnary(_Answered, grpc.aio.UnaryUnaryCall):
    pass


class _AnsweredStreamUnary(_Answered, grpc.aio.StreamUnaryCall):
    pass


class _Iterated:
    """Responses of an interceptor's own; all else is that of the call it has made, if it has."""

    def __init__(self, responses, call):
        self._responses = responses
        self._call = _StandIn() if call is None else call
        self._iterator = None

    def __aiter__(self):
        return self._responses.__aiter__()

    async def read(self):
        if self._iterator is None:
            self._iterator = self.__aiter__()
        try:
            return await self._iterator.__anext__()
        except StopAsyncIteration:
            return EOF

    def cancel(self):
        return self._call.cancel()

    def cancelled(self):
        return self._call.cancelled()

    def done(self):
        return self._call.done()

    def add_done_callback(self, callback):
        self._call.add_done_callback(callback)

    def time_remaining(self):
        return self._call.time_remaining()

    async def initial_metadata(self):
        return await self._call.initial_metadata()

    async def trailing_metadata(self):
        return await self._call.trailing_metadata()

    async def code(self):
        return await self._call.code()

    async def details(self):
        return await self._call.details()

    async def debug_error_string(self):
        return await self._call.debug_error_string()

    async def wait_for_connection(self):
        await self._call.wait_for_connection()

    async def until_finished(self):
        await _until_finished(self._call)

    async def write(self, request):
        await self._call.write(request)

    async def done_writing(self):
        await self._call.done_writing()


class _IteratedUnaryStream(_Iterated, grpc.aio.UnaryStreamCall):
    pass


class _IteratedStreamStream(_Iterated, grpc.aio.StreamStreamCall):
    pass


# ---- the four kinds


class _OneResponse:
    def __await__(self):
        # Who awaits it and is cancelled cancels the interceptors, or what they have made.
        call = yield from self._task.__await__()
        return (yield from call.__await__())


class _ManyResponses:
    """Its responses are iterated over once, by whoever asks, in either way. It is its own iterator: who iterates keeps it."""

    _responses = None

    def __aiter__(self):
        return self

    async def __anext__(self):
        if self._responses is None:
            # Who waits and is cancelled cancels the interceptors.
            call = await self._task
            self._responses = self._responses or call.__aiter__()
        return await self._responses.__anext__()

    async def read(self):
        try:
            return await self.__anext__()
        except StopAsyncIteration:
            return EOF


async def _until_finished(call):
    """Until nothing can be written any more, though there may be responses to read."""
    await (call.until_finished() if hasattr(call, "until_finished") else call.code())


class _ManyRequests:
    """What is written to it, interceptors see as an iterator."""

    _is_done_writing = False
    _finished = None

    def __init__(self, interceptors, make, details, requests):
        self._written = None
        if requests is None:
            requests = self._written = _Written()
        super().__init__(interceptors, make, details, requests)

    async def write(self, request):
        try:
            call = await self._until_writable()
        except grpc.aio.AioRpcError as error:
            raise asyncio.InvalidStateError(_FINISHED) from error
        if call.done():
            raise asyncio.InvalidStateError(_FINISHED)
        if self._is_done_writing:
            raise asyncio.InvalidStateError(_HALF_CLOSED)
        if not await self._write(call, request) or call.done():
            raise asyncio.InvalidStateError(_FINISHED)

    async def done_writing(self):
        call = await self._until_writable()
        if not self._is_done_writing:
            self._is_done_writing = True
            await self._write(call, _Written.END)

    async def _until_writable(self):
        """The call that the interceptors return."""
        if self._written is None:
            raise grpc.aio.UsageError("The iterator and read/write APIs may not be mixed on a single RPC.")
        try:
            return await self._until_returned()
        except asyncio.CancelledError:
            if self._task.cancelled():
                raise asyncio.InvalidStateError(_FINISHED) from None
            self.cancel()
            raise

    async def _write(self, call, request):
        """Whether there was room for it before the call had ended."""
        if self._finished is None:
            self._finished = self._loop.create_task(_until_finished(call))
            self._finished.add_done_callback(lambda task: task.cancelled() or task.exception())
        if self._finished.done():
            return False
        if self._written.put_at_once(request):
            return True
        put = self._loop.create_task(self._written.put(request))
        try:
            await asyncio.wait({put, self._finished}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self.cancel()
            raise
        finally:
            if not put.done():
                put.cancel()
        return put.done()


class _Written:
    """Requests that are written, as an iterator: one waits, and the next for room."""

    END = object()

    def __init__(self):
        self._queue = asyncio.Queue(1)
        self._is_over = False

    def put_at_once(self, request):
        """Whether there is room."""
        if not self._queue.empty():
            return False
        self._queue.put_nowait(request)
        return True

    async def put(self, request):
        await self._queue.put(request)

    def __aiter__(self):
        return self

    async def __anext__(self):
        request = self.END if self._is_over else await self._queue.get()
        if request is self.END:
            self._is_over = True
            raise StopAsyncIteration
        return request


class UnaryUnary(_OneResponse, _Intercepted, grpc.aio.UnaryUnaryCall):
    KIND, INTERCEPT = grpc.aio.UnaryUnaryClientInterceptor, "intercept_unary_unary"
    INTERFACE, stand_in = grpc.aio.UnaryUnaryCall, _AnsweredUnaryUnary


class UnaryStream(_ManyResponses, _Intercepted, grpc.aio.UnaryStreamCall):
    KIND, INTERCEPT = grpc.aio.UnaryStreamClientInterceptor, "intercept_unary_stream"
    INTERFACE, stand_in = grpc.aio.UnaryStreamCall, _IteratedUnaryStream


class StreamUnary(_OneResponse, _ManyRequests, _Intercepted, grpc.aio.StreamUnaryCall):
    KIND, INTERCEPT = grpc.aio.StreamUnaryClientInterceptor, "intercept_stream_unary"
    INTERFACE, stand_in = grpc.aio.StreamUnaryCall, _AnsweredStreamUnary


class StreamStream(_ManyResponses, _ManyRequests, _Intercepted, grpc.aio.StreamStreamCall):
    KIND, INTERCEPT = grpc.aio.StreamStreamClientInterceptor, "intercept_stream_stream"
    INTERFACE, stand_in = grpc.aio.StreamStreamCall, _IteratedStreamStream
