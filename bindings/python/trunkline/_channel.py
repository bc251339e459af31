"""A channel for code that grpcio's plugin has generated, waiting on the caller's thread."""

import threading
import time

import grpc

from . import _library
from ._errors import FailedCall, code_of
from ._library import Ending, Options, as_slice, end_of, ffi, lib, pairs


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
        try:
            channel = self._library.channel(wait_for_ready)
            code = lib.tl_call_open(
                channel, self._method, first, flags, options.value, _library.NO_QUEUE, 0, call, status
            )
        finally:
            options.release()
        deadline = None if timeout is None else time.monotonic() + timeout
        if code:
            return Stream(None, self._library.take, self._deserialize, deadline, _library.ending_of(status[0]))
        return Stream(call[0], self._library.take, self._deserialize, deadline)


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
        message, kept = as_slice(self._serialize(request))
        event, status, options = ffi.new("tl_event *"), ffi.new("tl_status *"), None
        if timeout is not None or metadata:
            options = Options(timeout, metadata)
        try:
            code = lib.tl_unary_event(
                self._library.channel(wait_for_ready),
                self._method,
                message,
                options.value if options else ffi.NULL,
                event,
                status,
            )
        finally:
            if options:
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
    def __call__(self, request_iterator, **how):
        return self.with_call(request_iterator, **how)[0]

    def with_call(self, request_iterator, **how):
        call = self.future(request_iterator, **how)
        return call.result(), call

    def future(self, request_iterator, **how):
        return super().__call__(request_iterator, **how).only_response()


class Stream(grpc.RpcError, grpc.Call, grpc.Future):
    """A call under way: an iterator of its responses. It is received by whoever asks for something, no thread else."""

    def __init__(self, call, take, deserialize, deadline, ending=None):
        super().__init__()
        self._call = call
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

    # ---- receiving

    def _receive(self):
        """What comes next of the call: a response, or None when something else is known. With the lock for receiving."""
        event, status = ffi.new("tl_event *"), ffi.new("tl_status *")
        code = lib.tl_call_receive(self._call, _library.NO_QUEUE, 0, event, status)
        if code:
            return self._end(_library.ending_of(status[0]))
        try:
            if event.kind == lib.TL_EVENT_HEADERS:
                self._initial = pairs(event.headers)
            elif event.kind == lib.TL_EVENT_MESSAGE:
                self._initial = self._initial or ()
                return self._take(event)
            else:
                self._end(end_of(event))
        finally:
            lib.tl_event_clear(event)
        return None

    def _end(self, ending):
        with self._lock:
            if self._ending is not None:
                return
            self._initial = self._initial or ()
            self._ending = ending
            callbacks, self._callbacks = self._callbacks, []
        lib.tl_call_release(self._call)
        for callback in callbacks:
            callback()

    def _until(self, is_known):
        """Receives until something is known; responses wait meanwhile."""
        while not is_known():
            with self._receiving:
                if not is_known():
                    message = self._receive()
                    if message is not None:
                        self._waiting.append(message)

    def __iter__(self):
        return self

    def __next__(self):
        with self._receiving:
            while not self._waiting and self._ending is None:
                message = self._receive()
                if message is not None:
                    return self._deserialize(message)
            if self._waiting:
                return self._deserialize(self._waiting.pop(0))
        if self._ending.code == 0:
            raise StopIteration
        raise self

    def _is_over(self):
        return self._ending is not None

    # ---- sending

    def feed(self, requests, serialize):
        """Sends what an iterator gives, on a thread of its own: it may wait for what is received."""
        if self._ending is None:
            threading.Thread(target=self._feed, args=(requests, serialize), daemon=True).start()

    def _feed(self, requests, serialize):
        try:
            for request in requests:
                message, _kept = as_slice(serialize(request))
                if lib.tl_call_send(self._call, message, 0, _library.NO_QUEUE, 0, ffi.NULL):
                    return
            lib.tl_call_end_requests(self._call, ffi.NULL)
        except Exception as error:  # as grpcio: the iterator's fault ends the call
            lib.tl_call_cancel(self._call, ffi.NULL)
            self._end(Ending(grpc.StatusCode.UNKNOWN.value[0], f"Exception iterating requests: {error!r}", (), 2))

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
        if self._ending is not None:
            return False
        lib.tl_call_cancel(self._call, ffi.NULL)
        self._end(Ending(grpc.StatusCode.CANCELLED.value[0], "Locally cancelled by application!", (), 2))
        return True

    def add_callback(self, callback):
        """Called when the end is received: by whoever waits for it, or by a thread that this starts."""
        with self._lock:
            if self._ending is not None:
                return False
            self._callbacks.append(callback)
        self._watch()
        return True

    def _watch(self):
        """Callbacks must be called though nobody waits. Streams are read by whoever iterates."""

    # ---- the future

    def only_response(self):
        """The call as the future of its one response."""
        self.__class__ = _Response
        return self

    def cancelled(self):
        return self._ending is not None and self._ending.code == grpc.StatusCode.CANCELLED.value[0]

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
            lib.tl_call_release(self._call)


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
