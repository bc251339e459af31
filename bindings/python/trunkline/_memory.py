"""Memory of linear messages (docs/linear.md): a received one, read where it lies, or one that is being built.

Nothing here reads beyond the bytes there are: offsets are looked at before they are used, and what they lead out of is
named in the error.
"""

import struct

HEADER_BYTES = 24
MESSAGE_BYTES_MAX = 2**31

PAIR = struct.Struct("<II")
U32 = struct.Struct("<I")
_HEADER = struct.Struct("<2sBBIIIQ")

# Elements that an array gets room for beyond the one that is added: as many as it has, within these.
_SPARE_LEAST, _SPARE_MOST = 4, 4096


class MalformedError(ValueError):
    """Bytes that are no message of the type, or that no message can be made of. The text names the place."""


class Arena:
    """The bytes of a message, from the header on: a read-only `memoryview`, or a `bytearray` that grows."""

    __slots__ = ("data", "is_received", "maps", "_rooms")

    def __init__(self, data, is_received):
        self.data = data
        self.is_received = is_received
        self.maps = {}  # of what is being built: keys to entries, by the place of a map's slot
        self._rooms = {}  # arrays with room for more, by the place of their slot: (offset, elements)

    @classmethod
    def empty(cls, block_bytes):
        return cls(bytearray(HEADER_BYTES + block_bytes), False)

    def finish(self, fingerprint):
        """The whole message, with its header."""
        if not self.is_received:
            _HEADER.pack_into(self.data, 0, b"TL", 1, 0, len(self.data), HEADER_BYTES, 0, fingerprint)
        return self.data

    # ---- reading

    def block(self, at, block_bytes, where):
        """The place of a block, once it is known to lie in the message."""
        if not at or at % 8 or at + block_bytes > len(self.data):
            raise MalformedError(f"{where}: a message at {at} is not within the {len(self.data)} bytes there are")
        return at

    def span(self, slot, element_bytes, where):
        """Offset and number of the elements of an array or a text, once they are known to lie in the message."""
        offset, count = PAIR.unpack_from(self.data, slot)
        if count and offset + count * element_bytes > len(self.data):
            what = f"{count} elements of {element_bytes} bytes at {offset}"
            raise MalformedError(f"{where}: {what} are not within the {len(self.data)} bytes there are")
        return offset, count

    # ---- building

    def zeroed(self, count, alignment):
        """The place of so many zeros at the end."""
        at = -(-len(self.data) // alignment) * alignment
        if at + count > MESSAGE_BYTES_MAX:
            raise ValueError(f"a message has at most {MESSAGE_BYTES_MAX} bytes")
        self.data.extend(bytes(at + count - len(self.data)))
        return at

    def append(self, raw, alignment=1):
        """The place of a copy of these bytes at the end."""
        if not len(raw):
            return 0
        at = self.zeroed(0, alignment)
        if at + len(raw) > MESSAGE_BYTES_MAX:
            raise ValueError(f"a message has at most {MESSAGE_BYTES_MAX} bytes")
        self.data += raw
        return at

    def place(self, slot, is_present, element_bytes, more, alignment, where):
        """The place of `more` elements behind those an array has, which it has from here on."""
        offset, count = self.span(slot, element_bytes, where) if is_present else (0, 0)
        had_offset, room = self._rooms.get(slot, (0, 0))
        if not count or had_offset != offset:
            room = count
        if count + more > room:
            spare = min(max(count, _SPARE_LEAST), _SPARE_MOST)
            wanted = count + more + spare
            if room and offset + room * element_bytes == len(self.data):
                self.zeroed((wanted - room) * element_bytes, 1)
            else:
                moved = self.zeroed(wanted * element_bytes, alignment)
                size = count * element_bytes
                self.data[moved : moved + size] = self.data[offset : offset + size]
                offset = moved
            self._rooms[slot] = (offset, wanted)
        PAIR.pack_into(self.data, slot, offset, count + more)
        return offset + count * element_bytes
