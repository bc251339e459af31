"""grpcio's channels and servers, and Trunkline's, under the same generated stubs.

    peer.py serve LIBRARY ADDRESS PORT_FILE
    peer.py drive LIBRARY ADDRESS

LIBRARY is grpcio, grpcio-aio, trunkline or trunkline-aio. ADDRESS is where grpcio listens or is called; Trunkline's
programs meet at the daemon that TRUNKLINE_SOCKET names. Orders and answers are those of every driver (src/harness/orders.rs).
Many calls at once are so many threads, or so many tasks of the loop.
"""

import asyncio
import os
import sys
import threading
import time
from concurrent import futures

# Generated beside the environment that this runs in.
sys.path.insert(0, os.path.join(sys.prefix, "made"))

import bench_pb2
import bench_pb2_grpc
import grpc
import grpc.aio

import trunkline
import trunkline.aio

HANDLERS = 8
# A small call's data: what its tag and length leave of its bytes.
OVERHEAD = 2


class Bench(bench_pb2_grpc.BenchServicer):
    def Small(self, request, context):
        return bench_pb2.Number(value=len(request.data))


class AsyncBench(bench_pb2_grpc.BenchServicer):
    async def Small(self, request, context):
        return bench_pb2.Number(value=len(request.data))


def say_where(port_file, address, port):
    with open(port_file + ".new", "w", encoding="utf-8") as out:
        out.write(address if address.startswith("unix:") else f"127.0.0.1:{port}")
    os.rename(port_file + ".new", port_file)


def serve(library, address, port_file):
    pool = futures.ThreadPoolExecutor(max_workers=HANDLERS)
    server = grpc.server(pool) if library == "grpcio" else trunkline.server(pool)
    bench_pb2_grpc.add_BenchServicer_to_server(Bench(), server)
    port = server.add_insecure_port(address)
    server.start()
    if library == "trunkline":
        server.ready()
    say_where(port_file, address, port)
    server.wait_for_termination()


async def serve_aio(library, address, port_file):
    server = grpc.aio.server() if library == "grpcio-aio" else trunkline.aio.server()
    bench_pb2_grpc.add_BenchServicer_to_server(AsyncBench(), server)
    port = server.add_insecure_port(address)
    await server.start()
    if library == "trunkline-aio":
        await server.ready()
    say_where(port_file, address, port)
    await server.wait_for_termination()


def answer(began_ns, took_ns):
    took_ns.sort()
    elapsed_ns = time.monotonic_ns() - began_ns
    at = [took_ns[min(len(took_ns) - 1, int(len(took_ns) * share))] for share in (0.5, 0.99)]
    print(len(took_ns), elapsed_ns, *at, flush=True)


def small(size):
    return bench_pb2.Bytes(data=bytes(size - OVERHEAD))


def check(request, reply):
    if reply.value != len(request.data):
        sys.exit("another length came back")


def drive(library, address):
    channel = grpc.insecure_channel(address) if library == "grpcio" else trunkline.insecure_channel()
    stub = bench_pb2_grpc.BenchStub(channel)
    for millis, size, outstanding in (map(int, line.split()) for line in sys.stdin):
        request, took_ns, began_ns = small(size), [], time.monotonic_ns()
        end_ns = began_ns + millis * 1_000_000

        def call():
            now_ns = time.monotonic_ns()
            while now_ns < end_ns:
                sent_ns = now_ns
                check(request, stub.Small(request))
                now_ns = time.monotonic_ns()
                took_ns.append(now_ns - sent_ns)

        if outstanding == 1:
            call()
        else:
            threads = [threading.Thread(target=call) for _ in range(outstanding)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        answer(began_ns, took_ns)


async def drive_aio(library, address):
    channel = grpc.aio.insecure_channel(address) if library == "grpcio-aio" else trunkline.aio.insecure_channel()
    stub = bench_pb2_grpc.BenchStub(channel)
    while line := sys.stdin.readline():
        millis, size, outstanding = map(int, line.split())
        request, took_ns, began_ns = small(size), [], time.monotonic_ns()
        end_ns = began_ns + millis * 1_000_000

        async def call():
            now_ns = time.monotonic_ns()
            while now_ns < end_ns:
                sent_ns = now_ns
                check(request, await stub.Small(request))
                now_ns = time.monotonic_ns()
                took_ns.append(now_ns - sent_ns)

        await asyncio.gather(*(call() for _ in range(outstanding)))
        answer(began_ns, took_ns)


if __name__ == "__main__":
    role, library, *rest = sys.argv[1:]
    if library.endswith("-aio"):
        asyncio.run({"serve": serve_aio, "drive": drive_aio}[role](library, *rest))
    else:
        {"serve": serve, "drive": drive}[role](library, *rest)
