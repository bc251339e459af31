"""Codes and failed calls, as grpcio's users know them."""

import logging
import sys

import grpc

from ._library import EXECUTED, NOT_EXECUTED, Ending

CODES = {code.value[0]: code for code in grpc.StatusCode}


def code_of(number):
    return CODES.get(number, grpc.StatusCode.UNKNOWN)


def execution_of(ending):
    """`"executed"`, `"not executed"` (calling again is sound) or `"unknown"`."""
    return ("executed", "not executed", "unknown")[ending.execution]


def text_of(kind, ending):
    """What `str` says of a call of this class that has ended: in grpcio's form, which programs look for a status in."""
    lines = [f"<{kind.__name__} of RPC that terminated with:", f"\tstatus = {code_of(ending.code)}"]
    lines.append(f'\tdetails = "{ending.message}"')
    if ending.code:
        lines.append(f'\tdebug_error_string = "{execution_of(ending)}"')
    return "\n".join([*lines, ">"])


def words_of(error, say=str):
    """What an exception of the program's says; its type, if that fails."""
    try:
        return say(error)
    except Exception:
        return f"unprintable {type(error).__name__}"


def traceback_of(error):
    """The traceback of an error that perhaps nobody has raised."""
    try:
        raise error
    except grpc.RpcError:
        return sys.exc_info()[2]


# What a client says itself, in grpcio's words where it has some.
UNSENDABLE = Ending(grpc.StatusCode.INTERNAL.value[0], "Exception serializing request!", (), NOT_EXECUTED)
UNREADABLE = Ending(grpc.StatusCode.INTERNAL.value[0], "Exception deserializing response!", (), EXECUTED)
NO_RESPONSE = Ending(
    grpc.StatusCode.UNIMPLEMENTED.value[0], "the server ended the call without a response", (), EXECUTED
)
TOO_MANY_RESPONSES = Ending(
    grpc.StatusCode.UNIMPLEMENTED.value[0], "the server sent more than one response", (), EXECUTED
)


def serialized(library, serializer, request, failed):
    """A request as bytes; `failed` makes the error of how a call ends whose request cannot be sent."""
    try:
        message = serializer(request)
    except Exception as error:
        if library.names_fields:
            raise
        logging.getLogger(__name__).exception("Exception serializing message!")
        raise failed(UNSENDABLE) from error
    if message is None:
        raise failed(UNSENDABLE)
    return message


def invalid_metadata(error):
    """How a call ends whose metadata cannot be sent."""
    return Ending(grpc.StatusCode.INTERNAL.value[0], f"Invalid metadata: {error}", (), NOT_EXECUTED)


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
        return execution_of(self._ending)

    def initial_metadata(self):
        return self._initial_metadata

    def trailing_metadata(self):
        return self._ending.trailers

    def debug_error_string(self):
        return self.execution()

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
        return traceback_of(self)

    def add_done_callback(self, fn):
        fn(self)

    def __str__(self):
        return text_of(type(self), self._ending)

    __repr__ = __str__

    def __reduce__(self):
        return type(self), (self._ending, self._initial_metadata)
