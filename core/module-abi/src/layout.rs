//! Where every member lies, held at compile time. docs/modules.md has the same numbers for people.

use crate::{
    Answer, Call, Config, Created, End, Field, Head, MetadataPair, Pair, Sink, Slice, State, Table, Value,
    Words,
};
use std::mem::{offset_of, size_of};

const _: () = {
    assert!(size_of::<usize>() == 8, "the ABI is one of 64-bit machines");
    assert!(size_of::<Slice>() == 16 && offset_of!(Slice, bytes) == 8);
    assert!(size_of::<Words>() == 16 && offset_of!(Words, capacity) == 8 && offset_of!(Words, bytes) == 12);
    assert!(size_of::<Value>() == 32 && offset_of!(Value, bits) == 8 && offset_of!(Value, text) == 16);
    assert!(size_of::<Pair>() == 48 && offset_of!(Pair, value) == 16);
    assert!(size_of::<Config>() == 32 && offset_of!(Config, pairs) == 8 && offset_of!(Config, policy) == 16);
    assert!(size_of::<Field>() == 24 && offset_of!(Field, kind) == 16 && offset_of!(Field, flags) == 20);
    assert!(size_of::<Created>() == 32 && offset_of!(Created, instance) == 8);
    assert!(offset_of!(Created, fields) == 16 && offset_of!(Created, fields_count) == 24);
    assert!(size_of::<MetadataPair>() == 32 && offset_of!(MetadataPair, value) == 16);
    assert!(size_of::<Call>() == 128 && offset_of!(Call, now_ns) == 24 && offset_of!(Call, path) == 48);
    assert!(offset_of!(Call, metadata) == 112 && offset_of!(Call, values) == 120);
    assert!(
        size_of::<Answer>() == 56 && offset_of!(Answer, token) == 16 && offset_of!(Answer, message) == 24
    );
    assert!(offset_of!(Answer, context) == 40 && offset_of!(Answer, add_metadata) == 48);
    assert!(size_of::<End>() == 32 && offset_of!(End, now_ns) == 8 && offset_of!(End, token) == 24);
    assert!(size_of::<Sink>() == 24 && offset_of!(Sink, context) == 8 && offset_of!(Sink, write) == 16);
    assert!(size_of::<State>() == 24 && offset_of!(State, format) == 4 && offset_of!(State, bytes) == 8);
    assert!(size_of::<Head>() == 16 && offset_of!(Head, abi_version) == 8);
    assert!(size_of::<Table>() == 104 && offset_of!(Table, name) == 16 && offset_of!(Table, version) == 32);
    assert!(offset_of!(Table, state_format) == 48 && offset_of!(Table, create) == 56);
    assert!(offset_of!(Table, decide) == 72 && offset_of!(Table, import_state) == 96);
};
