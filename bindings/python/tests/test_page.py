"""Runs the code of docs/python.md, block by block, as a reader would in one session."""

import os
import re
from concurrent import futures

import grpc
import numpy
import pytest

import trunkline
import trunkline.aio

_PAGE = os.path.join(os.path.dirname(__file__), "../../../docs/python.md")


@pytest.mark.skipif(not os.environ.get("TRUNKLINE_SOCKET"), reason="there is no daemon of the host")
def test_the_code_of_the_page_runs():
    with open(_PAGE, encoding="utf-8") as page:
        text = page.read()
    blocks = list(re.finditer(r"^```python\n(.*?)^```", text, re.S | re.M))
    assert len(blocks) >= 4
    session = {"trunkline": trunkline, "futures": futures, "grpc": grpc, "numpy": numpy, "__name__": "page"}
    for block in blocks:
        line = text.count("\n", 0, block.start(1))
        exec(compile("\n" * line + block.group(1), _PAGE, "exec"), session)
    assert session["server"].stop(5).wait(60)
    with pytest.raises(grpc.RpcError):
        session["stub"].Add(session["shop"].Basket())
