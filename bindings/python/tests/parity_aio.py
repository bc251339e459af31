"""What a program does with interceptors of `grpc.aio`'s channels, and what it is told: the same program for grpcio and for
this package. A part writes down what it sees."""

import asyncio
import inspect

import exam_pb2 as pb
import exam_pb2_grpc as pb_grpc
import grpc
import grpc.aio
from parity import Parts
from servicer import WHERE, AioExam

import trunkline.aio

part = PARTS = Parts()


def text(value):
    return pb.Text(text=value)


def of(value):
    """What is written down of a value: what both say alike."""
    if isinstance(value, pb.Text):
        return value.text
    if isinstance(value, grpc.aio.AioRpcError):
        return ("AioRpcError", value.code().name, value.details())
    if isinstance(value, BaseException):
        return (type(value).__name__, str(value))
    if isinstance(value, grpc.StatusCode):
        return value.name
    if isinstance(value, grpc.aio.Metadata):
        return [pair for pair in value if pair[0] not in ("user-agent", "grpc-accept-encoding")]
    if value is grpc.aio.EOF:
        return "EOF"
    if isinstance(value, (list, tuple)):
        return [of(one) for one in value]
    if isinstance(value, (grpc.aio.Call,)):
        return "a call"
    return value


async def outcome(awaitable):
    """What is awaited, or what it raises."""
    try:
        return of(await asyncio.wait_for(awaitable, 20))
    except (Exception, asyncio.CancelledError) as error:
        return of(error)


async def state(call):
    """All that a call says of its end."""
    return {
        "code": await outcome(call.code()),
        "details": await outcome(call.details()),
        "initial": await outcome(call.initial_metadata()),
        "trailing": await outcome(call.trailing_metadata()),
        "done": call.done(),
        "cancelled": call.cancelled(),
    }


def awaited(call):
    async def wait():
        return await call

    return wait()


async def read_all(call):
    found = []
    while len(found) < 20:
        found.append(await outcome(call.read()))
        if not isinstance(found[-1], (str, bytes)) or found[-1] == "EOF":
            break
    return found


async def iterated(responses):
    found = []
    try:
        async for response in responses:
            found.append(of(response))
    except (Exception, asyncio.CancelledError) as error:
        found.append(of(error))
    return found


class Unary(grpc.aio.UnaryUnaryClientInterceptor):
    def __init__(self, act):
        self._act = act

    async def intercept_unary_unary(self, continuation, client_call_details, request):
        return await self._act(continuation, client_call_details, request)


class Downward(grpc.aio.UnaryStreamClientInterceptor):
    def __init__(self, act):
        self._act = act

    async def intercept_unary_stream(self, continuation, client_call_details, request):
        return await self._act(continuation, client_call_details, request)


class Upward(grpc.aio.StreamUnaryClientInterceptor):
    def __init__(self, act):
        self._act = act

    async def intercept_stream_unary(self, continuation, client_call_details, request_iterator):
        return await self._act(continuation, client_call_details, request_iterator)


class Both(grpc.aio.StreamStreamClientInterceptor):
    def __init__(self, act):
        self._act = act

    async def intercept_stream_stream(self, continuation, client_call_details, request_iterator):
        return await self._act(continuation, client_call_details, request_iterator)


ALL = (Unary, Downward, Upward, Both)


async def requests(*texts):
    for one in texts:
        yield text(one)


# ---- unary


@part
async def order_and_details(world, log):
    def act(name):
        async def within(continuation, details, request):
            log(name, "before", type(details).__name__, details._fields, of(details.metadata))
            log(details.method, details.timeout, details.wait_for_ready, details.credentials)
            call = await continuation(details, request)
            log(name, "after", isinstance(call, grpc.aio.UnaryUnaryCall), call.done())
            return call

        return within

    stub = world.stub(Unary(act("first")), Unary(act("second")), Downward(act("wrong")), Unary(act("third")))
    call = stub.Echo(text("x"), timeout=20, metadata=(("who", "me"),))
    log(type(call).__mro__[0] is not None, isinstance(call, grpc.aio.UnaryUnaryCall), call.done(), call.cancelled())
    log(await outcome(call), await state(call))
    log(await outcome(stub.Echo(text("y"))), await outcome(stub.Echo(text("z"), wait_for_ready=True)))


@part
async def changed_details(world, log):
    async def act(continuation, details, request):
        metadata = grpc.aio.Metadata(("who", "interceptor"), ("blob-bin", b"\x00\x01"))
        details = details._replace(metadata=metadata, timeout=30, wait_for_ready=True)
        return await continuation(details, text("metadata"))

    call = world.stub(Unary(act)).Echo(text("x"))
    log(await outcome(call), await state(call))

    async def add(continuation, details, request):
        details.metadata.add("blob-bin", b"\x02")
        return await continuation(details, request)

    given = grpc.aio.Metadata(("who", "caller"))
    call = world.stub(Unary(add)).Echo(text("metadata"), metadata=given)
    log(await outcome(call), await state(call), of(given))

    async def pairs(continuation, details, request):
        details = details._replace(metadata=(("who", "pairs"), ("blob-bin", b"\x03")))
        return await continuation(details, request)

    call = world.stub(Unary(pairs)).Echo(text("metadata"))
    log(await outcome(call), await state(call))

    async def late(continuation, details, request):
        return await continuation(details._replace(timeout=0.1), request)

    call = world.stub(Unary(late)).Echo(text("hang"))
    log((await outcome(call))[:2], (await state(call))["code"])

    async def elsewhere(continuation, details, request):
        return await continuation(details._replace(method=b"/pyexam.v1.Exam/Nowhere"), request)

    call = world.stub(Unary(elsewhere)).Echo(text("x"))
    log(await outcome(call), await state(call))


@part
async def a_response_in_place_of_a_call(world, log):
    async def act(continuation, details, request):
        return text("from the interceptor")

    seen = []

    async def outer(continuation, details, request):
        call = await continuation(details, request)
        seen.append((of(call), await state(call), call.cancel()))
        log(of(await call))
        return call

    for interceptors in ((Unary(act),), (Unary(outer), Unary(act))):
        call = world.stub(*interceptors).Echo(text("x"))
        log(await outcome(call), await outcome(call), await state(call), call.cancel(), await outcome(call.wait_for_connection()))
    log(seen)

    async def answered(continuation, details, request):
        response = await (await continuation(details, request))
        return text(response.text + "!")

    call = world.stub(Unary(answered)).Echo(text("x"))
    log(await outcome(call), await state(call))

    async def nothing(continuation, details, request):
        return None

    call = world.stub(Unary(nothing)).Echo(text("x"))
    log(await outcome(call), await state(call))


@part
async def an_interceptor_that_raises(world, log):
    def raises(error, early=True):
        async def act(continuation, details, request):
            if not early:
                await (await continuation(details, request))
            raise error

        return act

    initial, trailing = grpc.aio.Metadata(("a", "1")), grpc.aio.Metadata(("b", "2"))
    failed = grpc.aio.AioRpcError(grpc.StatusCode.DATA_LOSS, initial, trailing, details="on order")
    cancelled = grpc.aio.AioRpcError(grpc.StatusCode.CANCELLED, initial, trailing, details="on order")
    for early in (True, False):
        for error in (failed, cancelled, RuntimeError("on order"), asyncio.CancelledError()):
            told = []
            call = world.stub(Unary(raises(error, early))).Echo(text("x"))
            call.add_done_callback(lambda made, told=told: told.append(made))
            log(await outcome(call), await state(call), [made is call for made in told])
            log(await outcome(call), call.cancel(), await outcome(call.wait_for_connection()))
            call.add_done_callback(lambda made: log("told at once", made is call))


@part
async def a_failed_call(world, log):
    async def act(continuation, details, request):
        return await continuation(details, request)

    async def catch(continuation, details, request):
        call = await continuation(details, request)
        log(await outcome(call), await state(call))
        return call

    async def instead(continuation, details, request):
        try:
            return await (await continuation(details, request))
        except grpc.aio.AioRpcError as error:
            return text(error.details())

    for one in (act, catch, instead):
        call = world.stub(Unary(one)).Echo(text("abort"))
        log(await outcome(call), await state(call), await outcome(call.wait_for_connection()))


@part
async def a_retry(world, log):
    async def act(continuation, details, request):
        for attempt in range(3):
            call = await continuation(details, text("abort" if attempt < 2 else request.text))
            if await call.code() == grpc.StatusCode.OK:
                break
            log(await call.details())
        return call

    async def count(continuation, details, request):
        log("called")
        return await continuation(details, request)

    call = world.stub(Unary(act), Unary(count)).Echo(text("x"))
    log(await outcome(call), await state(call))


@part
async def cancellation_before(world, log):
    async def act(continuation, details, request):
        log("runs")
        return await continuation(details, request)

    told = []
    call = world.stub(Unary(act)).Echo(text("x"))
    call.add_done_callback(lambda made: told.append(made is call))
    log(call.cancel(), call.cancelled(), call.done())
    log(await outcome(call), await state(call), call.cancel(), told)


@part
async def cancellation_within(world, log):
    entered = asyncio.Event()

    async def waits(continuation, details, request):
        entered.set()
        await asyncio.sleep(20)

    async def after(continuation, details, request):
        call = await continuation(details, request)
        log(await outcome(call))
        entered.set()
        try:
            await asyncio.sleep(20)
        except asyncio.CancelledError:
            log("told", await outcome(call.code()))
            raise

    async def catches(continuation, details, request):
        entered.set()
        try:
            await asyncio.sleep(20)
        except asyncio.CancelledError:
            return text("all the same")

    async def waits_for_the_call(continuation, details, request):
        call = await continuation(details, request)
        entered.set()
        try:
            return await call
        except asyncio.CancelledError:
            log("told", call.cancelled(), await outcome(call.code()))
            raise

    for act, said in ((waits, "x"), (after, "x"), (catches, "x"), (waits_for_the_call, "hang")):
        entered.clear()
        told = []
        call = world.stub(Unary(act)).Echo(text(said))
        call.add_done_callback(lambda made, told=told: told.append(1))
        await entered.wait()
        log(call.cancel(), call.done())
        log(await outcome(call), await state(call), call.cancel(), told)
        # Who awaits and is cancelled cancels it.
        entered.clear()
        call = world.stub(Unary(act)).Echo(text(said))
        waiting = asyncio.ensure_future(awaited(call))
        await entered.wait()
        waiting.cancel()
        log(await outcome(waiting), await state(call))


@part
async def cancellation_after(world, log):
    async def act(continuation, details, request):
        return await continuation(details, request)

    call = world.stub(Unary(act)).Echo(text("hang"))
    await asyncio.sleep(0.1)
    told = []
    call.add_done_callback(lambda made: told.append(made is call))
    log(call.done(), call.cancel(), call.cancelled())
    log(await outcome(call), await state(call), call.cancel(), told)


@part
async def done_callbacks(world, log):
    async def act(continuation, details, request):
        call = await continuation(details, request)
        call.add_done_callback(lambda made: log("the interceptor's", made is call))
        return call

    for said in ("x", "abort"):
        call = world.stub(Unary(act)).Echo(text(said))
        call.add_done_callback(lambda made: log("before", made is call, made.done()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        call.add_done_callback(lambda made: log("meanwhile", made is call, made.done()))
        log(await outcome(call), "awaited")
        await asyncio.sleep(0.05)
        call.add_done_callback(lambda made: log("after", made is call, made.done()))


@part
async def one_of_several_kinds(world, log):
    class Several(grpc.aio.UnaryStreamClientInterceptor, grpc.aio.UnaryUnaryClientInterceptor):
        async def intercept_unary_unary(self, continuation, details, request):
            log("unary_unary")
            return await continuation(details, request)

        async def intercept_unary_stream(self, continuation, details, request):
            log("unary_stream")
            return await continuation(details, request)

    stub = world.stub(Several())
    log(await outcome(stub.Echo(text("x"))), await read_all(stub.Words(text("a b"))))
    for wrong in (object(), grpc.UnaryUnaryClientInterceptor):
        try:
            world.stub(wrong)
        except ValueError as error:
            log(type(error).__name__)
    log(await outcome(world.stub().Echo(text("x"))))


@part
async def a_closed_channel(world, log):
    async def act(continuation, details, request):
        log("runs")
        return await continuation(details, request)

    channel = world.channel(Unary(act))
    stub = pb_grpc.ExamStub(channel)
    hanging = stub.Echo(text("hang"))
    await asyncio.sleep(0.1)
    await channel.close()
    log(await outcome(hanging), (await state(hanging))["code"])
    try:
        call = stub.Echo(text("x"))
        log(of(await outcome(call))[0])
    except Exception as error:
        log(type(error).__name__)


@part
async def channels_close_while_an_interceptor_runs(world, log):
    entered = asyncio.Event()

    async def act(continuation, details, request):
        entered.set()
        await asyncio.sleep(20)

    async with world.channel(Unary(act)) as channel:
        call = pb_grpc.ExamStub(channel).Echo(text("x"))
        await entered.wait()
    log(await outcome(call), await state(call))

    async def fails(continuation, details, request):
        entered.set()
        await asyncio.sleep(0.1)
        raise RuntimeError("on order")

    entered.clear()
    channel = world.channel(Unary(fails))
    call = pb_grpc.ExamStub(channel).Echo(text("x"))
    await entered.wait()
    await channel.close(10)
    log(await outcome(call))


# ---- responses


@part
async def streams_of_responses(world, log):
    def act(name):
        async def within(continuation, details, request):
            log(name, details.method, type(request).__name__)
            call = await continuation(details, request)
            log(name, isinstance(call, grpc.aio.UnaryStreamCall))
            return call

        return within

    stub = world.stub(Downward(act("first")), Downward(act("second")))
    call = stub.Words(text("a b c"))
    log(isinstance(call, grpc.aio.UnaryStreamCall), call.done())
    log(await iterated(call), await state(call), await iterated(call), await outcome(call.read()))
    call = stub.Words(text("a b c"))
    log(await read_all(call), await state(call), await iterated(call))
    call = stub.Words(text("a b c"))
    log(of(await call.read()), await iterated(call))
    call = stub.Words(text("a b fail"))
    log(await read_all(call), await state(call))
    call = stub.Words(text("a fail"))
    log(await iterated(call), await state(call))
    # Nobody keeps the call but who iterates.
    log(await iterated(stub.Words(text("a b"))))
    call = stub.Words(text("a"))
    log(await outcome(call.wait_for_connection()), await outcome(call.initial_metadata()), await read_all(call))


@part
async def responses_of_an_interceptor(world, log):
    async def changed(continuation, details, request):
        call = await continuation(details, request)

        async def responses():
            async for response in call:
                yield text(response.text.upper())

        return responses()

    async def invented(continuation, details, request):
        call = await continuation(details, request)
        call.cancel()

        async def responses():
            yield text("x")
            yield text("y")

        return responses()

    async def outer(continuation, details, request):
        call = await continuation(details, request)
        log(isinstance(call, grpc.aio.UnaryStreamCall))
        return call

    for interceptors in ((changed,), (outer, changed), (changed, outer, changed)):
        stub = world.stub(*map(Downward, interceptors))
        call = stub.Words(text("a b"))
        log(await iterated(call), await state(call))
        call = stub.Words(text("a b"))
        log(await read_all(call), await state(call))
        call = stub.Words(text("a fail"))
        log(await read_all(call), await state(call))
    call = world.stub(Downward(invented)).Words(text("a b"))
    log(await read_all(call))


@part
async def raises_around_responses(world, log):
    failed = grpc.aio.AioRpcError(grpc.StatusCode.DATA_LOSS, grpc.aio.Metadata(), grpc.aio.Metadata(), details="on order")
    for error in (failed, RuntimeError("on order")):

        async def act(continuation, details, request, error=error):
            raise error

        call = world.stub(Downward(act)).Words(text("a b"))
        log(await outcome(call.read()), await state(call))
        call = world.stub(Downward(act)).Words(text("a b"))
        log(await iterated(call), call.done(), call.cancel())
        call = world.stub(Both(act)).Chat(requests("a"))
        log(await iterated(call), await state(call))
        call = world.stub(Both(act)).Chat()
        log((await outcome(call.write(text("a"))))[0], await outcome(call.done_writing()))
        call = world.stub(Upward(act)).Join(requests("a"))
        log(await outcome(call), await state(call))
        call = world.stub(Upward(act)).Join()
        log((await outcome(call.write(text("a"))))[0], await outcome(call))


@part
async def cancelled_streams(world, log):
    async def act(continuation, details, request):
        return await continuation(details, request)

    stub = world.stub(*(kind(act) for kind in ALL))
    call = stub.Words(text("a b c"))
    log(call.cancel(), await outcome(call.read()), await state(call))
    call = stub.Words(text("a b c"))
    log(of(await call.read()), call.cancel(), await iterated(call), await state(call))
    call = stub.Chat()
    await call.write(text("a"))
    log(of(await call.read()), call.cancel(), await outcome(call.read()), (await outcome(call.write(text("b"))))[0], await state(call))
    call = stub.Chat()
    await call.write(text("a"))
    await call.read()
    reading = asyncio.ensure_future(call.read())
    await asyncio.sleep(0.05)
    reading.cancel()
    log(await outcome(reading), await state(call))
    call = stub.Join()
    await call.write(text("a"))
    log(call.cancel(), await outcome(call), await state(call), (await outcome(call.write(text("b"))))[0])
    entered = asyncio.Event()

    async def waits(continuation, details, request):
        entered.set()
        await asyncio.sleep(20)

    call = world.stub(Downward(waits)).Words(text("a b"))
    reading = asyncio.ensure_future(call.read())
    await entered.wait()
    log(call.cancel(), await outcome(reading), await state(call))
    entered.clear()
    call = world.stub(Upward(waits)).Join()
    writing = asyncio.ensure_future(call.write(text("a")))
    await entered.wait()
    log(call.cancel(), (await outcome(writing))[0], await outcome(call), await state(call))


# ---- requests


@part
async def streams_of_requests(world, log):
    async def act(continuation, details, request_iterator):
        log(details.method, inspect.isasyncgen(request_iterator) or hasattr(request_iterator, "__aiter__"))
        call = await continuation(details, request_iterator)
        log(isinstance(call, (grpc.aio.StreamUnaryCall, grpc.aio.StreamStreamCall)))
        return call

    stub = world.stub(Upward(act), Both(act))
    call = stub.Join(requests("a", "b"))
    log(await outcome(call), await state(call), await outcome(call))
    log((await outcome(call.write(text("x"))))[0], (await outcome(call.done_writing()))[0])
    call = stub.Join()
    for one in ("a", "b", "c"):
        log(await outcome(call.write(text(one))))
    log(await outcome(call.done_writing()), await outcome(call.done_writing()))
    log(await outcome(call), await state(call))
    log((await outcome(call.write(text("late"))))[0])
    log(await iterated(stub.Chat(requests("a", "b"))), await read_all(stub.Chat(requests("a", "b"))))
    call = stub.Chat()
    for one in ("a", "b", "c"):
        await call.write(text(one))
        log(await outcome(call.read()))
    await call.done_writing()
    log(await outcome(call.read()), await state(call), (await outcome(call.write(text("late"))))[0])
    call = stub.Chat()
    log(await outcome(call.wait_for_connection()), call.cancel())


@part
async def requests_changed_by_an_interceptor(world, log):
    async def act(continuation, details, request_iterator):
        async def changed():
            async for request in request_iterator:
                yield text(request.text.upper())

        return await continuation(details, changed())

    async def first(continuation, details, request_iterator):
        async def one():
            async for request in request_iterator:
                yield request
                return

        return await continuation(details, one())

    stub = world.stub(Upward(act), Both(act))
    log(await outcome(stub.Join(requests("a", "b"))), await iterated(stub.Chat(requests("a", "b"))))
    call = stub.Join()
    for one in ("a", "b"):
        await call.write(text(one))
    await call.done_writing()
    log(await outcome(call))
    call = stub.Chat()
    await call.write(text("a"))
    log(await outcome(call.read()))
    await call.done_writing()
    log(await outcome(call.read()), await state(call))
    log(await outcome(world.stub(Upward(first)).Join(requests("a", "b"))))


@part
async def a_stream_that_the_server_ends(world, log):
    async def act(continuation, details, request_iterator):
        return await continuation(details, request_iterator)

    call = world.stub(Both(act)).Chat()
    await call.write(text("a"))
    await call.write(text("enough"))
    log(await read_all(call), await outcome(call.code()))
    log((await outcome(call.write(text("b"))))[0], await state(call))


@part
async def responses_of_a_conversation(world, log):
    async def act(continuation, details, request_iterator):
        call = await continuation(details, request_iterator)

        async def responses():
            async for response in call:
                yield text(response.text + "!")

        return responses()

    stub = world.stub(Both(act))
    log(await iterated(stub.Chat(requests("a", "b"))))
    call = stub.Chat()
    await call.write(text("a"))
    log(await outcome(call.read()))
    await call.done_writing()
    log(await outcome(call.read()), await state(call), (await outcome(call.write(text("b"))))[0])


@part
async def nobody_serves(world, log):
    async def act(continuation, details, request):
        return await continuation(details, request)

    for interceptors in ((), (Unary(act), Downward(act), Upward(act), Both(act))):
        channel = world.nowhere(*interceptors)
        stub = pb_grpc.ExamStub(channel)
        call = stub.Echo(text("x"))
        log((await outcome(call))[:2], (await outcome(call.wait_for_connection()))[:2], call.done())
        call = stub.Words(text("x"))
        log((await outcome(call.read()))[:2], (await outcome(call.wait_for_connection()))[:2], call.done())
        call = stub.Join(requests("a"))
        log((await outcome(call))[:2], (await outcome(call.wait_for_connection()))[:2], call.done())
        await channel.close()


def run(world, name, log):
    async def within():
        async with world:
            await PARTS[name](world, log)

    asyncio.run(asyncio.wait_for(within(), 90))


class World:
    """A server of grpcio's, and channels to it."""

    def __init__(self, servicer):
        self._servicer = servicer
        self._channels = []

    async def __aenter__(self):
        self._server = self._new_server()
        pb_grpc.add_ExamServicer_to_server(self._servicer(), self._server)
        await self._start()
        return self

    async def __aexit__(self, *_):
        for channel in self._channels:
            await channel.close()
        await self._server.stop(None)

    def _new_server(self):
        return grpc.aio.server()

    async def _start(self):
        self._port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()

    def _new_channel(self, interceptors):
        return grpc.aio.insecure_channel(f"127.0.0.1:{self._port}", interceptors=interceptors)

    def nowhere(self, *interceptors):
        return grpc.aio.insecure_channel("127.0.0.1:9", interceptors=interceptors)

    def channel(self, *interceptors):
        self._channels.append(self._new_channel(interceptors))
        return self._channels[-1]

    def stub(self, *interceptors):
        return pb_grpc.ExamStub(self.channel(*interceptors))


class OurWorld(World):
    """The same of this package."""

    def _new_server(self):
        return trunkline.aio.server(name="parity", **WHERE)

    async def _start(self):
        await self._server.start()
        await self._server.ready()

    def _new_channel(self, interceptors):
        return trunkline.aio.insecure_channel(interceptors=interceptors, **WHERE)

    def nowhere(self, *interceptors):
        return trunkline.aio.insecure_channel("tcp://127.0.0.1:9", interceptors=interceptors, **WHERE)


def run(world, name, log):
    async def within():
        async with world(AioExam) as made:
            await PARTS[name](made, log)

    asyncio.run(asyncio.wait_for(within(), 90))


WORLDS = (World, OurWorld)
