"""A channel for code that grpcio's plugin has generated, waiting on the caller's thread."""

import logging
import threading
import time
import weakref

import grpc

from . import _library
from ._errors import FailedCall, code_of
from ._library import Ending, Options, as_slice, call_back, end_of, ffi, is_answer, lib, pairs

_LOG = logging.getLogger(__name__)


def _identity(message):
    return message


def refuse_credentials(credentials):
    """What would be ignored in silence is refused."""
    if credentials is not None:
        raise ValueError("call credentials are not sent: put a token into the metadata; TLS is the daemon's")


class Channel(grpc.Channel):
    """Calls through the host's daemon. The target is the daemon's to connect to; empty: whoever serves on this host."""

    def __init__(self, library):
        self._library = library

    def subscribe(self, callback, try_to_connect=False):
        """Connections are the daemon's; whether a target can be reached shows when it is called."""
        callback(grpc.ChannelConnectivity.READY)

    def unsubscribe(self, callback):
        pass

    def unary_unary(self, method, request_serializer=None, response_deserializer=None, _registered_method=False):
        return _UnaryUnary(self._library, method, request_serializer, response_deserializer)

    def unary_stream(self, method, request_serializer=None, response_deserializer=None, _registered_method=False):
        return _UnaryStream(self._library, method, request_serializer, response_deserializer)

    def stream_unary(self, method, request_serializer=None, response_deserializer=None, _registered_method=False):
        return _StreamUnary(self._library, method, request_serializer, response_deserializer)

    def stream_stream(self, method, request_serializer=None, response_deserializer=None, _registered_method=False):
        return _StreamStream(self._library, method, request_serializer, response_deserializer)

    def typed(self, package):
        """The same for linear messages of a package (`trunkline.linear`): what generated stubs call through."""
        return Channel(self._library.typed(package))

    def close(self):
        for call in self._library.close():
            call.end_with_channel()
        self._library.release()

    def __enter__(self):
        return self

    def __exit__(self, exc_type, exc_val, exc_tb):
        self.close()
        return False


class _Method:
    def __init__(self, library, method, serializer, deserializer):
        method = method.decode("ascii") if isinstance(method, bytes) else method
        self._library = library
        self._method, self._method_bytes = as_slice(method.encode("ascii"))
        self._serialize = serializer or _identity
        self._deserialize = deserializer or _identity

    def _open(self, request, timeout, metadata, wait_for_ready, credentials, compression):
        """Opens a call: with its only request, or, for None, with requests to follow."""
        refuse_credentials(credentials)
        options = Options(timeout, self._library.metadata(metadata, compression))
        call, status = ffi.new("tl_call *"), ffi.new("tl_status *")
        first, _kept = as_slice(b"" if request is None else request)
        flags = lib.TL_NO_MESSAGE if request is None else lib.TL_LAST
        # Who waits until somebody is ready may wait for long, and not here.
        opening = _Opening() if wait_for_ready else None
        queue = opening.queue if opening else _library.NO_QUEUE
        try:
            channel = self._library.channel(wait_for_ready)
            code = lib.tl_call_open(channel, self._method, first, flags, options.value, queue, 0, call, status)
        finally:
            options.release()
        deadline = None if timeout is None else time.monotonic() + timeout
        if code:
            return Stream(None, self._library.take, self._deserialize, deadline, _library.ending_of(status[0]))
        if opening:
            opening.begin()
        stream = Stream(call[0], self._library.take, self._deserialize, deadline, opening=opening)
        self._library.calls.add(stream)
        if self._library.is_closed:
            # By another thread, which has not seen this one.
            stream.end_with_channel()
        return stream


class _UnaryUnary(_Method, grpc.UnaryUnaryMultiCallable):
    def __call__(
        self, request, timeout=None, metadata=None, credentials=None, wait_for_ready=None, compression=None
    ):
        return self._wait(request, timeout, metadata, credentials, wait_for_ready, compression, False)[0]

    def with_call(
        self, request, timeout=None, metadata=None, credentials=None, wait_for_ready=None, compression=None
    ):
        return self._wait(request, timeout, metadata, credentials, wait_for_ready, compression, True)

    def future(
        self, request, timeout=None, metadata=None, credentials=None, wait_for_ready=None, compression=None
    ):
        stream = self._open(self._serialize(request), timeout, metadata, wait_for_ready, credentials, compression)
        return stream.only_response()

    def _wait(self, request, timeout, metadata, credentials, wait_for_ready, compression, with_call):
        refuse_credentials(credentials)
        metadata = self._library.metadata(metadata, compression)
        # Bytes of its own: a linear message can be written to again while another thread waits for the answer.
        message, kept = as_slice(bytes(self._serialize(request)))
        event, status = ffi.new("tl_event *"), ffi.new("tl_status *")
        channel, cancellation = self._library.channel(wait_for_ready), self._library.cancellation()
        options = cancellation.options
        if timeout is not None or metadata:
            options = Options(timeout, metadata, cancellation=cancellation.handle)
        try:
            code = lib.tl_unary_event(channel, self._method, message, options.value, event, status)
        finally:
            if options is not cancellation.options:
                options.release()
        del kept
        try:
            if code:
                raise FailedCall(_library.ending_of(status[0]), pairs(event.headers))
            response = self._deserialize(self._library.take(event))
            if not with_call:
                return response, None
            return response, _Succeeded(pairs(event.headers), pairs(event.trailers), response)
        finally:
            lib.tl_event_clear(event)


class _Succeeded(FailedCall):
    """What `with_call` gives beside a response: a call that went well."""

    def __init__(self, initial_metadata, trailing_metadata, response):
        super().__init__(Ending(0, "", trailing_metadata, lib.TL_EXECUTED), initial_metadata)
        self._response = response

    def result(self, timeout=None):
        return self._response

    def exception(self, timeout=None):
        return None


class _UnaryStream(_Method, grpc.UnaryStreamMultiCallable):
    def __call__(
        self, request, timeout=None, metadata=None, credentials=None, wait_for_ready=None, compression=None
    ):
        return self._open(self._serialize(request), timeout, metadata, wait_for_ready, credentials, compression)


class _StreamStream(_Method, grpc.StreamStreamMultiCallable):
    def __call__(
        self, request_iterator, timeout=None, metadata=None, credentials=None, wait_for_ready=None, compression=None
    ):
        stream = self._open(None, timeout, metadata, wait_for_ready, credentials, compression)
        stream.feed(request_iterator, self._serialize)
        return stream


class _StreamUnary(_StreamStream, grpc.StreamUnaryMultiCallable):
    def __call__(self, request_iterator, *how, **named):
        return self.with_call(request_iterator, *how, **named)[0]

    def with_call(self, request_iterator, *how, **named):
        call = self.future(request_iterator, *how, **named)
        return call.result(), call

    def future(self, request_iterator, *how, **named):
        return super().__call__(request_iterator, *how, **named).only_response()


class _Opening:
    """A call that is being opened. Only who needs it open waits."""

    def __init__(self):
        self.queue = _library.new_queue()
        self._release = weakref.finalize(self, lib.tl_queue_release, self.queue)
        self._is_over = threading.Event()
        self._ending = None  # why it could not be opened

    def begin(self):
        """Looks once; a thread goes on if that was too soon."""
        if not self._look(0):
            threading.Thread(target=self._look, args=(-1,), daemon=True).start()

    def wait(self):
        """Waits until it is open; how it ended if it cannot be opened."""
        self._is_over.wait()
        return self._ending

    def _look(self, timeout_ns):
        event, count = ffi.new("tl_event *"), ffi.new("size_t *")
        if lib.tl_queue_next(self.queue, event, 1, timeout_ns, count, ffi.NULL) == 0 and not count[0]:
            return False
        if count[0]:
            self._ending = end_of(event) if event.code else None
            lib.tl_event_clear(event)
        self._release()
        self._is_over.set()
        return True


class Stream(grpc.RpcError, grpc.Call, grpc.Future):
    """A call under way: an iterator of its responses. It is received by whoever asks for something, no thread else."""

    def __init__(self, call, take, deserialize, deadline, ending=None, opening=None):
        super().__init__()
        self._call = call
        self._opening = opening
        self._take = take
        self._deserialize = deserialize
        self._deadline = deadline
        self._receiving = threading.Lock()
        self._lock = threading.Lock()
        self._initial = None if ending is None else ()
        self._waiting = []  # responses that came while something else was asked for
        self._ending = ending
        self._callbacks = []
        self._watcher = None
        self._last = None  # the end, once it was received
        self._is_cancelled = False  # by the caller, here

    # ---- receiving

    def _receive(self):
        """What comes next of the call: headers, a response that waits then, or the end. With the lock for receiving."""
        event, status = ffi.new("tl_event *"), ffi.new("tl_status *")
        if self._opening is not None and (refused := self._opening.wait()):
            self._last = refused
            return
        if lib.tl_call_receive(self._call, _library.NO_QUEUE, 0, event, status):
            self._last = _library.ending_of(status[0])
            return
        try:
            if event.kind == lib.TL_EVENT_HEADERS:
                self._initial = pairs(event.headers)
            elif event.kind == lib.TL_EVENT_MESSAGE:
                self._initial = self._initial or ()
                self._waiting.append(self._take(event))
            else:
                self._last = end_of(event)
        finally:
            lib.tl_event_clear(event)

    def _end(self, ending):
        with self._lock:
            if self._ending is not None:
                return False
            self._initial = self._initial or ()
            self._ending = ending
            callbacks, self._callbacks = self._callbacks, []
        lib.tl_call_release(self._call)
        for callback in callbacks:
            call_back(callback)
        return True

    def _until(self, is_known):
        """Receives until something is known; responses wait meanwhile."""
        while not is_known():
            with self._receiving:
                if not is_known() and self._last is None:
                    self._receive()
            if self._last is not None:
                self._end(self._last)

    def _read_rest(self):
        """The call has ended; perhaps nobody reads. What the handler has answered is read before its end is told."""
        with self._receiving:
            while self._last is None and self._ending is None:
                self._receive()
        if self._ending is None and not (self._waiting and is_answer(self._last)):
            self._end(self._last)

    def __iter__(self):
        return self

    def __next__(self):
        with self._receiving:
            while not self._waiting and self._last is None and self._ending is None:
                self._receive()
            message = self._waiting.pop(0) if self._waiting else None
            is_read = self._last is not None and not self._waiting
        if is_read:
            self._end(self._last)
        if message is not None:
            return self._deserialize(message)
        if self._ending.code == 0:
            raise StopIteration
        raise self

    def _is_over(self):
        return self._ending is not None

    # ---- sending

    def feed(self, requests, serialize):
        """Sends what an iterator gives, on a thread of its own: it may wait for what is received."""
        if self._ending is None:
            feeding = (self._call, self._opening, requests, serialize, weakref.ref(self))
            threading.Thread(target=_feed, args=feeding, daemon=True).start()

    # ---- the call

    def initial_metadata(self):
        self._until(lambda: self._initial is not None)
        return self._initial

    def trailing_metadata(self):
        self._until(self._is_over)
        return self._ending.trailers

    def code(self):
        self._until(self._is_over)
        return code_of(self._ending.code)

    def details(self):
        self._until(self._is_over)
        return self._ending.message

    def execution(self):
        """`"executed"`, `"not executed"` (calling again is sound) or `"unknown"`."""
        self._until(self._is_over)
        return ("executed", "not executed", "unknown")[self._ending.execution]

    def debug_error_string(self):
        return str(self)

    def is_active(self):
        return self._ending is None

    def time_remaining(self):
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def cancel(self):
        with self._lock:
            if self._ending is not None:
                return False
            self._is_cancelled = True
        return self._cut_short(grpc.StatusCode.CANCELLED, "Locally cancelled by application!")

    def end_with_channel(self):
        """Its channel is closed."""
        self._cut_short(grpc.StatusCode.CANCELLED, "Channel closed!")

    def fail_requests(self, error):
        """Its requests cannot be had: as with grpcio, that ends the call."""
        self._cut_short(grpc.StatusCode.UNKNOWN, f"Exception iterating requests: {error!r}")

    def _cut_short(self, code, details):
        # What is received from here on is not the end any more; the release cancels.
        return self._end(Ending(code.value[0], details, (), lib.TL_EXECUTION_UNKNOWN))

    def add_callback(self, callback):
        """Called when the call has ended: by whoever waits for it, or by a thread that this starts."""
        with self._lock:
            if self._ending is not None:
                return False
            self._callbacks.append(callback)
        self._watch()
        return True

    def _watch(self):
        """Callbacks must be called though nobody waits, and nothing is taken from whoever iterates."""
        with self._lock:
            if self._watcher is not None:
                return
            watching = (self._call, self._opening, weakref.ref(self))
            self._watcher = threading.Thread(target=_watch, args=watching, daemon=True)
        self._watcher.start()

    # ---- the future

    def only_response(self):
        """The call as the future of its one response."""
        self.__class__ = _Response
        return self

    def cancelled(self):
        """Whether the caller has cancelled it. What the server says is an error like others."""
        return self._is_cancelled and self._ending is not None

    def running(self):
        return self._ending is None

    def done(self):
        return self._ending is not None

    def result(self, timeout=None):
        self._until(self._is_over)
        if self._ending.code:
            raise self
        return self

    def exception(self, timeout=None):
        self._until(self._is_over)
        return self if self._ending.code else None

    def traceback(self, timeout=None):
        return self.__traceback__

    def add_done_callback(self, fn):
        if not self.add_callback(lambda: fn(self)):
            fn(self)

    def __str__(self):
        if self._ending is None:
            return "a call in flight"
        how = ("executed", "not executed", "unknown")[self._ending.execution]
        return f"{code_of(self._ending.code).name}: {self._ending.message} ({how})"

    __repr__ = __str__

    def __del__(self):
        if self._call is not None and self._ending is None:
            self._cut_short(grpc.StatusCode.CANCELLED, "nobody reads it any more")


def _feed(call, opening, requests, serialize, stream):
    """Sends requests. The stream is not kept by this: who drops it ends the call, whatever the iterator waits for."""
    if opening is not None and opening.wait():
        return
    try:
        for request in requests:
            message, _kept = as_slice(serialize(request))
            if lib.tl_call_send(call, message, 0, _library.NO_QUEUE, 0, ffi.NULL):
                return
        lib.tl_call_end_requests(call, ffi.NULL)
    except Exception as error:
        _LOG.exception("exception iterating requests")
        if (fed := stream()) is not None:
            fed.fail_requests(error)


def _watch(call, opening, stream):
    """Waits for the end of a call, of which nothing is received before that."""
    if opening is not None:
        opening.wait()
    lib.tl_call_watch(call, _library.NO_QUEUE, 0, ffi.NULL)
    if (watched := stream()) is not None:
        watched._read_rest()


class _Response(Stream):
    """The future of a call's one response. A thread is started only by those who want a callback or wait in vain."""

    def _watch(self):
        with self._lock:
            if self._watcher is not None:
                return
            self._watcher = threading.Thread(target=self._until, args=(self._is_over,), daemon=True)
        self._watcher.start()

    @property
    def _over(self):
        with self._lock:
            if "_ended" not in self.__dict__:
                self._ended = threading.Event()
                if self._ending is None:
                    self._callbacks.insert(0, self._ended.set)
                else:
                    self._ended.set()
            return self._ended

    def _wait(self, timeout):
        if timeout is None:
            return self._until(self._is_over)
        over = self._over
        self._watch()
        if not over.wait(timeout):
            raise grpc.FutureTimeoutError()

    def result(self, timeout=None):
        self._wait(timeout)
        if self.cancelled():
            raise grpc.FutureCancelledError()
        if self._ending.code:
            raise self
        if not self._waiting:
            raise FailedCall(Ending(grpc.StatusCode.INTERNAL.value[0], "the call ended without a response", (), 0))
        return self._deserialize(self._waiting[0])

    def exception(self, timeout=None):
        self._wait(timeout)
        if self.cancelled():
            raise grpc.FutureCancelledError()
        return self if self._ending.code else None
