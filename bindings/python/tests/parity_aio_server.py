"""What handlers and interceptors of `grpc.aio`'s servers do, and what they and their callers are told: the same program for
grpcio and for this package. A part writes down what it sees."""

import asyncio
import contextlib
import contextvars
import copy
import pickle

import grpc
import grpc.aio
import parity_aio
from parity import Parts, metadata
from parity_aio import iterated, outcome, read_all, state
from servicer import WHERE

import trunkline.aio

part = PARTS = Parts()
SERVICE = "parity.v1.Aio"


def of(value):
    if isinstance(value, (list, tuple)):
        return [of(one) for one in value]
    if isinstance(value, dict):
        return {key: of(one) for key, one in value.items()}
    return parity_aio.of(value)


class Stub:
    def __init__(self, channel):
        self.unary = channel.unary_unary(f"/{SERVICE}/Unary")
        self.down = channel.unary_stream(f"/{SERVICE}/Down")
        self.up = channel.stream_unary(f"/{SERVICE}/Up")
        self.both = channel.stream_stream(f"/{SERVICE}/Both")
        self.none = channel.unary_unary(f"/{SERVICE}/None")


class World:
    """Servers of grpcio's, and channels to them."""

    @contextlib.asynccontextmanager
    async def serving(self, handlers, generic=None, **how):
        server = self.new_server(**how)
        server.add_generic_rpc_handlers([generic or grpc.method_handlers_generic_handler(SERVICE, handlers)])
        channel = await self._start(server)
        try:
            yield channel
        finally:
            await channel.close()
            await server.stop(None)

    def new_server(self, **how):
        return grpc.aio.server(**how)

    async def _start(self, server):
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        return grpc.aio.insecure_channel(f"127.0.0.1:{port}")


class OurWorld(World):
    """The same of this package."""

    def new_server(self, **how):
        return trunkline.aio.server(name="parity", **how, **WHERE)

    async def _start(self, server):
        await server.start()
        await server.ready()
        return trunkline.aio.insecure_channel(**WHERE)


WORLDS = (World, OurWorld)


def run(world, name, log):
    asyncio.run(asyncio.wait_for(PARTS[name](world(), log), 90))


async def unary(request, context):
    return request


async def down(request, context):
    for word in request.split(b" "):
        if word == b"fail":
            await context.abort(grpc.StatusCode.DATA_LOSS, "a word is lost")
        yield word


async def up(request_iterator, context):
    return b" ".join([request async for request in request_iterator])


async def both(request_iterator, context):
    async for request in request_iterator:
        yield request


METHODS = {
    "Unary": grpc.unary_unary_rpc_method_handler(unary),
    "Down": grpc.unary_stream_rpc_method_handler(down),
    "Up": grpc.stream_unary_rpc_method_handler(up),
    "Both": grpc.stream_stream_rpc_method_handler(both),
}


async def requests(*texts):
    for one in texts:
        yield one


@part
async def interceptors(world, log):
    seen = []

    class Sees(grpc.aio.ServerInterceptor):
        def __init__(self, name):
            self.name = name

        async def intercept_service(self, continuation, handler_call_details):
            found = metadata(handler_call_details.invocation_metadata)
            seen.append((self.name, handler_call_details.method, found, isinstance(handler_call_details, grpc.HandlerCallDetails)))
            handler = await continuation(handler_call_details)
            seen.append((self.name, handler is None, handler and handler.request_streaming, handler and handler.response_streaming))
            return handler

    async with world.serving(METHODS, interceptors=[Sees("first"), Sees("second")]) as channel:
        stub = Stub(channel)
        log(await outcome(stub.unary(b"x", metadata=(("who", "me"),))), await iterated(stub.down(b"a b")))
        log(await outcome(stub.up(requests(b"a", b"b"))), await iterated(stub.both(requests(b"a", b"b"))))
        log(await outcome(stub.none(b"x")), seen)


@part
async def interceptors_that_change_things(world, log):
    class Acts(grpc.aio.ServerInterceptor):
        async def intercept_service(self, continuation, details):
            said = dict(details.invocation_metadata).get("act")
            if said == "none":
                return None
            if said == "raise":
                raise RuntimeError("on order")
            if said == "refuse":
                async def refuse(request, context):
                    await context.abort(grpc.StatusCode.UNAUTHENTICATED, "not you")
                return grpc.unary_unary_rpc_method_handler(refuse)
            handler = await continuation(details)
            if said == "wrap":
                async def wrapped(request, context):
                    return await handler.unary_unary(request, context) + b" wrapped"
                return grpc.unary_unary_rpc_method_handler(
                    wrapped, request_deserializer=bytes.upper, response_serializer=lambda response: response + b"."
                )
            return handler

    async with world.serving(METHODS, interceptors=[Acts()]) as channel:
        stub = Stub(channel)
        for act in ("none", "raise", "refuse", "wrap", "pass"):
            log(act, await outcome(stub.unary(b"x", metadata=(("act", act),))))
            log(act, await outcome(stub.none(b"x", metadata=(("act", act),))))


@part
async def interceptors_that_are_none(world, log):
    class Sync(grpc.ServerInterceptor):
        def intercept_service(self, continuation, details):
            return continuation(details)

    for wrong in (object(), Sync()):
        try:
            world.new_server(interceptors=[wrong])
            log("taken")
        except ValueError:
            log("refused")


@part
async def context_variables_go_with_a_call(world, log):
    variable = contextvars.ContextVar("variable", default="none")
    found = []

    class Sets(grpc.aio.ServerInterceptor):
        async def intercept_service(self, continuation, details):
            found.append(variable.get())
            variable.set(dict(details.invocation_metadata).get("who"))
            return await continuation(details)

    async def says(request, context):
        said = variable.get()
        variable.set("the handler's")
        return str(said).encode()

    def says_in_a_thread(request, context):
        return str(variable.get()).encode()

    async def words(request, context):
        yield str(variable.get()).encode()
        await asyncio.sleep(0)
        yield str(variable.get()).encode()

    handlers = {
        "Unary": grpc.unary_unary_rpc_method_handler(says),
        "Down": grpc.unary_stream_rpc_method_handler(words),
        "None": grpc.unary_unary_rpc_method_handler(says_in_a_thread),
    }
    async with world.serving(handlers, interceptors=[Sets()]) as channel:
        stub = Stub(channel)
        for number in range(4):
            log(await stub.unary(b"x", metadata=(("who", str(number)),)), await iterated(stub.down(b"x", metadata=(("who", "d"),))))
        log(found)
        log(await outcome(stub.none(b"x", metadata=(("who", "t"),))))


@part
async def contexts(world, log):
    found = {}

    async def handler(request, context):
        said = request.decode()
        found[said] = told = []
        told.append((context.cancelled(), context.done(), context.code(), context.details(), context.trailing_metadata()))
        told.append((context.peer_identities(), context.peer_identity_key()))
        told.append((context.peer().split(":")[0] in ("ipv4", "ipv6", "unix"), metadata(context.invocation_metadata())))
        if said == "code":
            context.set_code(grpc.StatusCode.OUT_OF_RANGE)
            context.set_details("details")
            context.set_trailing_metadata((("a", "b"),))
            told.append((context.code(), context.details(), context.trailing_metadata()))
        if said == "code with ok":
            context.set_code(grpc.StatusCode.OK)
            context.set_details("fine")
        if said == "number":
            context.set_code(5)
            told.append(context.code())
        if said == "abort plain":
            await context.abort(grpc.StatusCode.ABORTED)
        if said == "abort with trailers":
            await context.abort(grpc.StatusCode.ABORTED, "aborted", (("a", "b"),))
        if said == "caught":
            try:
                await context.abort(grpc.StatusCode.ABORTED, "caught")
            except Exception as error:
                told.append((isinstance(error, grpc.aio.AbortError), isinstance(error, grpc.aio.BaseError)))
            return request
        if said == "caught and aborted":
            try:
                await context.abort(grpc.StatusCode.ABORTED, "caught")
            except Exception:
                await context.abort(grpc.StatusCode.DATA_LOSS, "again")
        if said == "raises after code":
            context.set_code(grpc.StatusCode.DATA_LOSS)
            raise RuntimeError("on order")
        if said == "raises after details":
            context.set_details("details")
            raise RuntimeError("on order")
        if said == "headers":
            await context.send_initial_metadata((("a", "b"),))
        if said == "headers twice":
            await context.send_initial_metadata((("a", "b"),))
            try:
                await context.send_initial_metadata((("a", "b"),))
            except Exception as error:
                told.append(isinstance(error, (grpc.aio.UsageError, grpc.aio.BaseError)))
        if said == "status":
            class Status(grpc.Status):
                code, details, trailing_metadata = grpc.StatusCode.NOT_FOUND, "nobody", (("a", "b"),)

            await context.abort_with_status(Status())
        if said == "list":
            await context.send_initial_metadata([("a", "b")])
            context.set_trailing_metadata([("c", "d")])
        return request

    async with world.serving({"Unary": grpc.unary_unary_rpc_method_handler(handler)}) as channel:
        stub = Stub(channel)
        for order in (
            "plain", "code", "code with ok", "number", "abort plain", "abort with trailers", "caught",
            "caught and aborted", "raises after code", "raises after details", "headers", "headers twice", "status", "list",
        ):
            call = stub.unary(order.encode(), timeout=20, metadata=(("who", "me"), ("blob-bin", b"\x00")))
            log(order, await outcome(call), await state(call))
            log(found.get(order))


@part
async def streaming_handlers(world, log):
    async def writes(request, context):
        for word in request.split(b" "):
            await context.write(word)
        context.set_trailing_metadata((("ended", "yes"),))

    async def reads(request_iterator, context):
        found = []
        while (request := await context.read()) is not grpc.aio.EOF:
            found.append(request)
        return b" ".join(found)

    async def converses(request_iterator, context):
        while (request := await context.read()) is not grpc.aio.EOF:
            if request == b"code":
                context.set_code(grpc.StatusCode.DATA_LOSS)
                return
            await context.write(request)

    async def yields_and_raises(request, context):
        yield b"a"
        raise RuntimeError("on order")

    handlers = {
        "Down": grpc.unary_stream_rpc_method_handler(writes),
        "Up": grpc.stream_unary_rpc_method_handler(reads),
        "Both": grpc.stream_stream_rpc_method_handler(converses),
        "None": grpc.unary_stream_rpc_method_handler(yields_and_raises),
    }
    async with world.serving(handlers) as channel:
        stub = Stub(channel)
        call = stub.down(b"a b")
        log(await iterated(call), await state(call), await outcome(stub.up(requests(b"a", b"b"))))
        log(await iterated(stub.both(requests(b"a", b"b"))), await iterated(stub.both(requests(b"a", b"code"))))
        log(await iterated(channel.unary_stream(f"/{SERVICE}/None")(b"x")))


@part
async def handlers_that_block(world, log):
    def raises(request, context):
        raise ValueError("on order")

    def yields_and_raises(request, context):
        yield b"a"
        raise RuntimeError("on order")

    def says(request, context):
        context.set_trailing_metadata((("ended", "yes"),))
        return request

    handlers = {
        "Unary": grpc.unary_unary_rpc_method_handler(raises),
        "Down": grpc.unary_stream_rpc_method_handler(yields_and_raises),
        "None": grpc.unary_unary_rpc_method_handler(says),
    }
    async with world.serving(handlers) as channel:
        stub = Stub(channel)
        log(await outcome(stub.unary(b"x")), await iterated(stub.down(b"x")), await outcome(stub.none(b"x")))


@part
async def cancelled_handlers(world, log):
    entered, over = asyncio.Event(), asyncio.Event()
    found = []

    async def waits(request, context):
        context.add_done_callback(lambda made: found.append("told"))
        entered.set()
        try:
            await asyncio.sleep(20)
        except asyncio.CancelledError:
            found.append("cancelled")
            over.set()
            raise

    async def ends(request, context):
        context.add_done_callback(lambda made: (found.append(("told", made.done(), made.cancelled())), over.set()))
        return request

    handlers = {"Unary": grpc.unary_unary_rpc_method_handler(waits), "None": grpc.unary_unary_rpc_method_handler(ends)}
    async with world.serving(handlers) as channel:
        stub = Stub(channel)
        call = stub.unary(b"x")
        await entered.wait()
        log(call.cancel())
        await over.wait()
        await asyncio.sleep(0.1)
        log(sorted(found))
        found.clear(), over.clear()
        log(await outcome(stub.none(b"x")))
        await over.wait()
        log(found)


@part
async def limits(world, log):
    entered, go = asyncio.Event(), asyncio.Event()

    async def waits(request, context):
        entered.set()
        await go.wait()
        return request

    async with world.serving({"Unary": grpc.unary_unary_rpc_method_handler(waits)}, maximum_concurrent_rpcs=1) as channel:
        stub = Stub(channel)
        first = stub.unary(b"x")
        await entered.wait()
        log(await outcome(stub.unary(b"y")))
        go.set()
        log(await outcome(first))


@part
async def calls(world, log):
    """Calls without interceptors."""
    async with world.serving(METHODS) as channel:
        stub = Stub(channel)
        call = stub.unary(b"x", timeout=20)
        log(0 < call.time_remaining() <= 20, await outcome(call), await state(call), await outcome(call.wait_for_connection()))
        log(stub.unary(b"x").time_remaining())
        call = stub.down(b"a fail")
        log(await read_all(call), await state(call), await outcome(call.read()))
        call = stub.down(b"a b")
        log(await read_all(call), await outcome(call.read()), call.cancel())
        call = stub.both()
        log(await outcome(call.write(b"a")), await outcome(call.read()), await outcome(call.done_writing()), await outcome(call.read()))
        log((await outcome(call.write(b"b")))[0], await outcome(call.done_writing()))
        call = stub.both()
        await call.write(b"a")
        call.cancel()
        log((await outcome(call.write(b"b")))[0], await outcome(call.read()), await outcome(call.done_writing()))
        call = stub.both(timeout=0.2)
        log(await outcome(call.code()), (await outcome(call.write(b"b")))[0], (await outcome(call.read()))[:2])
        call = stub.down(b"a b")
        log(await iterated(call), await iterated(call))
        call = stub.up(requests(b"a"))
        log((await outcome(call.write(b"b")))[0], (await outcome(call.done_writing()))[0], await outcome(call))
        call = stub.none(b"x")
        log(await outcome(call), await outcome(call), await state(call))
        for made in (stub.unary(b"x"), stub.none(b"x")):
            told = []
            made.add_done_callback(lambda one, made=made: told.append(one is made))
            await outcome(made)
            await asyncio.sleep(0.05)
            made.add_done_callback(lambda one, made=made: told.append(one is made))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            log(told)


@part
async def errors(world, log):
    async with world.serving(METHODS) as channel:
        try:
            await Stub(channel).none(b"x")
        except grpc.aio.AioRpcError as caught:
            error = caught
        log(error.code(), error.details(), error.initial_metadata(), error.trailing_metadata(), isinstance(error, grpc.RpcError))
        log(error.args, repr(error).split("debug_error_string")[0], type(error.debug_error_string()).__name__)
        for way in (lambda: pickle.loads(pickle.dumps(error)), lambda: copy.copy(error), lambda: copy.deepcopy(error)):
            log(way(), way().trailing_metadata())


@part
async def channels(world, log):
    async with world.serving(METHODS) as channel:
        stub = Stub(channel)
        await asyncio.wait_for(channel.channel_ready(), 20)
        log(channel.get_state().name, channel.get_state(try_to_connect=True).name)
        waiting = asyncio.ensure_future(channel.wait_for_state_change(grpc.ChannelConnectivity.READY))
        log(await outcome(channel.wait_for_state_change(grpc.ChannelConnectivity.IDLE)))
        log(waiting.done(), await outcome(stub.unary(b"x")))
        async with channel as same:
            log(same is channel)
        log(await outcome(waiting), type(channel.get_state()).__name__, channel.get_state().name)
        for call in (lambda: stub.unary(b"x"), lambda: stub.down(b"x"), lambda: stub.up(requests(b"a")), lambda: stub.both()):
            try:
                log(of(await outcome(call().code())))
            except Exception as error:
                log(of(error))
        await channel.close()
        try:
            await channel.close(-1)
            log("closed")
        except ValueError as error:
            log("refused", error)


@part
async def arguments(world, log):
    async with world.serving(METHODS) as channel:
        stub = Stub(channel)
        for compression in (None, grpc.Compression.NoCompression, grpc.Compression.Gzip, grpc.Compression.Deflate):
            log(await outcome(stub.unary(b"x", compression=compression)), await iterated(stub.down(b"a b", compression=compression)))
        log((await outcome(stub.unary(b"x", timeout=-1)))[:2])
        for wrong in ((("a", b"bytes"),), [("a", "b")], grpc.aio.Metadata(("a", "b"))):
            log((await outcome(stub.unary(b"x", metadata=wrong)))[:2])
        log(await outcome(stub.up([b"a", b"b"])), await outcome(stub.up(iter([]))), await iterated(stub.both([])))


@part
async def generic_handlers(world, log):
    class Named(grpc.ServiceRpcHandler):
        def service_name(self):
            return SERVICE

        def service(self, handler_call_details):
            return METHODS["Unary"] if handler_call_details.method.endswith("/Unary") else None

    async with world.serving(None, generic=Named()) as channel:
        log(await outcome(Stub(channel).unary(b"x")), await outcome(Stub(channel).none(b"x")))


@part
async def servers(world, log):
    server = world.new_server()
    log(await outcome(server.stop(None)))
    server = world.new_server()
    log(await outcome(server.wait_for_termination(0.05)))
