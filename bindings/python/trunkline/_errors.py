"""Codes and failed calls, as grpcio's users know them."""

import grpc

CODES = {code.value[0]: code for code in grpc.StatusCode}


def code_of(number):
    return CODES.get(number, grpc.StatusCode.UNKNOWN)


class FailedCall(grpc.RpcError, grpc.Call, grpc.Future):
    """How a call failed; what `grpc.RpcError` is expected to answer, and what is known of its execution."""

    def __init__(self, ending, initial_metadata=()):
        super().__init__(ending.message)
        self._ending = ending
        self._initial_metadata = initial_metadata

    def code(self):
        return code_of(self._ending.code)

    def details(self):
        return self._ending.message

    def execution(self):
        """`"executed"`, `"not executed"` (calling again is sound) or `"unknown"`."""
        return ("executed", "not executed", "unknown")[self._ending.execution]

    def initial_metadata(self):
        return self._initial_metadata

    def trailing_metadata(self):
        return self._ending.trailers

    def debug_error_string(self):
        return str(self)

    def is_active(self):
        return False

    def time_remaining(self):
        return None

    def add_callback(self, callback):
        return False

    def cancel(self):
        return False

    def cancelled(self):
        """Whether the caller has cancelled it: then there was nobody to be told so."""
        return False

    def running(self):
        return False

    def done(self):
        return True

    def result(self, timeout=None):
        raise self

    def exception(self, timeout=None):
        return self

    def traceback(self, timeout=None):
        return self.__traceback__

    def add_done_callback(self, fn):
        fn(self)

    def __str__(self):
        return f"{self.code().name}: {self._ending.message} ({self.execution()})"

    __repr__ = __str__
