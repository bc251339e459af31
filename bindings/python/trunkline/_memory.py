"""Memory of linear messages (docs/linear.md): a received one, read where it lies, or one that is being built.

Nothing here reads beyond the bytes there are: offsets are looked at before they are used, and what they lead out of is
named in the error.
"""

import struct
import weakref

HEADER_BYTES = 24
MESSAGE_BYTES_MAX = 2**31

PAIR = struct.Struct("<II")
U32 = struct.Struct("<I")
_HEADER = struct.Struct("<2sBBIIIQ")

# Elements that an array gets room for beyond the one that is added: as many as it has, within these.
_SPARE_LEAST, _SPARE_MOST = 4, 4096
# What may be unused in a message beside as much as is in use: writing it anew is worth while then.
_UNUSED_BYTES = 4096
_NO_ROOM = (0, 0)


class MalformedError(ValueError):
    """Bytes that are no message of the type, or that no message can be made of. The text names the place."""


class Arena:
    """The bytes of a message, from the header on: a read-only `memoryview`, or a `bytearray` that grows.

    What was cleared or replaced in one that is being built is zeroed, or `has_left` says that it has to be written anew
    before its bytes leave the process. It `is_worn` when something in it is unused. One that `is_foreign` is as another
    wrote it: parts of it may overlap, and it is written anew before it is changed."""

    __slots__ = ("data", "is_received", "is_foreign", "maps", "root", "has_left", "is_worn", "moves", "_rooms", "_began")
    __slots__ += ("_owner", "_handed", "_forget")

    def __init__(self, data, is_received, root=None):
        self.data = data
        self.is_received = is_received
        self.maps = {}  # of what is being built: keys to entries, by the place of a map's slot
        self._rooms = {}  # arrays with room for more, by the place of their slot: (offset, elements)
        self.root = root  # the class of the whole message; None if nobody writes it anew
        self.is_foreign = self.has_left = self.is_worn = False
        self.moves = None  # where the blocks of another are here, while that one is written anew
        self._began = len(data)  # how many bytes were in use, when that was last known
        self._owner = self._handed = self._forget = None  # messages that refer to this

    @classmethod
    def empty(cls, root):
        return cls(bytearray(HEADER_BYTES + root.BLOCK_BYTES), False, root)

    def own(self, message):
        """Of this whole message it is. It goes along when this is written anew, as those that are handed out."""
        self._owner = weakref.ref(message)

    def hand_out(self, message):
        """A message in this one refers to this."""
        if self._handed is None:
            handed = {}
            self._forget = lambda reference: handed.pop(id(reference), None)
            self._handed = handed
        reference = weakref.ref(message, self._forget)
        self._handed[id(reference)] = reference

    def handed_out(self):
        references = list(self._handed.values()) if self._handed else []
        return [message for message in (reference() for reference in references) if message is not None]

    def owner(self):
        return None if self._owner is None else self._owner()

    def leave(self):
        """Something lies here that no field leads to any more."""
        self.has_left = self.is_worn = True

    def is_large(self):
        """Whether it is worth while to write it anew."""
        return self.root is not None and len(self.data) >= 2 * self._began + _UNUSED_BYTES

    def note_use(self):
        """All of it is in use."""
        self._began = len(self.data)

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
        had_offset, room = self._rooms.get(slot, _NO_ROOM)
        if not count:
            offset = had_offset
        elif had_offset != offset:
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
                self.data[offset : offset + size] = bytes(size)
                offset = moved
            self._rooms[slot] = (offset, wanted)
        PAIR.pack_into(self.data, slot, offset, count + more)
        return offset + count * element_bytes

    def shorten(self, slot, count, element_bytes, where):
        """An array has so many elements from here on; zeros are where the others were, and room for as many."""
        offset, had = self.span(slot, element_bytes, where)
        self.data[offset + count * element_bytes : offset + had * element_bytes] = bytes((had - count) * element_bytes)
        if had and self._rooms.get(slot, _NO_ROOM)[0] != offset:
            self._rooms[slot] = (offset, had)
        PAIR.pack_into(self.data, slot, offset if count else 0, count)

    def put(self, slot, is_present, raw, where):
        """A text has these bytes from here on. Nothing stays of those it had, and a text that is written again gets
        room for more."""
        offset, room = self._rooms.get(slot, _NO_ROOM)
        count, had = len(raw), 0
        if is_present:
            found, had = self.span(slot, 1, where)
            if had and found != offset:
                offset, room = found, had
        if count > room:
            self.data[offset : offset + had] = bytes(had)
            if not room:
                offset = self.append(raw)
            else:
                room = count + min(max(room, _SPARE_LEAST), _SPARE_MOST)
                offset = self.zeroed(room, 1)
                self.data[offset : offset + count] = raw
                self._rooms[slot] = (offset, room)
                self.is_worn = True
        elif count < had:
            self.data[offset : offset + had] = raw + bytes(had - count)
            self._rooms[slot] = (offset, room)
        else:
            self.data[offset : offset + count] = raw
        PAIR.pack_into(self.data, slot, offset if count else 0, count)

    def erase(self, slot, where):
        """Zeroes a text whose slot is about to go."""
        offset, count = self.span(slot, 1, where)
        self.data[offset : offset + count] = bytes(count)
        self.is_worn = True
