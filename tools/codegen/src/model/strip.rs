//! Descriptor sets cut to size on their wire bytes.
//!
//! The typed descriptor drops what it does not know (custom options, the features of editions), so a set that is to be
//! embedded is cut from the original bytes and never decoded and encoded again.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message as _;
use prost::encoding::{
    DecodeContext, WireType, decode_key, decode_varint, encode_key, encode_varint, skip_field,
};
use prost_types::{FileDescriptorProto, FileDescriptorSet};

use crate::CodegenError;

/// Field of `FileDescriptorSet`.
const FILE: u32 = 1;
/// Field of `FileDescriptorProto`: positions and comments, the largest part of a file and of no use at run time.
const SOURCE_CODE_INFO: u32 = 9;

/// The files of a descriptor set, each with its bytes.
pub(super) struct Files {
    order: Vec<String>,
    by_name: BTreeMap<String, File>,
}

struct File {
    wire: Vec<u8>,
    imports: Vec<String>,
}

impl Files {
    /// Splits an encoded `FileDescriptorSet`, which also comes back decoded.
    pub(super) fn split(set: &[u8]) -> Result<(Self, Vec<FileDescriptorProto>), CodegenError> {
        let decoded = FileDescriptorSet::decode(set)?.file;
        let mut files = Self { order: Vec::new(), by_name: BTreeMap::new() };
        let mut each = decoded.iter();
        for (number, wire) in fields(set)? {
            if let (FILE, Wire::Bytes(wire)) = (number, wire)
                && let Some(file) = each.next()
            {
                files.order.push(file.name().to_owned());
                let file_bytes = File { wire: stripped(wire)?, imports: file.dependency.clone() };
                files.by_name.insert(file.name().to_owned(), file_bytes);
            }
        }
        Ok((files, decoded))
    }

    /// The encoded set of `roots` and everything they import, in the original order (imports first).
    pub(super) fn closure(&self, roots: &[String]) -> Vec<u8> {
        let mut wanted = BTreeSet::new();
        let mut open: Vec<&String> = roots.iter().collect();
        while let Some(name) = open.pop() {
            if wanted.insert(name)
                && let Some(file) = self.by_name.get(name)
            {
                open.extend(&file.imports);
            }
        }
        let mut set = Vec::new();
        for name in self.order.iter().filter(|name| wanted.contains(name)) {
            put_bytes(FILE, &self.by_name[name].wire, &mut set);
        }
        set
    }
}

/// A field's value on the wire.
enum Wire<'a> {
    Bytes(&'a [u8]),
    /// Everything else, key included.
    Other(&'a [u8]),
}

/// The fields of a message, undecoded.
fn fields(mut wire: &[u8]) -> Result<Vec<(u32, Wire<'_>)>, CodegenError> {
    let mut fields = Vec::new();
    while !wire.is_empty() {
        let start = wire;
        let (number, wire_type) = decode_key(&mut wire)?;
        if wire_type == WireType::LengthDelimited {
            let len = usize::try_from(decode_varint(&mut wire)?).unwrap_or(usize::MAX);
            let (bytes, rest) = wire.split_at_checked(len).ok_or(CodegenError::Truncated)?;
            fields.push((number, Wire::Bytes(bytes)));
            wire = rest;
        } else {
            skip_field(wire_type, number, &mut wire, DecodeContext::default())?;
            fields.push((number, Wire::Other(&start[..start.len() - wire.len()])));
        }
    }
    Ok(fields)
}

/// A file without its source positions.
fn stripped(file: &[u8]) -> Result<Vec<u8>, CodegenError> {
    let mut out = Vec::with_capacity(file.len());
    for (number, wire) in fields(file)? {
        match wire {
            Wire::Bytes(_) if number == SOURCE_CODE_INFO => {}
            Wire::Bytes(bytes) => put_bytes(number, bytes, &mut out),
            Wire::Other(raw) => out.extend_from_slice(raw),
        }
    }
    Ok(out)
}

fn put_bytes(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    encode_key(number, WireType::LengthDelimited, out);
    encode_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    //! Shows that a closure holds the imports, drops positions and keeps what the typed descriptor does not know.
    use super::*;

    fn file(name: &str, imports: &[&str]) -> Vec<u8> {
        let mut wire = FileDescriptorProto {
            name: Some(name.into()),
            dependency: imports.iter().map(|&i| i.into()).collect(),
            source_code_info: Some(Default::default()),
            ..Default::default()
        }
        .encode_to_vec();
        put_bytes(1000, b"custom", &mut wire);
        wire
    }

    #[test]
    fn closure_follows_imports_and_keeps_unknown_fields() {
        let mut set = Vec::new();
        for wire in [file("a", &[]), file("b", &["a"]), file("c", &[]), file("d", &["b"])] {
            put_bytes(FILE, &wire, &mut set);
        }
        let (files, _) = Files::split(&set).unwrap();
        let closure = files.closure(&["d".to_owned()]);
        let decoded = FileDescriptorSet::decode(&closure[..]).unwrap().file;
        assert_eq!(decoded.iter().map(|f| f.name()).collect::<Vec<_>>(), ["a", "b", "d"]);
        assert!(decoded.iter().all(|f| f.source_code_info.is_none()));
        assert_eq!(closure.windows(6).filter(|w| w == b"custom").count(), 3);
    }

    #[test]
    fn cut_off_sets_are_errors() {
        let mut set = Vec::new();
        put_bytes(FILE, &file("a", &[]), &mut set);
        for len in 1..set.len() {
            assert!(Files::split(&set[..len]).is_err(), "{len}");
        }
    }
}
