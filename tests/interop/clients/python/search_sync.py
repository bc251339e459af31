"""Python's grpcio calls examples/search: all four patterns, metadata, deadline, cancellation, compression, errors.

search_sync.py TARGET [CA.pem], with the modules protoc made of search.proto on PYTHONPATH.
"""

import sys
import threading

import grpc
from search.v1 import search_pb2 as pb
from search.v1 import search_pb2_grpc

TIMEOUT_S = 20


def query(stub):
    reply = stub.Query(pb.QueryRequest(query="daemon", limit=3), timeout=TIMEOUT_S)
    assert 0 < len(reply.hits) <= 3 and reply.hits[0].rank == 1, reply


def results(stub):
    hits = list(stub.Results(pb.QueryRequest(query="the"), timeout=TIMEOUT_S))
    assert len(hits) > 10 and [hit.rank for hit in hits] == list(range(1, len(hits) + 1)), len(hits)


def index(stub):
    documents = (pb.Document(name=f"py{i}", text=f"pythonic words number{i}") for i in range(200))
    summary = stub.Index(documents, timeout=TIMEOUT_S)
    assert summary.documents == 200, summary
    reply = stub.Query(pb.QueryRequest(query="number199"), timeout=TIMEOUT_S)
    assert [hit.name for hit in reply.hits] == ["py199"], reply


def session(stub):
    asks = [pb.Ask(query="daemon"), pb.Ask(refine="call"), pb.Ask(undo=pb.Undo()), pb.Ask(more=pb.More())]
    answers = list(stub.Session(iter(asks), timeout=TIMEOUT_S))
    assert [answer.WhichOneof("kind") for answer in answers] == ["page"] * 4, answers


def large_both_ways(stub):
    text = "large " * 500_000
    summary = stub.Index(iter([pb.Document(name="large", text=text)]), timeout=TIMEOUT_S)
    assert summary.words == 500_000, summary


def status(stub):
    try:
        stub.Query(pb.QueryRequest(query=""), timeout=TIMEOUT_S)
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT and error.details(), error
        return
    raise AssertionError("a query without words was answered")


def metadata(stub):
    sent = (("tenant", "blue"), ("trace-bin", bytes(range(256))))
    _, call = stub.Query.with_call(pb.QueryRequest(query="daemon"), metadata=sent, timeout=TIMEOUT_S)
    assert call.code() == grpc.StatusCode.OK, call


def compressed(stub):
    for compression in (grpc.Compression.Gzip, grpc.Compression.Deflate):
        reply = stub.Query(pb.QueryRequest(query="daemon"), compression=compression, timeout=TIMEOUT_S)
        assert reply.hits, compression


def cancelled(stub):
    asked = threading.Event()

    def asks():
        yield pb.Ask(query="daemon")
        asked.wait(TIMEOUT_S)

    call = stub.Session(asks())
    assert next(call).WhichOneof("kind") == "page"
    call.cancel()
    try:
        next(call)
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.CANCELLED, error
    else:
        raise AssertionError("a cancelled call went on")
    finally:
        asked.set()


def deadline(stub):
    asked = threading.Event()

    def asks():
        asked.wait(TIMEOUT_S)
        yield pb.Ask(query="daemon")

    try:
        list(stub.Session(asks(), timeout=0.3))
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED, error
    else:
        raise AssertionError("a late call was answered")
    finally:
        asked.set()


def unimplemented(channel):
    try:
        channel.unary_unary("/search.v1.Search/NoSuchMethod")(b"", timeout=TIMEOUT_S)
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.UNIMPLEMENTED, error
        return
    raise AssertionError("a method nobody serves was answered")


def opened(target, ca=None):
    if ca is None:
        return grpc.insecure_channel(target)
    with open(ca, "rb") as roots:
        return grpc.secure_channel(target, grpc.ssl_channel_credentials(roots.read()))


def main(target, *ca):
    failed = 0
    with opened(target, *ca) as channel:
        stub = search_pb2_grpc.SearchStub(channel)
        cases = [query, results, index, session, large_both_ways, status, metadata, compressed, cancelled, deadline]
        for case, subject in [(case, stub) for case in cases] + [(unimplemented, channel)]:
            try:
                case(subject)
                print(f"passed {case.__name__}", flush=True)
            except Exception as error:  # whatever it is, the case failed
                failed += 1
                print(f"FAILED {case.__name__}: {error!r}".replace("\n", " "), flush=True)
    return failed != 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
