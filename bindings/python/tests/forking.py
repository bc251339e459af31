"""Forks while a loop of another thread has a queue: the child ends as programs do. Says whether the queue is as before."""

import asyncio
import os
import select
import sys
import threading

import grpc

import trunkline.aio

called, over = threading.Event(), threading.Event()
descriptors = []


async def call():
    channel = trunkline.aio.insecure_channel(embedded=True)
    try:
        await channel.unary_unary("/pyexam.v1.Nobody/Answers")(b"x")
    except grpc.aio.AioRpcError:
        pass
    descriptors.append(trunkline.aio._queue()._descriptor)
    called.set()
    # The loop reads nothing meanwhile.
    over.wait(60)


loop = threading.Thread(target=asyncio.run, args=(call(),))
loop.start()
assert called.wait(60)
for _ in range(3):
    child = os.fork()
    if child == 0:
        # Threads of the parent's are not here to be waited for.
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
readable = select.select(descriptors, [], [], 0)[0]
over.set()
loop.join()
print("disturbed" if readable else "as before")
