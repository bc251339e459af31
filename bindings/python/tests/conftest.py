"""Stubs made by grpcio's plugin, unmodified, those of `protoc-gen-trunkline`, and a watchdog."""

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

# What protoc-gen-trunkline made of tests/data/linear and of the page; the system tests say where.
_MODULES = os.environ.get("TRUNKLINE_TEST_MODULES")
collect_ignore = [] if _MODULES else ["test_linear.py", "test_linear_calls.py", "test_page.py"]
if _MODULES:
    sys.path.insert(0, _MODULES)
# Where the daemon at TRUNKLINE_SOCKET takes calls of gRPC.
if "TRUNKLINE_TEST_PORT" not in os.environ:
    collect_ignore += ["test_port.py", "test_compression.py"]


@pytest.fixture(autouse=True)
def watchdog():
    faulthandler.dump_traceback_later(WATCHDOG_S, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
