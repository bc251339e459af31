"""Ends while its server stops: what is in flight is answered before. Says what came of it."""

import atexit
import threading
import time

import grpc

import trunkline

entered, said = threading.Event(), ["left alone"]


class Pool:
    """Threads that keep no program from its end."""

    def submit(self, act, *arguments):
        threading.Thread(target=act, args=arguments, daemon=True).start()


def waits(request, context):
    entered.set()
    threading.main_thread().join(60)
    # The program has ended, and would be gone soon.
    time.sleep(0.2)
    said[0] = "answered"
    return request


server = trunkline.server(Pool(), embedded=True)
methods = {"Waits": grpc.unary_unary_rpc_method_handler(waits)}
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("pyexam.v1.Stopping", methods)])
server.start()
server.ready()
call = trunkline.insecure_channel(embedded=True).unary_unary("/pyexam.v1.Stopping/Waits").future(b"x")
assert entered.wait(60)
atexit.register(lambda: print(said[0]))
server.stop(60)
