"""Shows that a program is told the same by this package as by grpcio: what it sees of both is compared line by line."""

import pprint

import parity_aio
import parity_aio_server
import parity_sync
import pytest

PROGRAMS = {"aio": parity_aio, "aio_server": parity_aio_server, "sync": parity_sync}


# grpcio's thread that watches a channel may find it closed.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("program, part", [(name, part) for name in PROGRAMS for part in PROGRAMS[name].PARTS])
def test_a_program_is_told_what_grpcio_tells_it(program, part):
    program = PROGRAMS[program]
    told = []
    for world in program.WORLDS:
        lines = []
        program.run(world, part, lambda *seen, lines=lines: lines.append(program.of(seen)))
        told.append(pprint.pformat(lines, width=110).split("\n"))
    grpcio, ours = told
    assert ours == grpcio
