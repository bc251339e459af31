"""Received messages in a forked child: the child does not inherit the memory they lie in, and finds copies there.

Whatever refers to that memory (messages, `memoryview`s, arrays of numpy) keeps the address. So the bytes of all that are
held are copied before a fork, which Python tells, and put back in the child into pages of its own at the same place.
"""

import mmap
import os
import threading
import weakref

import cffi

_c = cffi.FFI()
_c.cdef("void *mmap(void *, size_t, int, int, int, long); int munmap(void *, size_t);")
_libc = _c.dlopen(None)

_PAGE = mmap.PAGESIZE
_MAP_FIXED_NOREPLACE = 0x100000
_FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED_NOREPLACE
_FAILED = 2 ** (8 * _c.sizeof("size_t")) - 1

_held = {}  # by the message's handle: who owns its bytes, and how many there are
_copied = threading.local()  # of the thread that forks: addresses and bytes


def hold(handle, owner, count):
    """Keeps in mind bytes that a forked child is to find, too, as long as their owner lives."""
    _held[handle] = (weakref.ref(owner), count)


def forget(handle):
    _held.pop(handle, None)


def _address(pointer):
    return int(_c.cast("uintptr_t", pointer))


def _before():
    copies = []
    for reference, count in list(_held.values()):
        # Another thread may let go of it now: not while this refers to it.
        owner = reference()
        if owner is not None and count:
            copies.append((_address(owner), bytes(_c.buffer(_c.cast("char *", _address(owner)), count))))
    copies.sort(key=lambda copy: copy[0])
    _copied.copies = copies


def _after_in_parent():
    _copied.copies = []


def _after_in_child():
    copies, _copied.copies = getattr(_copied, "copies", []), []
    while copies:
        # Those that share pages are put back together.
        first = end = copies[0][0] // _PAGE * _PAGE
        together = 0
        while together < len(copies) and (not together or copies[together][0] < end):
            address, data = copies[together]
            end = max(end, -(-(address + len(data)) // _PAGE) * _PAGE)
            together += 1
        if _map(first, end - first):
            for address, data in copies[:together]:
                _c.memmove(_c.cast("char *", address), data, len(data))
        del copies[:together]


def _map(address, count):
    """Whether there are pages of this process now. Where something is, it was inherited."""
    place = _libc.mmap(_c.cast("void *", address), count, mmap.PROT_READ | mmap.PROT_WRITE, _FLAGS, -1, 0)
    found = _address(place)
    if found not in (address, _FAILED):
        # A kernel before 4.17 takes the address for a wish.
        _libc.munmap(place, count)
    return found == address


os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
