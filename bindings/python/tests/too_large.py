"""Messages in the middle of a stream that are larger than the heap they are sent from. Started by `test_sync.py`, in an
environment with heaps of 4 MiB: nobody takes what came before them for the whole."""

import asyncio
import os
import queue
import sys
from concurrent import futures

sys.path.insert(0, os.environ["PYEXAM"])

import exam_pb2 as pb
import grpc
from servicer import WHERE

import trunkline
import trunkline.aio

LARGE = "x" * (5 << 20)
HEARD, BEGUN = queue.Queue(), queue.Queue()


class Exam:
    def Join(self, request_iterator, context):
        read = [next(request_iterator).text]
        BEGUN.put(True)
        try:
            read += [request.text for request in request_iterator]
        except grpc.RpcError as error:
            HEARD.put(error.code())
            raise
        HEARD.put(read)
        return pb.Text(text=" ".join(read))

    def Words(self, request, context):
        for text in ("first", LARGE, "last"):
            yield pb.Text(text=text)


class AioExam:
    async def Words(self, request, context):
        for text in ("first", LARGE, "last"):
            yield pb.Text(text=text)


def requests():
    yield pb.Text(text="first")
    assert BEGUN.get(timeout=60)
    yield pb.Text(text=LARGE)
    yield pb.Text(text="last")


async def requests_of_aio():
    yield pb.Text(text="first")
    assert await asyncio.to_thread(BEGUN.get, timeout=60)
    yield pb.Text(text=LARGE)
    yield pb.Text(text="last")


def refused(error):
    assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, error
    assert "TRUNKLINE_HEAP_BYTES" in error.details(), error


def by_threads(stub, of_aio):
    try:
        raise AssertionError(stub.Join(requests()))
    except grpc.RpcError as error:
        refused(error)
    assert HEARD.get(timeout=60) == grpc.StatusCode.CANCELLED
    for served in (stub, of_aio):
        words = []
        try:
            for word in served.Words(pb.Text()):
                words.append(word.text)
            raise AssertionError(words)
        except grpc.RpcError as error:
            refused(error)
        assert words == ["first"]


async def by_asyncio():
    channel = trunkline.aio.insecure_channel(name="large", **WHERE)
    stub = Stub(channel)
    try:
        raise AssertionError(await stub.Join(requests_of_aio()))
    except grpc.aio.AioRpcError as error:
        refused(error)
    assert await asyncio.to_thread(HEARD.get, timeout=60) == grpc.StatusCode.CANCELLED
    call = stub.Join()
    await call.write(pb.Text(text="first"))
    assert await asyncio.to_thread(BEGUN.get, timeout=60)
    try:
        await call.write(pb.Text(text=LARGE))
        raise AssertionError("it was sent")
    except grpc.aio.AioRpcError as error:
        refused(error)
    assert await asyncio.to_thread(HEARD.get, timeout=60) == grpc.StatusCode.CANCELLED
    await channel.close()


class Stub:
    """Of services under names of their own: whoever started this may serve the exam meanwhile."""

    def __init__(self, channel, service="pyexam.v1.Large"):
        types = (pb.Text.SerializeToString, pb.Text.FromString)
        self.Join = channel.stream_unary(f"/{service}/Join", *types)
        self.Words = channel.unary_stream(f"/{service}/Words", *types)


def handlers(exam):
    types = (pb.Text.FromString, pb.Text.SerializeToString)
    made = {"Words": grpc.unary_stream_rpc_method_handler(exam.Words, *types)}
    if hasattr(exam, "Join"):
        made["Join"] = grpc.stream_unary_rpc_method_handler(exam.Join, *types)
    return made


async def main():
    server = trunkline.server(futures.ThreadPoolExecutor(max_workers=8), name="large", **WHERE)
    server.add_registered_method_handlers("pyexam.v1.Large", handlers(Exam()))
    server.start()
    server.ready()
    of_aio = trunkline.aio.server(name="large", **WHERE)
    of_aio.add_registered_method_handlers("pyexam.v1.LargeAio", handlers(AioExam()))
    await of_aio.start()
    await of_aio.ready()
    with trunkline.insecure_channel(name="large", **WHERE) as channel:
        await asyncio.to_thread(by_threads, Stub(channel), Stub(channel, "pyexam.v1.LargeAio"))
    await by_asyncio()
    await of_aio.stop(5)
    server.stop(5).wait(60)


asyncio.run(main())
