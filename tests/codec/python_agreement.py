"""Shows that the transcoder agrees with Python's protobuf (upb) on random schemas and random bytes, unknown fields included.

Usage: python_agreement.py <transcode_filter executable> <cases> <seed>

For every case, bytes B of a message type:
  * if Python takes B, so does the transcoder, and what it makes of B means the same to Python as B;
  * so does what it makes of what Python makes of B;
  * if Python refuses B, so does the transcoder. (The reverse has one exception: upb steps over fields numbered 0 inside
    unknown groups, C++ and the transcoder do not.)
Prints the counts; exits with 1 at the first disagreement.
"""

import subprocess
import sys

from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory
from google.protobuf.unknown_fields import UnknownFieldSet


def main():
    executable, cases, seed = sys.argv[1:]
    emitted = subprocess.run([executable, "cases", cases, seed], check=True, capture_output=True, text=True)
    filter_process = subprocess.Popen([executable], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    taken = refused = 0
    for line in emitted.stdout.splitlines():
        if compare(filter_process, line):
            taken += 1
        else:
            refused += 1
    filter_process.stdin.close()
    if filter_process.wait() != 0 or taken == 0 or refused == 0:
        sys.exit("the cases did not run, or were all of one sort")
    print(f"{taken} messages mean the same to Python's protobuf both ways, {refused} are refused by both")


def compare(filter_process, line):
    """Whether the case is a message; exits if the two disagree."""
    descriptor_set, name, wire_hex = line.split(" ")
    message_class = message_classes(descriptor_set)[name]
    wire = from_hex(wire_hex)
    answer = ask(filter_process, descriptor_set, name, wire)
    try:
        expected = message_class.FromString(wire)
    except message.DecodeError as error:
        if not answer.startswith("refused"):
            disagree(line, answer, f"Python refuses: {error}")
        return False
    if answer.startswith("refused: field number 0"):
        return False
    if answer.startswith("refused"):
        disagree(line, answer, "Python takes it")
    same(expected, message_class.FromString(from_hex(answer)), line, answer)
    again = ask(filter_process, descriptor_set, name, expected.SerializePartialToString())
    same(expected, message_class.FromString(from_hex(again)), line, again)
    return True


def same(expected, got, line, answer):
    try:
        equal = meaning(expected) == meaning(got)
    except UnknownInEntry:
        return
    except UnicodeDecodeError:
        # proto2 does not verify strings, but Python cannot show one that is not UTF-8.
        equal = bytes_of(expected) == bytes_of(got)
    if not equal:
        disagree(line, answer, "it means something else to Python")


def bytes_of(value):
    return value.SerializePartialToString(deterministic=True)


class UnknownInEntry(Exception):
    """A map entry with unknown fields: upb makes the whole entry unknown, C++ drops the fields, the transcoder keeps both."""


def meaning(value):
    """What a message says, as plain data; unknown fields by number, in order."""
    for field in UnknownFieldSet(value):
        declared = value.DESCRIPTOR.fields_by_number.get(field.field_number)
        if declared is not None and is_map(declared):
            raise UnknownInEntry
    known = []
    for field, content in value.ListFields():
        if is_map(field):
            inner = field.message_type.fields_by_name["value"]
            entries = {k: meaning(v) if inner.message_type else v for k, v in content.items()}
            known.append((field.number, sorted(entries.items(), key=lambda kv: repr(kv[0]))))
        elif field.message_type and hasattr(content, "ListFields"):
            known.append((field.number, meaning(content)))
        elif field.message_type:
            known.append((field.number, [meaning(v) for v in content]))
        elif hasattr(content, "append"):
            known.append((field.number, [repr(v) for v in content]))
        else:
            known.append((field.number, repr(content)))
    return known, unknown_meaning(UnknownFieldSet(value))


def unknown_meaning(fields):
    seen = []
    for field in fields:
        data = unknown_meaning(field.data) if field.wire_type == 3 else field.data
        seen.append((field.field_number, field.wire_type, data))
    return sorted(seen, key=lambda entry: entry[0])


def is_map(field):
    return field.message_type is not None and field.message_type.GetOptions().map_entry


CLASSES = {}


def message_classes(descriptor_set):
    if descriptor_set not in CLASSES:
        CLASSES.clear()
        files = descriptor_pb2.FileDescriptorSet.FromString(from_hex(descriptor_set))
        pool = descriptor_pool.DescriptorPool()
        for file in files.file:
            pool.Add(file)
        names = [file.name for file in files.file]
        CLASSES[descriptor_set] = message_factory.GetMessageClassesForFiles(names, pool)
    return CLASSES[descriptor_set]


def ask(filter_process, descriptor_set, name, wire):
    filter_process.stdin.write(f"{descriptor_set} {name} {wire.hex() or '-'}\n")
    filter_process.stdin.flush()
    return filter_process.stdout.readline().strip()


def from_hex(text):
    return b"" if text == "-" else bytes.fromhex(text)


def disagree(line, answer, why):
    descriptor_set, name, wire = line.split(" ")
    files = descriptor_pb2.FileDescriptorSet.FromString(from_hex(descriptor_set))
    sys.exit(f"{files}\n{name} {wire}\nthe transcoder: {answer}\n{why}")


if __name__ == "__main__":
    main()
