"""A channel for code that grpcio's plugin has generated, waiting on the caller's thread."""

import collections
import functools
import itertools
import logging
import os
import queue
import threading
import time
import weakref

import grpc

from . import _library
from ._errors import (
    NO_RESPONSE,
    TOO_MANY_RESPONSES,
    UNREADABLE,
    FailedCall,
    code_of,
    execution_of,
    invalid_metadata,
    serialized,
    text_of,
    traceback_of,
    words_of,
)
from ._library import (
    Ending,
    LibraryError,
    MetadataError,
    Options,
    as_slice,
    call_back,
    end_of,
    ffi,
    is_answer,
    lib,
    pairs,
)

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


class Intercepted(grpc.Channel):
    """A channel through interceptors of grpcio's, for stubs of linear messages, too."""

    def __init__(self, channel, interceptors):
        self._inner = channel
        self._interceptors = interceptors
        self._channel = grpc.intercept_channel(channel, *interceptors)

    def subscribe(self, callback, try_to_connect=False):
        self._channel.subscribe(callback, try_to_connect)

    def unsubscribe(self, callback):
        self._channel.unsubscribe(callback)

    def unary_unary(self, *method, **named):
        return self._channel.unary_unary(*method, **named)

    def unary_stream(self, *method, **named):
        return self._channel.unary_stream(*method, **named)

    def stream_unary(self, *method, **named):
        return self._channel.stream_unary(*method, **named)

    def stream_stream(self, *method, **named):
        return self._channel.stream_stream(*method, **named)

    def typed(self, package):
        return Intercepted(self._inner.typed(package), self._interceptors)

    def close(self):
        self._channel.close()

    def __enter__(self):
        return self

    def __exit__(self, exc_type, exc_val, exc_tb):
        self.close()
        return False


def intercept_channel(channel, *interceptors):
    """`grpc.intercept_channel`; stubs of linear messages take what it gives for a channel of this package's."""
    is_ours = isinstance(channel, (Channel, Intercepted)) and interceptors
    return Intercepted(channel, interceptors) if is_ours else grpc.intercept_channel(channel, *interceptors)


class _Method:
    def __init__(self, library, method, serializer, deserializer):
        method = method.decode("ascii") if isinstance(method, bytes) else method
        self._library = library
        self._method, self._method_bytes = as_slice(method.encode("ascii"))
        self._serializer = serializer or _identity
        self._deserialize = deserializer or _identity

    def _serialize(self, request):
        return serialized(self._library, self._serializer, request, FailedCall)

    def _open(self, request, timeout, metadata, wait_for_ready, credentials, compression):
        """Opens a call: with its only request, or, for None, with requests to follow."""
        refuse_credentials(credentials)
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            options = Options(timeout, self._library.metadata(metadata, compression))
        except MetadataError as error:
            return Stream(None, self._library.take, self._deserialize, deadline, invalid_metadata(error))
        call, status = ffi.new("tl_call *"), ffi.new("tl_status *")
        first, _kept = as_slice(b"" if request is None else request)
        flags = lib.TL_NO_MESSAGE if request is None else lib.TL_LAST
        opening, queue, tag = None, _library.NO_QUEUE, 0
        try:
            channel = self._library.channel(wait_for_ready)
            if wait_for_ready:
                # Who waits until somebody is ready may wait for long, and not here.
                opening, refused = _opening()
                if refused is not None:
                    return Stream(None, self._library.take, self._deserialize, deadline, refused)
                queue, tag = opening.queue, opening.tag
            code = lib.tl_call_open(channel, self._method, first, flags, options.value, queue, tag, call, status)
        finally:
            options.release()
        if opening:
            opening.begin(code)
        if code:
            return Stream(None, self._library.take, self._deserialize, deadline, self._library.ending_of(status[0]))
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
            handle = cancellation.handle
            if handle is None:
                raise ValueError(_library.CLOSED)
            try:
                options = Options(timeout, metadata, cancellation=handle)
            except MetadataError as error:
                raise FailedCall(invalid_metadata(error)) from error
        try:
            code = lib.tl_unary_event(channel, self._method, message, options.value, event, status)
        finally:
            if options is not cancellation.options:
                options.release()
        del kept
        try:
            if code:
                raise FailedCall(self._library.ending_of(status[0]), pairs(event.headers))
            try:
                response = self._deserialize(self._library.take(event))
            except Exception as error:
                _LOG.exception("Exception deserializing message!")
                raise FailedCall(UNREADABLE, pairs(event.headers)) from error
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

    def __reduce__(self):
        return type(self), (self._initial_metadata, self._ending.trailers, self._response)

    def result(self, timeout=None):
        return self._response

    def exception(self, timeout=None):
        return None

    def traceback(self, timeout=None):
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


def _opening():
    """Where a call is opened that may wait for long; or how it ends, if the process has no descriptor or thread to give."""
    try:
        return _openings_of_process().opening(), None
    except LibraryError as error:
        return None, error.ending._replace(execution=lib.TL_NOT_EXECUTED)
    except RuntimeError as error:  # there are no more threads
        return None, Ending(grpc.StatusCode.RESOURCE_EXHAUSTED.value[0], str(error), (), lib.TL_NOT_EXECUTED)


class _Opening:
    """A call that is being opened. Only who needs it open waits."""

    def __init__(self, openings, queue, tag):
        self._openings = openings
        self.queue, self.tag = queue, tag
        self._is_over = threading.Event()
        self._lock = threading.RLock()  # a collection of garbage may come back into whatever holds it
        self._told = []
        self._ending = None  # why it could not be opened

    def begin(self, code):
        """The library was asked for it, or has refused that; looks once whether it is open."""
        if code:
            self._openings.forget(self)
        else:
            self._openings.look()

    def wait(self):
        """Waits until it is open; how it ended if it cannot be opened."""
        self._is_over.wait()
        return self._ending

    def when_over(self, told):
        """Whether it is open or cannot be. If not, `told` is called then, by whoever sees it: it runs no function of the
        program's."""
        with self._lock:
            if not self._is_over.is_set():
                self._told.append(told)
                return False
        return True

    def note(self, ending):
        """It is open, or (with an ending) cannot be."""
        self._ending = ending
        with self._lock:
            self._is_over.set()
            told, self._told = self._told, []
        for tell in told:
            tell()


class _Events:
    """A queue of the process's: what has come is taken when somebody looks, and by a thread once one is needed."""

    _ROOM = 64

    def __init__(self):
        self._queue = _library.new_queue()
        # A collection of garbage may come back into whatever holds it.
        self._lock = threading.RLock()
        self._tags = itertools.count(1)
        self._threads = {}  # by name

    def take_by_a_thread(self):
        self._start(self._NAME, self._run)

    def _start(self, name, run):
        """Has a thread of this name, once."""
        if name in self._threads:
            return
        with self._lock:
            if name not in self._threads:
                self._threads[name] = threading.Thread(target=run, name=name, daemon=True)
                try:
                    self._threads[name].start()
                except BaseException:
                    del self._threads[name]
                    raise

    def _run(self):
        while True:
            try:
                if self._take(-1) is None:
                    return
            except BaseException:  # SystemExit of a deserializer, too: all calls of the process need this thread
                _LOG.exception("an event could not be told")

    def _take(self, timeout_ns):
        """Takes what has come; how much, and None when nothing comes any more."""
        events, count = ffi.new("tl_event[]", self._ROOM), ffi.new("size_t *")
        if lib.tl_queue_next(self._queue, events, self._ROOM, timeout_ns, count, ffi.NULL):
            return None
        for index in range(count[0]):
            self._note(events[index])
            lib.tl_event_clear(ffi.addressof(events, index))
        return count[0]


class _Openings(_Events):
    """Which calls are open that wait until somebody is ready. No function of the program's runs here: it may wait for one
    of them."""

    _NAME = "trunkline-openings"

    def __init__(self):
        super().__init__()
        self._openings = {}  # by tag

    def opening(self):
        """Where a call is opened."""
        self.take_by_a_thread()
        opening = _Opening(self, self._queue, next(self._tags))
        self._openings[opening.tag] = opening
        return opening

    def forget(self, opening):
        self._openings.pop(opening.tag, None)

    def look(self):
        self._take(0)

    def _note(self, event):
        opening = self._openings.pop(event.tag, None)
        if opening is not None:
            opening.note(end_of(event) if event.code else None)


class _Ends(_Events):
    """Which calls have ended, though nobody waits for them: it is looked at when somebody asks, and by a thread, one for
    all calls of the process, once something needs one. No function of the program's runs there, nor where somebody asks:
    who does may hold locks of the program's. Callbacks have a thread of their own, one for all."""

    _NAME = "trunkline-ends"
    _CALLBACKS = "trunkline-callbacks"

    def __init__(self):
        super().__init__()
        self._watched = {}  # calls, or weak references to them, by tag
        self._due = collections.deque()  # what came, and was not told yet
        # May be put to from whatever a collection of garbage interrupts.
        self._callbacks = queue.SimpleQueue()

    def watch(self, stream, keeps=False):
        """Has a call be told of its end; `keeps` it until then, though nobody else does."""
        with self._lock:
            begins = stream._watched_by is not self
            if begins:
                stream._watched_by, stream._watch_tag = self, next(self._tags)
                self._watched[stream._watch_tag] = weakref.ref(stream)
            if keeps and stream._watch_tag in self._watched:
                self._watched[stream._watch_tag] = stream
        if begins:
            tag, opening = stream._watch_tag, stream._opening
            if opening is None or opening.when_over(functools.partial(self._begin_later, tag)):
                self._begin(tag)

    def look(self):
        """Tells the calls that have ended."""
        while self._take(0):
            pass
        self._tell()

    def call_back_by_a_thread(self):
        self._start(self._CALLBACKS, self._call_back)

    def call_back(self, callbacks):
        """Has functions of the program's called, after those that are due already."""
        for callback in callbacks:
            self._callbacks.put(callback)
        self.call_back_by_a_thread()

    def _call_back(self):
        while True:
            try:
                # Nothing of it is kept while this waits for the next.
                call_back(self._callbacks.get())
            except BaseException:  # SystemExit, too: all calls of the process need this thread
                _LOG.exception("a callback failed")

    def _begin_later(self, tag):
        """A call is open, which somebody sees who has no time for more."""
        self._due.append(functools.partial(self._begin, tag))
        lib.tl_queue_post(self._queue, 0, ffi.NULL)

    def _begin(self, tag):
        stream = self._stream(tag)
        if stream is None or lib.tl_call_watch(stream._call, self._queue, tag, ffi.NULL):
            # It is gone, could not be opened, or its end is known.
            self._end(tag)

    def _stream(self, tag):
        found = self._watched.get(tag)
        return found() if isinstance(found, weakref.ref) else found

    def _take(self, timeout_ns):
        count = super()._take(timeout_ns)
        self._tell()
        return count

    def _note(self, event):
        if event.tag:
            self._due.append(functools.partial(self._end, event.tag))

    def _tell(self):
        while self._due:
            try:
                due = self._due.popleft()
            except IndexError:  # another thread was faster
                return
            try:
                call_back(due)
            except BaseException:
                # It ends what this thread does, and not what is left to tell.
                lib.tl_queue_post(self._queue, 0, ffi.NULL)
                raise

    def _end(self, tag):
        stream = self._stream(tag)
        self._watched.pop(tag, None)
        if stream is not None:
            stream.note_end()


_ends = _openings = None  # of this process


def _ends_of_process():
    global _ends
    if _ends is None:
        # Without a lock, which a forked child could find taken: of two threads one is too late.
        made = _Ends()
        _ends = _ends or made
    return _ends


def _openings_of_process():
    global _openings
    if _openings is None:
        made = _Openings()
        _openings = _openings or made
    return _openings


def _forget_queues():
    global _ends, _openings
    # The parent's queues, and their threads, which are not here.
    _ends = _openings = None


os.register_at_fork(after_in_child=_forget_queues)


class Stream(grpc.RpcError, grpc.Call, grpc.Future):
    """A call under way: an iterator of its responses. It is received by whoever asks for something, no thread else."""

    def __init__(self, call, take, deserialize, deadline, ending=None, opening=None):
        super().__init__()
        self._call = call
        self._opening = opening
        self._take = take
        self._deserialize = deserialize
        self._deadline = deadline
        # A collection of garbage may come back into whatever holds it.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._listening = 0  # how many threads wait for a change
        self._is_receiving = False  # a thread does
        self._initial = None if ending is None else ()
        self._waiting = collections.deque()  # responses that came while something else was asked for
        self._ending = ending
        self._result = None  # of a call of one response
        self._callbacks = []
        self._watched_by = self._watch_tag = None  # by whom its end is told
        self._last = None  # the end, once it was received
        self._is_cancelled = False  # by the caller, here

    # ---- receiving

    def _receive(self):
        """What comes next of the call: headers, a response that waits then, or the end. By one thread at a time."""
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

    def _until(self, known):
        """Receives until `known`, asked with the lock, gives something. One thread receives; the others wait for what
        it gets."""
        while True:
            with self._lock:
                while (found := known()) is None and self._is_receiving:
                    self._wait_for_change(None)
                if found is not None:
                    return found
                self._is_receiving = True
            try:
                self._receive()
            finally:
                with self._lock:
                    self._is_receiving = False
                    self._tell_change()

    def _wait_for_change(self, timeout):
        self._listening += 1
        try:
            self._changed.wait(timeout)
        finally:
            self._listening -= 1

    def _tell_change(self):
        if self._listening:
            self._changed.notify_all()

    def _end(self, ending, is_cancelled=False):
        with self._lock:
            if self._ending is not None:
                return False
            self._initial = self._initial or ()
            self._is_cancelled = is_cancelled
            self._ending = self._ended_by(ending)
            callbacks, self._callbacks = self._callbacks, []
            self._tell_change()
        lib.tl_call_release(self._call)
        if callbacks:
            _ends_of_process().call_back(callbacks)
        return True

    def _ended_by(self, ending):
        """How the call ends whose end came as this; with the lock."""
        return ending

    def _is_end_known(self):
        return self._ending is not None or self._last is not None

    def _read_on(self):
        """Receives until the end is known; responses wait meanwhile."""
        self._until(lambda: self._is_end_known() or None)

    def note_end(self):
        """The call has ended; perhaps nobody reads. What the handler has answered is read before its end is told."""
        self._read_on()
        if self._ending is None and not (self._waiting and is_answer(self._last)):
            self._end(self._last)

    def _known_response(self):
        """The response that comes next, None after the last, and whether that was all; None while it has to be received."""
        if not self._waiting and not self._is_end_known():
            return None
        message = self._waiting.popleft() if self._waiting else None
        return message, self._last is not None and not self._waiting

    def __iter__(self):
        return self

    def next(self):
        return self.__next__()

    def __next__(self):
        message, is_read = self._until(self._known_response)
        response, unreadable = None, None
        if message is not None:
            try:
                response = self._deserialize(message)
            except Exception as error:
                _LOG.exception("Exception deserializing message!")
                unreadable = error
                self._end(UNREADABLE)
        if is_read:
            self._end(self._last)
        if unreadable is not None:
            raise self from unreadable
        if message is not None:
            return response
        if self._ending.code == 0:
            raise StopIteration
        raise self

    # ---- its end

    def _look(self):
        """Whether the call has ended, which nobody may have waited for."""
        if self._ending is None:
            ends = _ends_of_process()
            ends.watch(self)
            ends.look()
        return self._ending is not None

    def _wait_for_end(self, timeout=None):
        """Waits for the end, and reads nothing: who sends waits for who reads. Whether it came in time."""
        if not self._is_end_known():
            self._look()
        if not self._is_end_known() and not self._is_told_of_end(timeout):
            return False
        if self._ending is None:
            self._end(self._last)
        return True

    def _is_told_of_end(self, timeout):
        """The same, by the thread that tells of ends."""
        ends = _ends_of_process()
        ends.take_by_a_thread()
        until = None if timeout is None else time.monotonic() + min(timeout, threading.TIMEOUT_MAX)
        with self._lock:
            while not self._is_end_known():
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    return False
                self._wait_for_change(left)
        return True

    # ---- sending

    def feed(self, requests, serialize):
        """Sends what an iterator gives, on a thread of its own: it may wait for what is received."""
        if self._ending is None:
            feeding = (self._call, self._opening, requests, serialize, weakref.ref(self))
            threading.Thread(target=_feed, args=feeding, daemon=True).start()

    # ---- the call

    def initial_metadata(self):
        return self._until(lambda: () if self._initial is None and self._is_end_known() else self._initial)

    def trailing_metadata(self):
        self._wait_for_end()
        return self._ending.trailers

    def code(self):
        self._wait_for_end()
        return code_of(self._ending.code)

    def details(self):
        self._wait_for_end()
        return self._ending.message

    def execution(self):
        """`"executed"`, `"not executed"` (calling again is sound) or `"unknown"`."""
        self._wait_for_end()
        return execution_of(self._ending)

    def debug_error_string(self):
        return self.execution()

    def is_active(self):
        return not self._look()

    def time_remaining(self):
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def cancel(self):
        return self._cut_short(grpc.StatusCode.CANCELLED, "Locally cancelled by application!", is_cancelled=True)

    def end_with_channel(self):
        """Its channel is closed."""
        self._cut_short(grpc.StatusCode.CANCELLED, "Channel closed!")

    def fail_requests(self, code, details):
        """Its requests cannot be had: as with grpcio, that ends the call."""
        self._cut_short(code, details)

    def _cut_short(self, code, details, is_cancelled=False):
        # What is received from here on is not the end any more; the release cancels.
        return self._end(Ending(code.value[0], details, (), lib.TL_EXECUTION_UNKNOWN), is_cancelled)

    def add_callback(self, callback):
        """Called when the call has ended, by the thread that calls back."""
        return self._add_callback(callback, False)

    def _add_callback(self, callback, keeps):
        with self._lock:
            if self._ending is not None:
                return False
            self._callbacks.append(callback)
        ends = _ends_of_process()
        ends.watch(self, keeps)
        ends.call_back_by_a_thread()
        ends.take_by_a_thread()
        return True

    # ---- the future

    def only_response(self):
        """The call as the future of its one response."""
        self.__class__ = _Response
        self._waiting = collections.deque(maxlen=2)  # more than one is too many, however many there are
        self._unread = False  # whether the response is there, and not deserialized yet
        return self

    def cancelled(self):
        """Whether the caller has cancelled it. What the server says is an error like others."""
        return self._is_cancelled and self._ending is not None

    def running(self):
        return not self._look()

    def done(self):
        return self._look()

    def _wait(self, timeout):
        """Waits for the end; whether it was a good one."""
        if not self._wait_for_end(timeout):
            raise grpc.FutureTimeoutError()
        if self.cancelled():
            raise grpc.FutureCancelledError()
        return self._ending.code == 0

    def result(self, timeout=None):
        if not self._wait(timeout):
            raise self
        return self

    def exception(self, timeout=None):
        return None if self._wait(timeout) else self

    def traceback(self, timeout=None):
        return None if self._wait(timeout) else traceback_of(self)

    def add_done_callback(self, fn):
        if not self._add_callback(lambda: fn(self), True):
            fn(self)

    def __str__(self):
        if self._ending is None:
            return f"<{type(self).__name__} of RPC in flight>"
        return text_of(type(self), self._ending)

    __repr__ = __str__

    def __del__(self):
        if self._call is not None and self._ending is None:
            self._cut_short(grpc.StatusCode.CANCELLED, "nobody reads it any more")


def _feed(call, opening, requests, serialize, stream):
    """Sends requests. The stream is not kept by this: who drops it ends the call, whatever the iterator waits for."""
    if opening is not None and opening.wait():
        return

    def fail(code, details):
        if (fed := stream()) is not None:
            fed.fail_requests(code, details)

    try:
        for request in requests:
            try:
                message, _kept = as_slice(serialize(request))
            except FailedCall as error:
                return fail(error.code(), error.details())
            if lib.tl_call_send(call, message, 0, _library.NO_QUEUE, 0, ffi.NULL):
                return None
        lib.tl_call_end_requests(call, ffi.NULL)
    except Exception as error:
        _LOG.exception("exception iterating requests")
        fail(grpc.StatusCode.UNKNOWN, f"Exception iterating requests: {words_of(error, repr)}")
    return None


class _Response(Stream):
    """The future of a call's one response. It is deserialized by who asks for it, or for how the call has ended: that is a
    function of the program's, and who only looks whether a call has ended may hold a lock that it takes."""

    def note_end(self):
        """The call has ended: its one response is here, too."""
        self._read_on()
        self._end(self._last)

    def _wait_for_end(self, timeout=None):
        """Waits for the end. Without a timeout by receiving: one response is not much."""
        if timeout is None:
            self._read_on()
        has_ended = super()._wait_for_end(timeout)
        if self._unread:
            self._read_response()
        return has_ended

    def _end(self, ending, is_cancelled=False):
        return ending is not None and super()._end(ending, is_cancelled)

    def _ended_by(self, ending):
        if ending.code:
            return ending
        self._unread = len(self._waiting) == 1
        if self._unread:
            return ending
        return TOO_MANY_RESPONSES if self._waiting else NO_RESPONSE

    def _read_response(self):
        """Not with the lock: of two threads that do it, one is too late."""
        try:
            message = self._waiting[0]
        except IndexError:
            return  # another thread was faster
        result = ending = None
        try:
            result = self._deserialize(message)
        except Exception:
            _LOG.exception("Exception deserializing message!")
            ending = UNREADABLE
        with self._lock:
            if self._unread:
                self._result, self._ending = result, ending or self._ending
                self._unread = False
                self._waiting.clear()

    def result(self, timeout=None):
        if not self._wait(timeout):
            raise self
        return self._result
