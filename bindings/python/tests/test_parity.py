"""Shows that a program is told the same by this package as by grpcio: what it sees of both is compared line by line."""

import pprint

import parity_aio
import pytest

PROGRAMS = {"aio": parity_aio}


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
