"""A server for services that grpcio's plugin has generated: handlers run in a pool of threads."""

import collections
import contextvars
import logging
import threading
import time
import warnings

import grpc
import grpc.aio

from . import _library
from ._errors import CODES, FailedCall, words_of
from ._library import Ending, Outcome, as_slice, call_back, ffi, lent_message_of, lib, message_of, pairs

_LOG = logging.getLogger(__name__)

# How long a wait that may be given up goes on unasked, and the longest there is.
_LOOK_NS = 1_000_000_000
_LONGEST = 1e9

_State = collections.namedtuple("_State", ("client", "code"))
HandlerCallDetails = collections.namedtuple("HandlerCallDetails", ("method", "invocation_metadata"))


class Abortion(grpc.aio.AbortError):
    """Raised by `context.abort`: the handler ends here. Handlers of grpc.aio know it by grpcio's name."""


class Handlers:
    """What a server serves: handlers by method, through interceptors."""

    def __init__(self, handlers=(), interceptors=()):
        self.services = set()
        self.typed = {}  # services whose messages are linear: their packages
        self._generic = []
        self._registered = {}
        self._interceptors = tuple(interceptors or ())
        self.add_generic(handlers or ())

    def add_generic(self, handlers):
        for handler in handlers:
            if not isinstance(handler, grpc.ServiceRpcHandler):
                raise ValueError(f"{handler!r} does not say which service it is for: the daemon has to know")
            self.services.add(handler.service_name())
            self._generic.append(handler)

    def add_registered(self, service_name, methods):
        self.services.add(service_name)
        self._registered.update({f"/{service_name}/{name}": handler for name, handler in methods.items()})

    def add_typed(self, service_name, package, methods):
        self.typed[service_name] = package
        self.add_registered(service_name, methods)

    def take_of(self, method):
        """How a message of a method is received."""
        return lent_message_of if method[1:].rpartition("/")[0] in self.typed else message_of

    def find(self, method, context):
        """The handler of a method, as interceptors have it; None if there is none."""
        if not self._interceptors and method in self._registered:
            # Nobody asks for its metadata.
            return self._registered[method]
        find = self._find
        for interceptor in reversed(self._interceptors):
            find = _through(interceptor, find)
        return find(HandlerCallDetails(method, context.invocation_metadata()))

    async def find_async(self, method, context):
        """The same with interceptors of aio."""
        if not self._interceptors:
            return self.find(method, context)

        async def find(details):
            return self._find(details)

        for interceptor in reversed(self._interceptors):
            find = _through(interceptor, find)
        return await find(HandlerCallDetails(method, context.invocation_metadata()))

    def _find(self, details):
        registered = self._registered.get(details.method)
        if registered is not None:
            return registered
        return next((found for found in (one.service(details) for one in self._generic) if found), None)


def _through(interceptor, continuation):
    return lambda details: interceptor.intercept_service(continuation, details)


class LibraryServer:
    """Servers of the library with one queue that their calls come to: one for what is served when it is started, and one
    more whenever services are added after that, for the daemon knows those of a server from its start on."""

    def __init__(self, handlers, queue=None, socket=None, embedded=None, name=None, workers=1):
        self._own_queue = queue is None
        self.queue = _library.new_queue() if queue is None else queue
        self._socket, self._name, self._workers = socket, name, workers
        self._daemon = _library.daemon_of(embedded)
        self._lock = threading.Lock()
        self._names = set()
        self._servers = []
        self._is_stopped = False
        self.serve(handlers)

    def serve(self, handlers):
        """Starts to serve, or to serve those services, too, that are not yet served."""
        with self._lock:
            names = handlers.services - self._names
            if self._is_stopped or self._servers and not names:
                return
            server, status = self._made(names, handlers.typed), ffi.new("tl_status *")
            if lib.tl_server_start(server, status):
                lib.tl_server_release(server)
                raise _library.LibraryError(_library.ending_of(status[0]))
            self._servers.append(server)
            self._names |= names

    def _made(self, names, typed):
        server, status = ffi.new("tl_server *"), ffi.new("tl_status *")
        options = ffi.new("tl_server_options *")
        options.size = ffi.sizeof("tl_server_options")
        options.daemon = self._daemon
        options.workers = self._workers
        kept = []
        for field, text in (("socket", self._socket), ("name", self._name)):
            slice_, buffer = as_slice((text or "").encode("utf-8"))
            setattr(options, field, slice_)
            kept.append(buffer)
        _library.check(lib.tl_server_new(options, server, status), status)
        try:
            for service in sorted(names):
                self._add(server[0], service, typed.get(service))
        except BaseException:
            lib.tl_server_release(server[0])
            raise
        return server[0]

    def _add(self, server, service, package):
        slice_, _kept = as_slice(service.encode("utf-8"))
        status = ffi.new("tl_status *")
        where = (slice_, self.queue, 0, ffi.NULL, ffi.NULL, status)
        if package is None:
            added = lib.tl_server_add_service(server, *where)
        else:
            added = lib.tl_server_add_typed_service(server, package.handle(), *where)
        _library.check(added, status)

    def ready(self, timeout=None, is_wanted=None):
        """Waits until calls arrive, unless nobody wants that any more; a `TimeoutError` after `timeout` seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        for server in list(self._servers):
            while is_wanted is None or is_wanted():
                left = _LOOK_NS if is_wanted is not None else -1
                if end is not None:
                    # What is ready is so though there is no time.
                    time_left = max(0, int(min(end - time.monotonic(), _LONGEST) * 1e9))
                    left = time_left if left < 0 else min(left, time_left)
                status = ffi.new("tl_status *")
                code = lib.tl_server_ready_within(server, left, status)
                if code != grpc.StatusCode.DEADLINE_EXCEEDED.value[0]:
                    _library.check(code, status)
                    break
                lib.tl_status_release(status[0])
                if end is not None and time.monotonic() >= end:
                    raise TimeoutError("the daemon does not know the services yet")

    def stop(self, grace):
        """Stops, and waits for calls in flight as long as is said."""
        with self._lock:
            self._is_stopped = True
        grace_ns = int(min((grace or 0) * 1e9, 2**62))
        first, *others = self._servers
        threads = [
            threading.Thread(target=lib.tl_server_shutdown, args=(other, grace_ns, ffi.NULL)) for other in others
        ]
        for thread in threads:
            thread.start()
        lib.tl_server_shutdown(first, grace_ns, ffi.NULL)
        for thread in threads:
            thread.join()

    def release(self):
        for server in self._servers:
            lib.tl_server_release(server)
        if self._own_queue:
            lib.tl_queue_release(self.queue)


def port_of(address):
    """The port of an address, which the daemon may have and this server does not need."""
    warnings.warn(
        f"{address!r} is not listened at: callers reach this server through the daemon ([daemon] listen)", stacklevel=3
    )
    port = address.rpartition(":")[2]
    return int(port) if port.isdigit() else 0


class Server(grpc.Server):
    """Serves through the host's daemon."""

    def __init__(
        self, thread_pool, handlers=None, interceptors=None, maximum_concurrent_rpcs=None, compression=None, **where
    ):
        self._pool = thread_pool
        self._handlers = Handlers(handlers, interceptors)
        self._most = maximum_concurrent_rpcs
        self._compression = compression
        self._where = where
        self._library = None
        self._lock = threading.Lock()
        self._calls = {}  # handles of calls in flight
        self._refusal = 0
        self._refused = {}  # calls whose refusal is on its way, and what it says, by its tag
        self._ended = threading.Event()

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

    def start(self):
        if self._library is not None or self._ended.is_set():
            raise ValueError("the server was started already")
        self._library = LibraryServer(self._handlers, **self._where)
        threading.Thread(target=self._serve, name="trunkline-server", daemon=True).start()

    def ready(self, timeout=None):
        """Waits until the daemon knows the services; a `TimeoutError` after `timeout` seconds, and the server goes on. Not
        grpcio's: there, a port is open when `start` returns."""
        self._library.ready(timeout)

    def stop(self, grace):
        """Stops, with a grace in the background; the event is set when the server has ended."""
        if self._library is None:
            self._ended.set()
        elif not self._ended.is_set():
            if grace is None:
                self._stop(grace)
            else:
                # No daemon: a program that ends meanwhile waits for it, and calls in flight are answered.
                threading.Thread(target=self._stop, args=(grace,), name="trunkline-stop").start()
        return self._ended

    def _stop(self, grace):
        self._library.stop(grace)
        self._library.release()
        with self._lock:
            left = list(self._calls.values())
        # The queue that would tell of their end is gone.
        for context in left:
            context.note_over()
        for refusal in list(self._refused):
            self._note_refused(refusal)
        self._ended.set()

    def wait_for_termination(self, timeout=None):
        return not self._ended.wait(timeout)

    # ---- calls

    def _serve(self):
        """Takes events until the queue is released."""
        room = 64
        events, count = ffi.new("tl_event[]", room), ffi.new("size_t *")
        while not lib.tl_queue_next(self._library.queue, events, room, -1, count, ffi.NULL):
            for index in range(count[0]):
                try:
                    self._note(events, index)
                except Exception:
                    # This thread is the only one: what else comes is to be taken.
                    _LOG.exception("an event could not be told")

    def _note(self, events, index):
        event = events[index]
        if event.kind == lib.TL_EVENT_CALL and not event.code:
            # It brings nothing else. Another call of the library would give the GIL to the handler's thread.
            return self._take(event.call.id)
        if event.kind == lib.TL_EVENT_OVER:
            context = self._calls.get(event.call.id)
            if context is not None:
                context.note_over()
        elif event.kind == lib.TL_EVENT_SENT:
            self._note_refused(event.tag)
        return lib.tl_event_clear(ffi.addressof(events, index))

    def _take(self, number):
        context = Context(ffi.new("tl_call *", (number,))[0], self._library.queue)
        context.set_compression(self._compression)
        with self._lock:
            too_many = self._most is not None and len(self._calls) >= self._most
            if not too_many:
                self._calls[number] = context
        if too_many:
            return self._refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "Concurrent RPC limit exceeded!")
        try:
            self._pool.submit(self._handle, context, number)
        except Exception as error:
            with self._lock:
                self._calls.pop(number, None)
            is_shut_down = isinstance(error, RuntimeError)  # else the program has bounded it, and it is full
            code = grpc.StatusCode.UNAVAILABLE if is_shut_down else grpc.StatusCode.RESOURCE_EXHAUSTED
            self._refuse(context, code, words_of(error) or type(error).__name__)
        return None

    def _refuse(self, context, code, words):
        """Answers without waiting for room: this thread takes the events of all calls."""
        self._refusal += 1
        outcome = Outcome(code.value[0], words, ())
        self._refused[self._refusal] = (context, outcome)
        if lib.tl_call_finish(context.call, outcome.value, ffi.NULL, self._library.queue, self._refusal, ffi.NULL):
            self._note_refused(self._refusal)

    def _note_refused(self, refusal):
        context, outcome = self._refused.pop(refusal, (None, None))
        if context is not None:
            context.release()
            outcome.release()

    def _handle(self, context, number):
        try:
            # Interceptors hand variables to the handler, and to no other call of this thread.
            contextvars.Context().run(self._run, context)
        except Exception:
            _LOG.exception("a call could not be served")
        finally:
            self._forget(context, number)

    def _forget(self, context, number):
        with self._lock:
            self._calls.pop(number, None)
        context.release()

    def _run(self, context):
        method = _library.said(lib.tl_call_method(context.call)).decode("utf-8")
        answer(context, method, self._handlers, lambda: self._handlers.find(method, context))


def words_of_threads(error, doing="calling application"):
    """What a caller is told of an exception that a handler raised, as grpcio's servers of threads say it."""
    # SystemExit, for one, says nothing of itself.
    return f"Exception {doing}: {words_of(error, str if isinstance(error, Exception) else repr)}"


def answer(context, method, handlers, find, words=words_of_threads):
    """Runs the handler that `find` gives on this thread, and answers its call: in these `words` if the handler raises."""
    lib.tl_context_enter(context.call, ffi.NULL)
    try:
        _answer(context, method, handlers, find, words)
    finally:
        lib.tl_context_leave(ffi.NULL)


def _answer(context, method, handlers, find, words):
    try:
        try:
            handler = find()
        except Exception:
            _LOG.exception("Exception servicing handler of %s", method)
            return context.finish(Ending(grpc.StatusCode.UNKNOWN.value[0], "Error in service handler!", (), 0))
        if handler is None:
            return context.finish(Ending(grpc.StatusCode.UNIMPLEMENTED.value[0], "Method not found!", (), 0))
        context.take = handlers.take_of(method)
        serialize = handler.response_serializer or bytes
        request = _request(handler, context)
        if handler.response_streaming:
            behavior = handler.stream_stream if handler.request_streaming else handler.unary_stream
            for response in _iterated(behavior(request, context), words):
                if not context.send(_serialized(serialize, response)):
                    return None
            return context.finish(context.ending())
        behavior = handler.stream_unary if handler.request_streaming else handler.unary_unary
        response = behavior(request, context)
        ending = context.ending()
        return context.finish(ending, None if ending.code else _serialized(serialize, response))
    except Abortion:
        context.finish(context.ending())
    except _Unwanted:
        pass
    except _NoRequest:
        context.finish(NO_REQUEST)
    except _Unreadable as error:
        context.finish(context.ending_by(str(error), grpc.StatusCode.INTERNAL))
    except _Unanswered as error:
        context.finish(context.ending_by(str(error)))
    except Exception as error:
        _LOG.exception("exception calling %s", method)
        context.finish(context.ending_by(words(error)))
    except BaseException as error:
        # The thread ends by it, and the call has run.
        context.finish(context.ending_by(words(error)))
        raise
    return None


def _request(handler, context):
    deserialize = handler.request_deserializer or bytes
    if handler.request_streaming:
        return Requests(context, deserialize)
    message = context.receive()
    if message is None:
        raise _NoRequest()
    return _deserialized(deserialize, message)


class _NoRequest(Exception):
    """A call of a method with one request came without it."""


NO_REQUEST = Ending(grpc.StatusCode.UNIMPLEMENTED.value[0], "the method takes one request, and there is none", (), 0)


class _Unreadable(Exception):
    """A request or response that is none of its type; the text is grpcio's."""


class _Unanswered(Exception):
    """An iterator of responses that fails; the text is grpcio's."""


def _iterated(responses, words):
    """What a handler answers. How it ends its call itself goes through."""
    try:
        yield from responses
    except (Abortion, _Unwanted, _Unreadable):
        raise
    except Exception as error:
        _LOG.exception("Exception iterating responses")
        raise _Unanswered(words(error, "iterating responses")) from error


def _deserialized(deserialize, message):
    try:
        return deserialize(message)
    except Exception as error:
        _LOG.exception("Exception deserializing request!")
        raise _Unreadable("Exception deserializing request!") from error


def _serialized(serialize, response):
    try:
        return serialize(response)
    except Exception as error:
        _LOG.exception("Failed to serialize response!")
        raise _Unreadable("Failed to serialize response!") from error


class _Unwanted(FailedCall):
    """The same, told to a handler that asks for the next request. One that lets it pass is not to blame."""


class Requests:
    """The requests of a call, as they come."""

    def __init__(self, context, deserialize):
        self._context = context
        self._deserialize = deserialize

    def __iter__(self):
        return self

    def __next__(self):
        message = self._context.receive()
        if message is None:
            raise StopIteration
        return _deserialized(self._deserialize, message)

    next = __next__


def _number_of(code):
    """The number of what a handler has set as its code; of what is none, that of UNKNOWN, as with grpcio."""
    if code is None:
        return 0
    if isinstance(code, grpc.StatusCode):
        return code.value[0]
    return code if isinstance(code, int) and code in CODES else grpc.StatusCode.UNKNOWN.value[0]


def outcome_of(ending, flags):
    """An end for the library, and whether it is the handler's: trailers that cannot be sent are left out. A call that
    went well fails then, for its caller waits for them; but it is always answered, and not called again as unserved."""
    try:
        return Outcome(ending.code, ending.message, ending.trailers, flags), True
    except Exception as error:
        _LOG.exception("the trailing metadata cannot be sent")
        if ending.code:
            return Outcome(ending.code, ending.message, ()), False
        return Outcome(grpc.StatusCode.INTERNAL.value[0], f"trailing metadata that cannot be sent: {words_of(error)}", ()), False


class ContextWords:
    """What a handler says of its call, and learns of it; the same for threads and asyncio."""

    def __init__(self, call, queue):
        self.call = call
        self._queue = queue
        self._code = self._details = self._trailing = None
        self._invocation = None
        self._watched = False
        self._over = False
        self._lock = threading.Lock()  # of callbacks: who adds one and who calls them are different threads
        self.is_released = False
        self._headers_sent = False
        self._compression = None
        self._is_next_plain = False
        self._callbacks = []
        self.take = message_of

    def invocation_metadata(self):
        if self._invocation is None:
            handle = ffi.new("tl_metadata *")
            lib.tl_call_metadata(self.call, handle, ffi.NULL)
            self._invocation = pairs(handle[0])
            lib.tl_metadata_release(handle[0])
        return self._invocation

    def peer(self):
        """In the form of gRPC's names for what comes through a socket of this host: programs take it apart."""
        return "unix:trunkline"

    def peer_identities(self):
        return None

    def peer_identity_key(self):
        return None

    def auth_context(self):
        return {}

    def set_compression(self, compression):
        """How responses are compressed towards a gRPC client; nothing is on one host. To be said before headers are sent."""
        _library.compressed((), compression)
        self._compression = compression

    def disable_next_message_compression(self):
        self._is_next_plain = True

    def _flags(self):
        """Of the message that is sent now."""
        is_plain, self._is_next_plain = self._is_next_plain, False
        return lib.TL_UNCOMPRESSED if is_plain else 0

    def set_trailing_metadata(self, trailing_metadata):
        self._trailing = tuple(trailing_metadata)

    def set_code(self, code):
        self._code = code

    def set_details(self, details):
        self._details = details

    def code(self):
        return self._code

    def time_remaining(self):
        left = lib.tl_call_time_left(self.call)
        return None if left == 2**63 - 1 else left / 1e9

    def _aborted(self, code, details, trailing=()):
        if code == grpc.StatusCode.OK:
            _LOG.error("abort() called with StatusCode.OK; returning UNKNOWN")
            code, details = grpc.StatusCode.UNKNOWN, ""
        self._code, self._details = code, details
        self._trailing = tuple(trailing) or self._trailing
        return Abortion()

    def ending(self):
        """What the handler has said of the end."""
        details = self._details
        details = details.decode("utf-8", "replace") if isinstance(details, bytes) else str(details or "")
        return Ending(_number_of(self._code), details, self._trailing or (), 0)

    def ending_by(self, message, code=grpc.StatusCode.UNKNOWN):
        """The end after an exception: what the handler has said before counts, as with grpcio."""
        ending = self.ending()
        return ending._replace(code=ending.code or code.value[0], message=ending.message or message)

    @staticmethod
    def _slice(message):
        """A message as the library takes it, and what keeps it."""
        value, kept = as_slice(message)
        return kept, ffi.new("tl_slice *", value)

    def watch(self):
        if not self._watched and not self.is_released:
            self._watched = True
            if lib.tl_call_watch(self.call, self._queue, 0, ffi.NULL):
                # The server has ended: its calls have, too.
                self.note_over()

    def note_over(self):
        with self._lock:
            self._over = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                call_back(callback)
            except BaseException:  # SystemExit, too: no call is the thread's only one
                _LOG.exception("a callback failed")

    def release(self):
        if self.is_released:
            return
        self.is_released = True
        self.note_over()
        lib.tl_call_release(self.call)


class Context(ContextWords, grpc.ServicerContext):
    """The context of a call whose handler runs in a thread."""

    def trailing_metadata(self):
        return self._trailing

    def details(self):
        """As bytes, as grpcio's context of threads has them."""
        return self._details.encode("utf-8", "replace") if isinstance(self._details, str) else self._details

    @property
    def _state(self):
        """What interceptors that know grpcio's context within read of it: py-grpc-prometheus does."""
        return _State("open" if self.is_active() else "cancelled", self._code)

    def is_active(self):
        self.watch()
        # Who asks first is not told of what has been: the event of its end is on its way.
        return not (self._over or lib.tl_call_is_over(self.call))

    def cancel(self):
        self.finish(Ending(grpc.StatusCode.CANCELLED.value[0], "CANCELLED", (), 0))

    def add_callback(self, callback):
        if not self.is_active():
            return False
        with self._lock:
            if self._over:
                return False
            self._callbacks.append(callback)
        return True

    def abort(self, code, details):
        raise self._aborted(code, details)

    def abort_with_status(self, status):
        raise self._aborted(status.code, status.details, status.trailing_metadata or ())

    def send_initial_metadata(self, initial_metadata):
        if self._headers_sent:
            raise ValueError("Initial metadata no longer allowed!")
        self._headers_sent = True
        headers = _library.metadata_handle(_library.compressed(initial_metadata, self._compression))
        lib.tl_call_send_headers(self.call, headers, _library.NO_QUEUE, 0, ffi.NULL)
        lib.tl_metadata_release(headers)

    def _begin_answer(self):
        """Says how the answer is compressed, if that was asked for and headers have not said it."""
        if self._compression is not None and not self._headers_sent:
            self.send_initial_metadata(())

    def receive(self):
        """The next request; None after the last. Raises when the call is no longer wanted."""
        event = ffi.new("tl_event *")
        lib.tl_call_receive(self.call, _library.NO_QUEUE, 0, event, ffi.NULL)
        try:
            if event.kind == lib.TL_EVENT_MESSAGE:
                return self.take(event)
            if event.kind == lib.TL_EVENT_REQUESTS_END:
                return None
            raise _Unwanted(_library.ending_of(event.status, release=False))
        finally:
            lib.tl_event_clear(event)

    def send(self, message):
        """Sends a response; whether it is still wanted. One that cannot be sent has answered the call with why."""
        self._begin_answer()
        slice_, _kept = as_slice(message)
        self._headers_sent = True
        return lib.tl_call_send(self.call, slice_, self._flags(), _library.NO_QUEUE, 0, ffi.NULL) == 0

    def finish(self, ending, message=None):
        """Answers the call; nothing happens if it was."""
        if message is not None:
            self._begin_answer()
        flags = 0 if message is None else self._flags()
        kept, slice_ = (None, ffi.NULL) if message is None else self._slice(message)
        outcome, is_sendable = outcome_of(ending, flags)
        if not is_sendable:
            slice_ = ffi.NULL
        try:
            lib.tl_call_finish(self.call, outcome.value, slice_, _library.NO_QUEUE, 0, ffi.NULL)
        finally:
            outcome.release()
            del kept
