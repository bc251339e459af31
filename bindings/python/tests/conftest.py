"""Stubs made by grpcio's plugin, unmodified, and a watchdog."""

import faulthandler
import importlib
import os
import sys
import tempfile

import pytest

_HERE = os.path.dirname(__file__)
# What hangs is told, with every thread's stack, and ends the run.
WATCHDOG_S = 120


def _generate():
    from grpc_tools import protoc

    out = tempfile.mkdtemp(prefix="pyexam")
    source = ["grpc_tools.protoc", f"-I{_HERE}", f"--python_out={out}", f"--grpc_python_out={out}"]
    assert protoc.main(source + [os.path.join(_HERE, "exam.proto")]) == 0
    sys.path.insert(0, out)
    importlib.invalidate_caches()


_generate()


@pytest.fixture(autouse=True)
def watchdog():
    faulthandler.dump_traceback_later(WATCHDOG_S, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
