"""The service of the tests, for threads and for asyncio, and where it is served."""

import asyncio
import os
import threading

import exam_pb2 as pb
import exam_pb2_grpc as pb_grpc
import grpc
from google.protobuf import any_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

# A daemon of the host if there is one, else one inside the process.
WHERE = {"embedded": None} if os.environ.get("TRUNKLINE_SOCKET") else {"embedded": True}


def rich_status():
    detail = any_pb2.Any()
    detail.Pack(error_details_pb2.ErrorInfo(reason="TESTED", domain="exam"))
    return status_pb2.Status(code=code_pb2.NOT_FOUND, message="nobody", details=[detail])


class Exam(pb_grpc.ExamServicer):
    def __init__(self):
        self.over = threading.Event()
        self.entered = threading.Event()

    def Echo(self, request, context):
        if request.text == "abort":
            context.abort(grpc.StatusCode.ABORTED, "as ordered")
        if request.text == "bad trailers":
            context.set_trailing_metadata((("error", "of two\nlines"),))
        if request.text == "bad abort":
            context.set_trailing_metadata((("number", 7),))
            context.abort(grpc.StatusCode.NOT_FOUND, 7)
        if request.text == "nothing":
            return None
        if request.text == "exit":
            raise SystemExit("on order")
        if request.text == "cancelled":
            context.abort(grpc.StatusCode.CANCELLED, "by the server")
        if request.text == "rich":
            context.abort_with_status(rpc_status.to_status(rich_status()))
        if request.text == "code":
            context.set_code(grpc.StatusCode.OUT_OF_RANGE)
            context.set_details("größer")
        if request.text == "raise":
            raise RuntimeError("on order")
        if request.text == "metadata":
            said = dict(context.invocation_metadata())
            context.send_initial_metadata((("begun", said["who"]), ("blob-bin", said["blob-bin"])))
            context.set_trailing_metadata((("ended", "yes"), ("end-bin", b"\x00\xff")))
        if request.text == "time":
            left = context.time_remaining()
            return pb.Text(text="none" if left is None else f"{left:.3f}")
        if request.text == "hang":
            if not context.add_callback(self.over.set):
                self.over.set()
            self.entered.set()
            self.over.wait(100)
        return request

    def Words(self, request, context):
        for word in request.text.split(" "):
            if word == "fail":
                context.abort(grpc.StatusCode.DATA_LOSS, "a word is lost")
            yield pb.Text(text=word)

    def Join(self, request_iterator, context):
        return pb.Text(text=" ".join(request.text for request in request_iterator))

    def Chat(self, request_iterator, context):
        for request in request_iterator:
            if request.text == "enough":
                return
            if request.text == "watch":
                if not context.add_callback(self.over.set):
                    self.over.set()
            yield request


class AioExam(pb_grpc.ExamServicer):
    def __init__(self, stub=None):
        self._stub = stub
        self.over = threading.Event()
        self.entered = threading.Event()

    async def ask(self, text):
        return await self._stub.Echo(pb.Text(text=text))

    async def Echo(self, request, context):
        if request.text == "abort":
            await context.abort(grpc.StatusCode.ABORTED, "as ordered")
        if request.text == "bad trailers":
            context.set_trailing_metadata((("error", "of two\nlines"),))
        if request.text == "bad abort":
            context.set_trailing_metadata((("number", 7),))
            await context.abort(grpc.StatusCode.NOT_FOUND, 7)
        if request.text == "cancelled inside":
            waited = asyncio.get_running_loop().create_future()
            waited.cancel()
            await waited
        if request.text == "headers twice":
            await context.send_initial_metadata((("begun", "yes"),))
            await context.send_initial_metadata((("begun", "yes"),))
        if request.text == "time":
            left = context.time_remaining()
            return pb.Text(text="none" if left is None else f"{left:.3f}")
        if request.text == "relay":
            # From a task of the handler's, without a limit of its own.
            call = asyncio.ensure_future(self.ask("time"))
            return await call
        if request.text == "relay abort":
            return await self.ask("abort")
        if request.text == "raise":
            raise RuntimeError("on order")
        if request.text == "metadata":
            said = dict(context.invocation_metadata())
            await context.send_initial_metadata((("begun", said["who"]), ("blob-bin", said["blob-bin"])))
            context.set_trailing_metadata((("ended", "yes"), ("end-bin", b"\x00\xff")))
        if request.text == "hang":
            self.entered.set()
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                self.over.set()
                raise
        return request

    async def Words(self, request, context):
        for word in request.text.split(" "):
            if word == "fail":
                await context.abort(grpc.StatusCode.DATA_LOSS, "a word is lost")
            yield pb.Text(text=word)

    async def Join(self, request_iterator, context):
        return pb.Text(text=" ".join([request.text async for request in request_iterator]))

    async def Chat(self, request_iterator, context):
        async for request in request_iterator:
            if request.text == "enough":
                return
            if request.text == "stall":
                await asyncio.sleep(100)
            await context.write(request)
