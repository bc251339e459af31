"""Shows linear messages in Python: the vectors that every language reads and writes, what is built, and hostile bytes."""

import base64
import copy
import json
import math
import os
import pickle
import random
import struct

import _linear as large
import numpy
import pytest
from vectors import v1_linear as v1
from vectors import v2_linear as v2

from trunkline import linear

_VECTORS = os.path.join(os.path.dirname(__file__), "../../../tests/data/linear/vectors.txt")
with open(_VECTORS, encoding="utf-8") as _file:
    _LINES = [line.rstrip("\n") for line in _file if not line.startswith("#")]
CASES = [line.split(" ", 10) for line in _LINES if line.startswith("case ")]
LARGE = [line.split(" ") for line in _LINES if line.startswith("large ")]


def class_of(full_name):
    module = {"vectors.v1": v1, "vectors.v2": v2}[full_name.rpartition(".")[0]]
    return getattr(module, full_name.rpartition(".")[2])


def unhex(text):
    return b"" if text == "-" else bytes.fromhex(text)


# ---- what protobuf's JSON says of a message, against what is read


def as_told(message, told):
    """Holds each member of the JSON against the field, and nothing more is there."""
    named = {camel(field.name): (field, value) for field, value in message.ListFields()}
    # A string or list without elements that is present shows in one form and not in the other.
    assert set(told) >= set(named) - {name for name, (field, _) in named.items() if field.is_repeated}, message
    for name, value in told.items():
        field = next(field for field in message._tl_fields.values() if camel(field.name) == name)
        is_told(field, getattr(message, field.attribute), value)


def camel(name):
    first, *others = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in others)


def is_told(field, value, told):
    if isinstance(field, linear.Map):
        assert {map_key(key) for key in value} == set(told)
        for key in value:
            is_told(field.value, value[key], told[map_key(key)])
    elif field.is_repeated:
        assert len(value) == len(told)
        for each, of_it in zip(value, told):
            one_is_told(each, of_it, getattr(field, "kind", None))
    else:
        one_is_told(value, told, getattr(field, "kind", None))


def map_key(key):
    return {True: "true", False: "false"}[key] if isinstance(key, bool) else str(key)


def one_is_told(value, told, kind):
    if isinstance(value, linear.Message):
        as_told(value, told)
    elif isinstance(value, (bytes, memoryview)):
        assert bytes(value) == base64.b64decode(told)
    elif kind in ("f", "d"):
        assert struct.pack("<" + kind, value) == struct.pack("<" + kind, float(told)) or math.isnan(value)
    elif isinstance(told, str) and not isinstance(value, str):
        # 64 bits, or the name of an enum's number.
        enums = (v1.Color, v2.Mood, v2.Level, v1.Choice.Nested.Kind)
        assert value == (int(told) if told.lstrip("-").isdigit() else next(e.Value(told) for e in enums if told in e.keys()))
    else:
        assert value == told


# ---- written by what users call


def written(message):
    """A message made of another by assignments."""
    out = type(message)()
    for field, value in message.ListFields():
        there = getattr(out, field.attribute)
        if isinstance(field, linear.Map):
            for key in value:
                if isinstance(field.value, linear.Child):
                    there[key].CopyFrom(value[key])
                else:
                    there[key] = value[key]
        elif isinstance(field, linear.Children):
            for each in value:
                there.add().CopyFrom(written(each))
        elif field.is_repeated:
            for each in value:
                there.append(each)
        elif isinstance(field, linear.Child):
            there.SetInParent()
            there.CopyFrom(written(value))
        else:
            setattr(out, field.attribute, value)
    return out


def has_unknown(message):
    if message.unknown_fields:
        return True
    children = [value for field, value in message.ListFields() if isinstance(field, linear.Child)]
    for field, value in message.ListFields():
        if isinstance(field, linear.Children):
            children += list(value)
        elif isinstance(field, linear.Map) and isinstance(field.value, linear.Child):
            children += list(value.values())
    return any(has_unknown(child) for child in children)


@pytest.mark.parametrize("kind", sorted({case[2] for case in CASES}))
def test_vectors_are_read_and_written(kind):
    cases = [case for case in CASES if case[2] == kind]
    assert cases
    for _, name, _, _, as_linear, _, as_protobuf, _, also, _, told in cases:
        cls, lin, wire = class_of(kind), unhex(as_linear), unhex(as_protobuf)
        read = cls.FromLinear(lin)
        assert read.ToLinear() == lin, name
        assert read.SerializePartialToString() == wire, name
        as_told(read, json.loads(told))
        merged = cls()
        merged.MergeFrom(read)
        assert merged.SerializePartialToString() == wire, name
        assert cls.FromLinear(merged.ToLinear()).SerializePartialToString() == wire, name
        for form in {wire, unhex(also) or wire}:
            parsed = cls.FromString(form)
            assert parsed.SerializePartialToString() == wire, name
        assert copy.deepcopy(read).SerializePartialToString() == wire, name
        assert pickle.loads(pickle.dumps(parsed)).SerializePartialToString() == wire, name
        if not has_unknown(read):
            again = cls.FromString(written(read).SerializePartialToString())
            assert "nan" in repr(read) or again == read, name
        for cut in (0, 23, len(lin) - 1):
            with pytest.raises(linear.MalformedError):
                cls.FromLinear(lin[:cut])


def fnv(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


@pytest.mark.parametrize("line", LARGE, ids=lambda line: line[1])
def test_large_messages_are_read_and_written(line):
    members, linear_bytes, of_linear, wire_bytes, of_wire = (int(word, 16 if len(word) == 16 else 10) for word in line[1:])
    cls = getattr(large, f"LargeData{members}")
    message = cls(**{f"m{member}": member * 7919 % 100000 + 1 for member in range(1, members + 1)})
    as_linear, wire = message.ToLinear(), message.SerializeToString()
    assert (len(as_linear), fnv(as_linear), len(wire), fnv(wire)) == (linear_bytes, of_linear, wire_bytes, of_wire)
    read = cls.FromLinear(as_linear)
    assert all(value == field.number * 7919 % 100000 + 1 for field, value in read.ListFields())
    assert len(read.ListFields()) == members


def walk(message, depth=0):
    """Everything that can be asked."""
    bytes(message.unknown_fields)
    for field, value in message.ListFields():
        if isinstance(value, linear.Message) and depth < 20:
            walk(value, depth + 1)
        elif depth < 20:
            repr(value)


def test_hostile_bytes_are_refused_or_harmless():
    dice, refused, accepted = random.Random(21), 0, 0
    for case in CASES * 6:
        cls, lin = class_of(case[2]), bytearray(unhex(case[4]))
        for _ in range(dice.randint(1, 4)):
            lin[dice.randrange(24, len(lin))] = dice.choice((0, 1, 8, 0x7F, 0xFF, dice.randrange(256)))
        lin = bytes(lin)
        try:
            cls.FromLinear(lin)
            accepted += 1
            is_good = True
        except linear.MalformedError as error:
            assert "vectors.v" in str(error), error
            refused += 1
            is_good = False
        # Without the check, too, nothing is read that is not there.
        try:
            walk(cls._tl_received(memoryview(lin)))
        except (linear.MalformedError, RecursionError):
            assert not is_good
    assert refused > 300 and accepted > 300


def test_an_error_names_the_place():
    lists = v1.Lists(strings=["one"])
    data = bytearray(lists.ToLinear())
    at = struct.unpack_from("<I", data, 24 + v1.Lists.strings._slot)[0]
    struct.pack_into("<II", data, at, 8, 10**6)
    with pytest.raises(linear.MalformedError, match=r"vectors\.v1\.Lists\.strings"):
        v1.Lists.FromLinear(bytes(data))
    with pytest.raises(linear.MalformedError, match=r"vectors\.v1\.Lists\.strings: 1000000 elements"):
        print(v1.Lists._tl_received(memoryview(bytes(data))).strings[0])
    with pytest.raises(linear.MalformedError, match=r"vectors\.v1\.Tree\.label"):
        v1.Tree.FromString(b"\x0a\x09short")


def test_defaults_and_presence():
    none = v2.Defaults()
    assert (none.answer, none.negative, none.huge, none.half) == (42, -7, 2**64 - 1, 0.5)
    assert none.endless == math.inf and none.below == -math.inf and none.yes is True and none.least == -(2**63)
    assert none.text == 'say "hi"\n??/' and none.raw == b'\0\xff"\\'
    assert (none.mood, none.first) == (v2.MOOD_GRUMPY, v2.MOOD_CALM) and not none.HasField("answer")
    none.answer = 0
    assert none.HasField("answer") and none.answer == 0
    none.ClearField("answer")
    assert not none.HasField("answer") and none.answer == 42
    with pytest.raises(ValueError, match="absence"):
        v1.Scalars().HasField("int32_value")
    assert v1.Optionals(int32_value=0).HasField("int32_value")


def test_required_fields_are_asked_for():
    message = v2.Defaults(answer=1)
    assert not message.IsInitialized() and message.FindInitializationErrors() == ["id"]
    with pytest.raises(linear.MalformedError, match="missing required fields: id"):
        message.SerializeToString()
    assert v2.Defaults.FromString(message.SerializePartialToString()) == message
    message.id = 0
    assert v2.Defaults.FromString(message.SerializeToString()).HasField("id")
    grouped = v2.Grouped(many=[{}])
    assert grouped.FindInitializationErrors() == ["many[0].b"]


def test_building():
    choice = v1.Choice()
    assert choice.WhichOneof("chosen") is None and not choice.HasField("choice") and choice.text == ""
    choice.text = "first"
    choice.choice.choice.number = 7
    assert choice.WhichOneof("chosen") == "choice" and choice.text == "" and choice.choice.choice.number == 7
    nested = choice.nested
    nested.kind = v1.Choice.Nested.KIND_LEAF
    choice.small = -1
    choice.large = 1
    assert (choice.WhichOneof("chosen"), choice.small, choice.large) == ("nested", 0, 1)
    assert v1.Choice.Nested.Kind.Name(choice.nested.kind) == "KIND_LEAF"
    choice.Clear()
    nested.depth = 5
    assert choice == v1.Choice() and nested.depth == 5

    lists = v1.Lists()
    for at in range(300):
        lists.int32s.append(at)
        lists.strings.append("x" * at)
        lists.scalars.add(int32_value=at, string_value=str(at))
        lists.colors.append(v1.COLOR_BELOW)
        lists.bools.append(at % 3 == 0)
    lists.scalars[7].string_value = "a longer string than before"
    lists.int32s[8], lists.strings[9] = -8, "nine"
    lists.doubles.extend(numpy.array([1.5, 2.5]))
    lists.fixed64s[:] = range(3)
    lists.byte_strings.extend([b"a", b"b"])
    del lists.byte_strings[0]
    lists.byte_strings.insert(0, b"c")
    back = v1.Lists.FromLinear(lists.ToLinear())
    assert back == lists and v1.Lists.FromString(lists.SerializeToString()) == lists
    assert [-8 if at == 8 else at for at in range(300)] == list(back.int32s) == back.int32s.tolist()
    assert back.strings == ["nine" if at == 9 else "x" * at for at in range(300)]
    assert back.scalars[7].string_value == "a longer string than before" and back.scalars[-1].int32_value == 299
    assert (back.doubles.tolist(), back.fixed64s.tolist(), list(back.byte_strings)) == ([1.5, 2.5], [0, 1, 2], [b"c", b"b"])

    maps = v1.Maps(strings={"a": "b"})
    maps.strings["a"] = "c"
    maps.numbers[-1] = -(2**63)
    maps.trees["t"].left.label = "leaf"
    assert (dict(maps.strings), maps.numbers[-1], maps.trees["t"].left.label) == ({"a": "c"}, -(2**63), "leaf")
    with pytest.raises(KeyError):
        maps.strings["b"]
    for number in range(50):
        maps.doubles[number] = number / 2
    del maps.doubles[7]
    assert 7 not in maps.doubles and len(maps.doubles) == 49
    assert v1.Maps.FromString(maps.SerializeToString()) == maps

    tree = v1.Tree(left={"label": "left"})
    tree.right.CopyFrom(tree.left)
    part = copy.deepcopy(tree.right)
    tree.right.label = "right"
    tree.more.append(tree)
    assert (part.label, tree.left.label, tree.right.label) == ("left", "left", "right")
    assert tree.more[0].right.label == "right" and not tree.more[0].more


def test_names():
    names = v1.Names(def_=2, has_self=4, self=5, type=6, Clear_=3, **{"class": 1})
    assert (names.class_, getattr(names, "class"), names.Clear_, getattr(names, "def")) == (1, 1, 3, 2)
    setattr(names, "class", 9)
    names.Clear()
    assert names == v1.Names()
    with pytest.raises(AttributeError):
        names.clas = 1
    with pytest.raises(ValueError, match="no field"):
        v1.Names(clas=1)


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("int32_value", 2**31, ValueError),
        ("uint32_value", -1, ValueError),
        ("int32_value", 1.5, TypeError),
        ("int32_value", "1", TypeError),
        ("bool_value", "yes", TypeError),
        ("string_value", 1, TypeError),
        ("bytes_value", "text", TypeError),
        ("double_value", None, TypeError),
    ],
)
def test_values_of_another_type_are_refused(name, value, error):
    scalars = v1.Scalars()
    with pytest.raises(error, match=f"vectors.v1.Scalars.{name}"):
        setattr(scalars, name, value)
    assert scalars == v1.Scalars()


def test_numbers_are_read_where_they_lie():
    built = v1.Lists(doubles=[0.5, 1.5], uint64s=[2**64 - 1], floats=[1.0], bools=[True, False], colors=[-1])
    view = v1.Lists.FromLinear(built.ToLinear())
    array = numpy.asarray(view.doubles)
    assert (array.dtype, array.tolist(), array.flags.writeable) == (numpy.float64, [0.5, 1.5], False)
    assert numpy.shares_memory(array, numpy.frombuffer(view._tl_arena.data, "u1"))
    for name, dtype in (("uint64s", "u8"), ("floats", "f4"), ("bools", "?"), ("colors", "i4"), ("int32s", "i4")):
        found = numpy.asarray(getattr(view, name))
        assert found.dtype == numpy.dtype(dtype) and found.tolist() == list(getattr(built, name))
    with pytest.raises(AttributeError, match="not assigned"):
        view.doubles = array
    with pytest.raises(TypeError, match="read-only"):
        view.doubles[0] = 1.0
    with pytest.raises(TypeError, match="cannot be changed"):
        view.strings.append("x")
    with pytest.raises(TypeError, match="cannot be changed"):
        view.scalars.add()
    # Of memory that may change a copy is checked and read.
    changing = bytearray(built.ToLinear())
    view = v1.Lists.FromLinear(changing)
    changing[:] = bytes(len(changing))
    assert view == built


# ---- what was cleared or replaced

_MARK = "a password that is long enough"
_MARKED_NUMBER = int.from_bytes(b"MARKED11", "little")


def _cleared(message, name):
    message.ClearField(name)
    return message


def _assigned(message, **fields):
    for name, value in fields.items():
        setattr(message, name, value)
    return message


def _with(message, change):
    change(message)
    return message


def _set_item(values, key, value):
    values[key] = value


def _del_item(values, key):
    del values[key]


_FORGOTTEN = {
    "a text, cleared": lambda: _cleared(v1.Scalars(string_value=_MARK), "string_value"),
    "a text, emptied": lambda: _assigned(v1.Scalars(string_value=_MARK), string_value=""),
    "a longer text": lambda: _assigned(v1.Scalars(string_value=_MARK), string_value="x" * 100),
    "a shorter text": lambda: _assigned(v1.Scalars(string_value=_MARK), string_value="x"),
    "bytes": lambda: _assigned(v1.Scalars(bytes_value=_MARK.encode()), bytes_value=b"x" * 100),
    "a number": lambda: _cleared(v1.Optionals(uint64_value=_MARKED_NUMBER), "uint64_value"),
    "a message": lambda: _cleared(v1.Optionals(scalars={"string_value": _MARK}), "scalars"),
    "what is in a message": lambda: _with(v1.Tree(left={"label": _MARK}), lambda tree: tree.left.Clear()),
    "a message, copied over": lambda: _with(
        v1.Tree(left={"left": {"label": _MARK}}), lambda tree: tree.left.CopyFrom(v1.Tree(label="x"))
    ),
    "texts, cleared": lambda: _with(v1.Lists(strings=[_MARK]), lambda lists: lists.strings.clear()),
    "texts, cleared by name": lambda: _cleared(v1.Lists(strings=[_MARK]), "strings"),
    "a text of two": lambda: _with(v1.Lists(strings=["a", _MARK]), lambda lists: lists.strings.pop()),
    "a text of two, replaced": lambda: _with(v1.Lists(strings=[_MARK, "a"]), lambda lists: _set_item(lists.strings, 0, "x")),
    "texts, replaced": lambda: _with(v1.Lists(strings=[_MARK]), lambda lists: _set_item(lists.strings, slice(None), ["x"])),
    "numbers": lambda: _with(v1.Lists(uint64s=[_MARKED_NUMBER] * 3), lambda lists: lists.uint64s.clear()),
    "a number of two": lambda: _with(v1.Lists(uint64s=[1, _MARKED_NUMBER]), lambda lists: lists.uint64s.pop()),
    "a number that was moved": lambda: _with(
        v1.Lists(uint64s=[_MARKED_NUMBER], strings=["x"]),
        lambda lists: (lists.uint64s.extend([1] * 100), _set_item(lists.uint64s, 0, 1)),
    ),
    "messages": lambda: _with(v1.Lists(scalars=[{"string_value": _MARK}]), lambda lists: lists.scalars.clear()),
    "a message of two": lambda: _with(
        v1.Lists(scalars=[{"string_value": _MARK}, {"int32_value": 1}]), lambda lists: _del_item(lists.scalars, 0)
    ),
    "a value of a map": lambda: _with(v1.Maps(strings={"a": _MARK}), lambda maps: _set_item(maps.strings, "a", "x")),
    "an entry": lambda: _with(v1.Maps(strings={"a": _MARK}), lambda maps: _del_item(maps.strings, "a")),
    "a key": lambda: _with(v1.Maps(strings={"a": "b", _MARK: "x"}), lambda maps: _del_item(maps.strings, _MARK)),
    "a map": lambda: _with(v1.Maps(trees={"a": {"label": _MARK}}), lambda maps: maps.trees.clear()),
    "a oneof's text by a number": lambda: _assigned(v1.Choice(text=_MARK), number=1),
    "a oneof's text by bytes": lambda: _assigned(v1.Choice(text=_MARK), blob=b"x"),
    "a oneof's message": lambda: _assigned(v1.Choice(choice={"text": _MARK}), flag=True),
    "a oneof's text by a message": lambda: _with(v1.Choice(text=_MARK), lambda choice: choice.nested.SetInParent()),
    "a oneof": lambda: _cleared(v1.Choice(text=_MARK), "chosen"),
    "what was received": lambda: _cleared(
        copy.deepcopy(v1.Scalars.FromLinear(v1.Scalars(string_value=_MARK).ToLinear())), "string_value"
    ),
    "what another has left": lambda: _assigned(_of_another_writer(), int32_value=1),
}


def _of_another_writer():
    """A message of whom clears no more than the bit."""
    of_bit = bytearray(v1.Scalars(string_value=_MARK).ToLinear())
    of_bit[24 + v1.Scalars.string_value._byte] &= ~v1.Scalars.string_value._mask & 0xFF
    return copy.deepcopy(v1.Scalars.FromLinear(bytes(of_bit)))


@pytest.mark.parametrize("what", _FORGOTTEN)
def test_nothing_of_what_was_cleared_or_replaced_leaves_the_process(what):
    message = _FORGOTTEN[what]()
    copied, inner = type(message)(), pickle.loads(pickle.dumps(message))
    copied.CopyFrom(message)
    for raw in (
        bytes(copied._tl_arena.data),
        bytes(type(message)._tl_sent(copied)),
        copy.deepcopy(message).ToLinear(),
        inner.ToLinear(),
        bytes(type(message)._tl_sent(message)),
    ):
        assert _MARK.encode() not in raw and b"MARKED11" not in raw
        assert type(message).FromLinear(raw) == message == copied == inner


def _rounds_of(message, part):
    """What can be done again and again, by whom a message is used for long."""
    lists, maps, choice, tree = message

    def text(length):
        tree.label = "x" * length

    def held(length):
        part.label = "x" * length

    def entry(length):
        maps.strings["a"] = "x" * length
        del maps.strings["a"]

    def value(length):
        maps.strings["b"] = "x" * length

    def numbers(length):
        lists.doubles.extend([1.5] * length)
        lists.doubles.clear()

    def texts(length):
        lists.strings.extend(["x" * length] * 3)
        lists.strings[1] = "y" * length
        lists.strings.clear()

    def messages(length):
        lists.scalars.add(string_value="x" * length)
        lists.scalars[0].int32_value = length
        del lists.scalars[0]

    def cleared(length):
        tree.right.label = "x" * length
        tree.ClearField("right")

    def oneof(length):
        choice.choice.text = "x" * length
        choice.text = "x" * length

    return text, held, entry, value, numbers, texts, messages, cleared, oneof


def test_a_message_that_is_used_again_and_again_does_not_grow():
    messages = v1.Lists(), v1.Maps(), v1.Choice(), v1.Tree()
    part = messages[3].left
    part.SetInParent()
    for change in _rounds_of(messages, part):
        for number in range(10_000):
            change(9 + number % 2)
        for message in messages:
            assert len(message._tl_arena.data) < 16_384, change
    assert (part.label, messages[3].left.label) == ("x" * 10, "x" * 10)


class _Node:
    """What a `Tree` should be."""

    def __init__(self):
        self.label, self.left, self.right, self.more = "", None, None, []

    def is_of(self, tree):
        pairs = [(node, getattr(tree, name)) for name, node in (("left", self.left), ("right", self.right)) if node]
        assert tree.label == self.label and len(tree.more) == len(self.more)
        assert [tree.HasField(name) for name in ("left", "right")] == [node is not None for node in (self.left, self.right)]
        for node, child in pairs + list(zip(self.more, tree.more)):
            node.is_of(child)


def test_messages_that_were_handed_out_go_along_when_it_is_written_anew():
    chance, written = random.Random(7), 0
    root, tree = _Node(), v1.Tree()
    held = [(root, tree)]
    for _ in range(20_000):
        node, part = chance.choice(held)
        what = chance.randrange(9)
        name = chance.choice(("left", "right"))
        if what < 3:
            node.label = part.label = "x" * chance.randrange(40)
        elif what == 3:
            getattr(part, name).SetInParent()
            setattr(node, name, getattr(node, name) or _Node())
            held.append((getattr(node, name), getattr(part, name)))
        elif what == 4:
            node.more.append(_Node())
            held.append((node.more[-1], part.more.add()))
        elif what == 5 and node.more:
            at = chance.randrange(len(node.more))
            del node.more[at], part.more[at]
        elif what == 6:
            setattr(node, name, None)
            part.ClearField(name)
        elif what == 7:
            node.more = []
            part.more.clear()
        else:
            before = tree._tl_arena
            root.is_of(v1.Tree.FromLinear(tree.ToLinear()))
            written += tree._tl_arena is not before
        if len(held) > 30:
            # Some are no part of it any more, and stay what they were.
            held = held[:1] + chance.sample(held[1:], 10)
        if chance.randrange(20) == 0:
            for each, other in held:
                each.is_of(other)
    assert written > 100
