"""What a program does with channels and servers of threads, and what it is told: the same program for grpcio and for this
package. A part writes down what it sees."""

import contextlib
import contextvars
import copy
import threading
from concurrent import futures

import grpc
from parity import OWN_METADATA, Parts, metadata
from servicer import WHERE

import trunkline

part = PARTS = Parts()
SERVICE = "parity.v1.Sync"


def of(value):
    """What is written down of a value: what both say alike."""
    if isinstance(value, grpc.RpcError) and hasattr(value, "code"):
        return ("RpcError", of(value.code()), value.details())
    if isinstance(value, BaseException):
        return (type(value).__name__, str(value))
    if isinstance(value, grpc.StatusCode):
        return value.name
    if isinstance(value, (list, tuple)):
        return [of(one) for one in value]
    return value


def outcome(act):
    try:
        return of(act())
    except Exception as error:
        return of(error)


def state(call):
    return {
        "code": of(call.code()),
        "details": call.details(),
        "initial": metadata(call.initial_metadata()),
        "trailing": metadata(call.trailing_metadata()),
        "active": call.is_active(),
    }


def ended(future):
    return {
        "done": future.done(),
        "running": future.running(),
        "cancelled": future.cancelled(),
        "exception": outcome(lambda: future.exception(20)),
        "result": outcome(lambda: future.result(20)),
    }


# ---- handlers


def unary(request, context):
    said = request.decode()
    if said == "abort":
        context.set_trailing_metadata((("why", "ordered"),))
        context.abort(grpc.StatusCode.ABORTED, "as ordered")
    if said == "raise":
        raise RuntimeError("on order")
    if said == "metadata":
        context.send_initial_metadata(tuple(pair for pair in context.invocation_metadata() if pair[0] not in OWN_METADATA))
        context.set_trailing_metadata((("ended", "yes"), ("end-bin", b"\x00\xff")))
    return request


def down(request, context):
    for word in request.split(b" "):
        if word == b"fail":
            context.abort(grpc.StatusCode.DATA_LOSS, "a word is lost")
        yield word


def up(request_iterator, context):
    return b" ".join(request_iterator)


def both(request_iterator, context):
    for request in request_iterator:
        if request == b"fail":
            context.abort(grpc.StatusCode.DATA_LOSS, "a word is lost")
        yield request


METHODS = {
    "Unary": grpc.unary_unary_rpc_method_handler(unary),
    "Down": grpc.unary_stream_rpc_method_handler(down),
    "Up": grpc.stream_unary_rpc_method_handler(up),
    "Both": grpc.stream_stream_rpc_method_handler(both),
}


class Stub:
    def __init__(self, channel):
        self.unary = channel.unary_unary(f"/{SERVICE}/Unary")
        self.down = channel.unary_stream(f"/{SERVICE}/Down")
        self.up = channel.stream_unary(f"/{SERVICE}/Up")
        self.both = channel.stream_stream(f"/{SERVICE}/Both")
        self.none = channel.unary_unary(f"/{SERVICE}/None")


class World:
    """Servers of grpcio's, and channels to them."""

    intercept_channel = staticmethod(grpc.intercept_channel)

    @contextlib.contextmanager
    def serving(self, handlers=METHODS, generic=None, **how):
        pool = futures.ThreadPoolExecutor(max_workers=4)
        server = self._new_server(pool, how)
        server.add_generic_rpc_handlers([generic or grpc.method_handlers_generic_handler(SERVICE, handlers)])
        channel = self._start(server)
        try:
            yield channel
        finally:
            channel.close()
            server.stop(None).wait(20)
            pool.shutdown()

    def _new_server(self, pool, how):
        return grpc.server(pool, **how)

    def _start(self, server):
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        return grpc.insecure_channel(f"127.0.0.1:{port}")

    def nowhere(self):
        return grpc.insecure_channel("127.0.0.1:9")


class OurWorld(World):
    """The same of this package."""

    intercept_channel = staticmethod(trunkline.intercept_channel)

    def _new_server(self, pool, how):
        return trunkline.server(pool, name="parity", **how, **WHERE)

    def _start(self, server):
        server.start()
        server.ready()
        return trunkline.insecure_channel(**WHERE)

    def nowhere(self):
        return trunkline.insecure_channel("tcp://127.0.0.1:9", **WHERE)


WORLDS = (World, OurWorld)


def run(world, name, log):
    PARTS[name](world(), log)


# ---- interceptors of clients


class Acts(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    def __init__(self, act):
        self._act = act

    def intercept_unary_unary(self, continuation, client_call_details, request):
        return self._act(continuation, client_call_details, request)

    intercept_unary_stream = intercept_stream_unary = intercept_stream_stream = intercept_unary_unary


@part
def client_interceptors(world, log):
    def act(name):
        def within(continuation, details, request):
            log(name, details.method, details.timeout, details.metadata, details.wait_for_ready, details.compression)
            call = continuation(details, request)
            log(name, isinstance(call, grpc.Call), isinstance(call, grpc.Future))
            return call

        return within

    with world.serving() as channel:
        stub = Stub(world.intercept_channel(channel, Acts(act("first")), Acts(act("second"))))
        log(stub.unary(b"x", timeout=20), outcome(lambda: stub.unary(b"abort")))
        response, call = stub.unary.with_call(b"x", metadata=(("a", "b"),))
        log(response, state(call))
        future = stub.unary.future(b"x")
        log(future.result(20), ended(future), state(future))
        future = stub.unary.future(b"abort")
        log(outcome(lambda: future.result(20)), ended(future), state(future))
        call = stub.down(b"a b")
        log(list(call), state(call))
        call = stub.down(b"a fail")
        log(next(call), outcome(lambda: next(call)), state(call))
        log(stub.up(iter([b"a", b"b"])), stub.up.with_call(iter([b"c"]))[0], stub.up.future(iter([b"d"])).result(20))
        call = stub.both(iter([b"a", b"b"]))
        log(list(call), state(call))


@part
def client_interceptors_that_change_things(world, log):
    def changes(continuation, details, request):
        details = details._replace(metadata=(("who", "interceptor"), ("blob-bin", b"\x00")), timeout=30)
        return continuation(details, b"metadata")

    class Fewer(grpc.ClientCallDetails):
        method, metadata = f"/{SERVICE}/Unary", (("who", "nobody"),)

    def fewer(continuation, details, request):
        return continuation(Fewer(), request)

    def retries(continuation, details, request):
        call = continuation(details, b"abort")
        log(of(call.code()), call.details(), of(call.exception()), outcome(call.result))
        return continuation(details, request)

    def elsewhere(continuation, details, request):
        return continuation(details._replace(method=f"/{SERVICE}/None"), request)

    def raises(continuation, details, request):
        raise RuntimeError("on order")

    def answers(continuation, details, request):
        call = continuation(details, request)
        log(call.result(), call.done(), call.running(), call.cancelled(), of(call.exception()), state(call))
        return call

    with world.serving() as channel:
        for act in (changes, fewer, retries, elsewhere, raises, answers):
            stub = Stub(world.intercept_channel(channel, Acts(act)))
            log(act.__name__, outcome(lambda stub=stub: stub.unary(b"x")))
            log(outcome(lambda stub=stub: state(stub.unary.with_call(b"x")[1])))
            log(outcome(lambda stub=stub: stub.unary.future(b"x").result(20)))
            log(outcome(lambda stub=stub: state(stub.unary.future(b"x"))))
        stub = Stub(world.intercept_channel(channel, Acts(raises)))
        call = stub.down(b"a b")
        log(outcome(lambda: next(call)), of(call.code()), call.details(), call.done())

        def upper(continuation, details, request):
            return (word.upper() for word in continuation(details, request))

        log(list(Stub(world.intercept_channel(channel, Acts(upper))).down(b"a b")))
        # In the order they are given, and one around the other.
        inner = world.intercept_channel(channel, Acts(upper))
        log(list(Stub(world.intercept_channel(inner, Acts(upper))).down(b"a b")))
        log(outcome(lambda: world.intercept_channel(channel, object())))
        with world.intercept_channel(channel, Acts(answers)) as intercepted:
            log(Stub(intercepted).unary(b"x"))
        log(outcome(lambda: Stub(channel).unary(b"x")))


# ---- interceptors of servers


@part
def server_interceptors(world, log):
    lock = threading.Lock()
    seen = []

    class Sees(grpc.ServerInterceptor):
        def __init__(self, name):
            self.name = name

        def intercept_service(self, continuation, handler_call_details):
            found = metadata(handler_call_details.invocation_metadata)
            with lock:
                seen.append((self.name, handler_call_details.method, found, isinstance(handler_call_details, grpc.HandlerCallDetails)))
            handler = continuation(handler_call_details)
            with lock:
                seen.append((self.name, handler is None, handler and handler.request_streaming, handler and handler.response_streaming))
            return handler

    with world.serving(interceptors=[Sees("first"), Sees("second")]) as channel:
        stub = Stub(channel)
        log(stub.unary(b"x", metadata=(("who", "me"),)), list(stub.down(b"a")), stub.up(iter([b"a"])), list(stub.both(iter([b"a"]))))
        log(outcome(lambda: stub.none(b"x")))
        log(seen)


@part
def server_interceptors_that_change_things(world, log):
    class Acts(grpc.ServerInterceptor):
        def intercept_service(self, continuation, details):
            said = dict(details.invocation_metadata).get("act")
            if said == "none":
                return None
            if said == "raise":
                raise RuntimeError("on order")
            if said == "refuse":
                return grpc.unary_unary_rpc_method_handler(
                    lambda request, context: context.abort(grpc.StatusCode.UNAUTHENTICATED, "not you")
                )
            if said == "elsewhere":
                class Details(grpc.HandlerCallDetails):
                    method, invocation_metadata = details.method.replace("None", "Unary"), ()
                return continuation(Details())
            handler = continuation(details)
            if said == "wrap":
                def wrapped(request, context):
                    return handler.unary_unary(request, context) + b" wrapped"
                return grpc.unary_unary_rpc_method_handler(
                    wrapped, request_deserializer=bytes.upper, response_serializer=lambda response: response + b"."
                )
            return handler

    with world.serving(interceptors=[Acts()]) as channel:
        stub = Stub(channel)
        for act in ("none", "raise", "refuse", "elsewhere", "wrap", "pass"):
            log(act, outcome(lambda: stub.unary(b"x", metadata=(("act", act),))))
            log(act, outcome(lambda: stub.none(b"x", metadata=(("act", act),))))


@part
def context_variables_go_with_a_call(world, log):
    variable = contextvars.ContextVar("variable", default="none")
    found = []

    class Sets(grpc.ServerInterceptor):
        def intercept_service(self, continuation, details):
            found.append(variable.get())
            variable.set(dict(details.invocation_metadata).get("who"))
            return continuation(details)

    def says(request, context):
        said = variable.get()
        variable.set("the handler's")
        return str(said).encode()

    def words(request, context):
        yield str(variable.get()).encode()
        yield str(variable.get()).encode()

    handlers = {"Unary": grpc.unary_unary_rpc_method_handler(says), "Down": grpc.unary_stream_rpc_method_handler(words)}
    with world.serving(handlers, interceptors=[Sets()]) as channel:
        stub = Stub(channel)
        for number in range(8):
            log(stub.unary(b"x", metadata=(("who", str(number)),)), list(stub.down(b"x", metadata=(("who", "d"),))))
        log(found)


# ---- the context of a handler


@part
def contexts(world, log):
    found = {}
    over = threading.Event()

    def handler(request, context):
        said = request.decode()
        found[said] = told = []
        told.append((context.is_active(), context.code(), context.details(), context.trailing_metadata()))
        told.append((context.peer_identities(), context.peer_identity_key()))
        told.append((context._state.client, context._state.code))
        told.append((context.peer().split(":")[0] in ("ipv4", "ipv6", "unix"), metadata(context.invocation_metadata())))
        told.append(all(pair.key == pair[0] and pair.value == pair[1] for pair in context.invocation_metadata()))
        context.add_callback(over.set)
        if said == "code":
            context.set_code(grpc.StatusCode.OUT_OF_RANGE)
            context.set_details("details")
            context.set_trailing_metadata((("a", "b"),))
            told.append((of(context.code()), context.details(), context.trailing_metadata()))
        if said == "code with a response":
            context.set_code(grpc.StatusCode.OK)
            context.set_details("fine")
        if said == "text":
            context.set_code("NOT_FOUND")
        if said == "abort ok":
            context.abort(grpc.StatusCode.OK, "fine")
        if said == "caught":
            try:
                context.abort(grpc.StatusCode.ABORTED, "caught")
            except Exception as error:
                told.append((type(error).__name__ and isinstance(error, Exception), str(error)))
        if said == "raises after code":
            context.set_code(grpc.StatusCode.DATA_LOSS)
            raise RuntimeError("on order")
        if said == "raises after details":
            context.set_details("details")
            raise RuntimeError("on order")
        if said == "headers twice":
            context.send_initial_metadata((("a", "b"),))
            told.append(outcome(lambda: context.send_initial_metadata((("a", "b"),))))
        if said == "status":
            class Status(grpc.Status):
                code, details, trailing_metadata = grpc.StatusCode.NOT_FOUND, "nobody", (("a", "b"),)

            context.abort_with_status(Status())
        if said == "list":
            context.send_initial_metadata([("a", "b")])
            context.set_trailing_metadata([("c", "d")])
        if said == "none":
            return None
        if said == "rpc error":
            raise grpc.RpcError()
        if said == "cancel":
            context.cancel()
        return request

    handlers = {"Unary": grpc.unary_unary_rpc_method_handler(handler)}
    with world.serving(handlers) as channel:
        unary = Stub(channel).unary
        orders = (
            "plain", "code", "code with a response", "text", "abort ok", "caught",
            "raises after code", "raises after details", "headers twice", "status", "list", "none", "rpc error", "cancel",
        )
        for order in orders:
            over.clear()
            future = unary.future(order.encode(), timeout=20, metadata=(("who", "me"), ("blob-bin", b"\x00")))
            log(order, outcome(lambda: future.result(20)), state(future))
            over.wait(20)
            log(found.get(order))


@part
def limits_of_servers(world, log):
    entered, go = threading.Event(), threading.Event()

    def waits(request, context):
        entered.set()
        go.wait(20)
        return request

    handlers = {"Unary": grpc.unary_unary_rpc_method_handler(waits)}
    with world.serving(handlers, maximum_concurrent_rpcs=1) as channel:
        first = Stub(channel).unary.future(b"x")
        entered.wait(20)
        log(outcome(lambda: Stub(channel).unary(b"y", timeout=20)))
        go.set()
        log(first.result(20))


# ---- errors


@part
def errors(world, log):
    with world.serving() as channel:
        stub = Stub(channel)
        try:
            stub.unary(b"abort", metadata=(("a", "b"),))
        except grpc.RpcError as caught:
            error = caught
        said = (of(error.code()), error.details(), metadata(error.initial_metadata()), metadata(error.trailing_metadata()))
        log(isinstance(error, grpc.Call), isinstance(error, grpc.Future), said, ended(error))
        log(error.cancel(), type(error.traceback()).__name__)
        told = []
        error.add_done_callback(lambda made: told.append(made is error))
        log(told, "status = StatusCode.ABORTED" in repr(error), 'details = "as ordered"' in str(error))
        log("ABORTED" in f"{error}", type(error.debug_error_string()).__name__)
        copied = copy.copy(error)
        log(type(copied) is type(error), of(copied.code()), copied.details(), metadata(copied.trailing_metadata()))
        stream = stub.down(b"a fail")
        next(stream)
        try:
            next(stream)
        except grpc.RpcError as caught:
            log(caught is stream, state(caught), "StatusCode.DATA_LOSS" in repr(caught))
        log(outcome(lambda: next(stream)))
        future = stub.unary.future(b"x")
        future.result(20)
        log("StatusCode.OK" in repr(future))
        log(outcome(lambda: stub.none(b"x")))


@part
def futures_of_one_response(world, log):
    with world.serving() as channel:
        stub = Stub(channel)
        for made in (stub.unary.future(b"x"), stub.unary.future(b"abort"), stub.up.future(iter([b"a", b"b"]))):
            log(outcome(lambda: made.result(20)), ended(made), state(made), type(outcome(made.traceback)).__name__)
            log(made.cancel(), made.time_remaining(), made.add_callback(lambda: None))
        timed = stub.unary.future(b"x", timeout=20)
        log(0 < timed.time_remaining() <= 20, outcome(lambda: timed.result(20)))
        log(outcome(lambda: futures.wait([]).done))


@part
def channels(world, log):
    with world.serving() as channel:
        seen = []
        ready = threading.Event()

        def connectivity(now):
            seen.append(now.name)
            if now == grpc.ChannelConnectivity.READY:
                ready.set()

        channel.subscribe(connectivity, try_to_connect=True)
        log(ready.wait(20), seen[-1])
        channel.unsubscribe(connectivity)
        grpc.channel_ready_future(channel).result(20)
        log(outcome(lambda: channel.unary_unary(f"/{SERVICE}/Unary")(b"x")))
        log(outcome(lambda: channel.unary_unary(f"/{SERVICE}/Unary".encode())(b"x"))[:1])
        with channel as same:
            log(same is channel)
        for call in (Stub(channel).unary, Stub(channel).down, Stub(channel).unary.future):
            log(outcome(lambda call=call: call(b"x"))[0])
        log(outcome(channel.close))


@part
def arguments(world, log):
    with world.serving() as channel:
        stub = Stub(channel)
        for compression in (None, grpc.Compression.NoCompression, grpc.Compression.Gzip, grpc.Compression.Deflate):
            log(stub.unary(b"x", compression=compression), list(stub.down(b"a b", compression=compression)))
        log(outcome(lambda: stub.unary(b"x", timeout=-1))[:2])
        log(outcome(lambda: stub.unary(b"metadata", metadata=[("a", "b")])))
        log(outcome(lambda: stub.unary(b"x", metadata=(("a", "b\n"),)))[:2])
        log(outcome(lambda: stub.unary(b"x", metadata=(("grpc-own", "b"),)))[:2])
        log(outcome(lambda: stub.unary(b"x", metadata=(("a", b"bytes"),)))[:2])
        log(outcome(lambda: stub.unary(b"x", metadata=(("a", 7),)))[:1])
        log(outcome(lambda: stub.unary(b"x", metadata={"a": "b"}))[:1])
        log(outcome(lambda: stub.unary("text"))[0], outcome(lambda: stub.unary(None))[:2], outcome(lambda: stub.unary(b"")))
        log(outcome(lambda: stub.up(5))[:2], outcome(lambda: stub.up(iter([b"a", b"b"]))), outcome(lambda: stub.up(iter([]))))


@part
def generic_handlers(world, log):
    class Any(grpc.GenericRpcHandler):
        def service(self, handler_call_details):
            if handler_call_details.method.endswith("/Unary"):
                return METHODS["Unary"]
            return None

    class Named(grpc.ServiceRpcHandler):
        def service_name(self):
            return SERVICE

        def service(self, handler_call_details):
            return Any().service(handler_call_details)

    with world.serving(generic=Named()) as channel:
        log(Stub(channel).unary(b"x"), outcome(lambda: Stub(channel).none(b"x")))
    with world.serving(METHODS, generic=None) as channel:
        log(Stub(channel).unary(b"x"))


@part
def calls_of_another_kind_than_the_handlers(world, log):
    with world.serving() as channel:
        way = f"/{SERVICE}/"
        log(outcome(lambda: list(channel.unary_stream(way + "Unary")(b"x", timeout=20))))
        log(outcome(lambda: channel.unary_unary(way + "Down")(b"a", timeout=20)))
        log(outcome(lambda: channel.stream_unary(way + "Unary")(iter([b"a"]), timeout=20)))
        log(outcome(lambda: channel.unary_unary(way + "Up")(b"a", timeout=20)))


@part
def nobody_serves(world, log):
    with world.nowhere() as channel:
        log(outcome(lambda: Stub(channel).unary(b"x"))[:2], outcome(lambda: next(Stub(channel).down(b"x")))[:2])
        future = Stub(channel).unary.future(b"x")
        log(outcome(lambda: future.result(20))[:2], future.done(), future.cancelled())
