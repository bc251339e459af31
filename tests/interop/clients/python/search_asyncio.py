"""Python's grpc.aio calls examples/search: all four patterns, many at once, deadline, cancellation, errors.

search_asyncio.py TARGET [CA.pem], with the modules protoc made of search.proto on PYTHONPATH.
"""

import asyncio
import sys

import grpc
from search.v1 import search_pb2 as pb
from search.v1 import search_pb2_grpc

TIMEOUT_S = 20


async def query(stub):
    reply = await stub.Query(pb.QueryRequest(query="daemon", limit=3), timeout=TIMEOUT_S)
    assert 0 < len(reply.hits) <= 3, reply


async def many_at_once(stub):
    calls = [stub.Query(pb.QueryRequest(query="daemon", limit=1), timeout=TIMEOUT_S) for _ in range(500)]
    replies = await asyncio.gather(*calls)
    assert all(len(reply.hits) == 1 for reply in replies)


async def results(stub):
    ranks = [hit.rank async for hit in stub.Results(pb.QueryRequest(query="the"), timeout=TIMEOUT_S)]
    assert len(ranks) > 10 and ranks == list(range(1, len(ranks) + 1)), len(ranks)


async def index(stub):
    call = stub.Index(timeout=TIMEOUT_S)
    for i in range(200):
        await call.write(pb.Document(name=f"aio{i}", text=f"asynchronous words number{i}"))
    await call.done_writing()
    summary = await call
    assert summary.documents == 200, summary


async def session(stub):
    call = stub.Session(timeout=TIMEOUT_S)
    for ask in (pb.Ask(query="daemon"), pb.Ask(refine="call"), pb.Ask(complete="dae")):
        await call.write(ask)
        answer = await call.read()
        assert answer.WhichOneof("kind") in ("page", "completions"), answer
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    assert await call.code() == grpc.StatusCode.OK


async def status(stub):
    try:
        await stub.Query(pb.QueryRequest(query=""), timeout=TIMEOUT_S)
    except grpc.aio.AioRpcError as error:
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT, error
        return
    raise AssertionError("a query without words was answered")


async def cancelled(stub):
    call = stub.Session()
    await call.write(pb.Ask(query="daemon"))
    assert (await call.read()).WhichOneof("kind") == "page"
    assert call.cancel()
    try:
        await call.read()
    except asyncio.CancelledError:
        return
    raise AssertionError("a cancelled call went on")


async def deadline(stub):
    call = stub.Session(timeout=0.3)
    try:
        await call.read()
    except grpc.aio.AioRpcError:
        pass
    assert await call.code() == grpc.StatusCode.DEADLINE_EXCEEDED, await call.code()


def opened(target, ca=None):
    if ca is None:
        return grpc.aio.insecure_channel(target)
    with open(ca, "rb") as roots:
        return grpc.aio.secure_channel(target, grpc.ssl_channel_credentials(roots.read()))


async def main(target, *ca):
    failed = 0
    async with opened(target, *ca) as channel:
        stub = search_pb2_grpc.SearchStub(channel)
        for case in (query, many_at_once, results, index, session, status, cancelled, deadline):
            try:
                await asyncio.wait_for(case(stub), 2 * TIMEOUT_S)
                print(f"passed {case.__name__}", flush=True)
            except Exception as error:  # whatever it is, the case failed
                failed += 1
                print(f"FAILED {case.__name__}: {error!r}".replace("\n", " "), flush=True)
    return failed != 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
