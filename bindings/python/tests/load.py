"""Load from Python, for tests that kill and replace: load.py client THREADS | load.py aio TASKS | load.py server LOG

As tests/system/c/load.c: calls until its input ends, and a line for each call.
"""

import asyncio
import itertools
import os
import sys
import threading
from concurrent import futures

import grpc

import trunkline
import trunkline.aio

PATH = "/probe.v1.Probe/Echo"
NUMBERS = itertools.count()
SAYING = threading.Lock()
TIMEOUT_S = 60


def say(line):
    with SAYING:
        print(line, flush=True)


def call_of(number):
    digits = str(number).encode()
    return b"\x0a" + bytes([len(digits)]) + digits, (("log", str(number)),)


def tell(number, code, message, execution):
    if execution == "not executed":
        say(f"not-executed {number}")
    else:
        say(f"failed {number} {code} {message}")


def client(threads):
    stop = threading.Event()
    channel = trunkline.insecure_channel()
    echo = channel.unary_unary(PATH)

    def work():
        while not stop.is_set():
            number = next(NUMBERS)
            request, metadata = call_of(number)
            try:
                assert echo(request, timeout=TIMEOUT_S, metadata=metadata, wait_for_ready=True) == request
                say(f"answered {number}")
            except grpc.RpcError as error:
                tell(number, error.code(), error.details(), error.execution())
                stop.wait(0.001)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    say("ready")
    sys.stdin.read()
    stop.set()
    for worker in workers:
        worker.join()
    channel.close()


async def aio(tasks):
    stop = asyncio.Event()
    channel = trunkline.aio.insecure_channel()
    echo = channel.unary_unary(PATH)

    async def work():
        while not stop.is_set():
            number = next(NUMBERS)
            request, metadata = call_of(number)
            try:
                assert await echo(request, timeout=TIMEOUT_S, metadata=metadata, wait_for_ready=True) == request
                say(f"answered {number}")
            except grpc.aio.AioRpcError as error:
                tell(number, error.code(), error.details(), error.debug_error_string())
                await asyncio.sleep(0.001)

    workers = [asyncio.create_task(work()) for _ in range(tasks)]
    say("ready")
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    stop.set()
    await asyncio.gather(*workers)
    await channel.close()


def server(path):
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def echo(request, context):
        number = dict(context.invocation_metadata()).get("log")
        if number is not None:
            os.write(log, number.encode() + b"\n")
        return request

    methods = {"Echo": grpc.unary_unary_rpc_method_handler(echo)}
    serving = trunkline.server(futures.ThreadPoolExecutor(max_workers=4))
    serving.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("probe.v1.Probe", methods)])
    serving.start()
    serving.ready()
    say("ready")
    serving.wait_for_termination()


if __name__ == "__main__":
    part, how = sys.argv[1:]
    if part == "server":
        server(how)
    elif part == "aio":
        asyncio.run(aio(int(how)))
    else:
        client(int(how))
    print("handles", trunkline._library.lib.tl_handles_open(), flush=True)
