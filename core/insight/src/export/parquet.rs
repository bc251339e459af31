//! Apache Parquet: one file, plain and not compressed, which every reader of the format takes.
//!
//! The file is a mark, the columns of each group of rows as one page each, and a footer that says where they are, in
//! Thrift's compact protocol (`parquet.thrift` of the format names the fields by the numbers used here). Every column
//! may hold nothing.

use super::columns::{Cell, Column, ColumnKind};
use crate::fleet::{Fleet, FleetCall};

const MARK: &[u8; 4] = b"PAR1";
/// Rows of a group: some ten megabytes.
const GROUP_ROWS: usize = 64 * 1024;
/// Physical types.
const BOOLEAN: i64 = 0;
const INT64: i64 = 2;
const DOUBLE: i64 = 5;
const BYTE_ARRAY: i64 = 6;
/// What they stand for.
const UTF8: i64 = 0;
const TIMESTAMP_MICROS: i64 = 10;
const UINT_64: i64 = 14;
/// A value that may be missing.
const OPTIONAL: i64 = 1;
/// Encodings of values and of what is missing.
const PLAIN: i64 = 0;
const RLE: i64 = 3;

/// The calls as Parquet.
pub fn parquet(fleet: &Fleet) -> Vec<u8> {
    let (columns, mut out) = (Column::all(), MARK.to_vec());
    let groups: Vec<RowGroup> = fleet
        .calls
        .chunks(GROUP_ROWS)
        .map(|calls| RowGroup::write(&mut out, fleet, &columns, calls))
        .collect();
    let footer_at = out.len();
    footer(&columns, &groups, fleet.calls.len()).end_into(&mut out);
    let footer_bytes = (out.len() - footer_at) as u32;
    out.extend(footer_bytes.to_le_bytes());
    out.extend(MARK);
    out
}

/// Where a group of rows is.
struct RowGroup {
    rows: usize,
    /// Place and bytes of each column's page.
    pages: Vec<(usize, usize)>,
}

impl RowGroup {
    fn write(out: &mut Vec<u8>, fleet: &Fleet, columns: &[Column], calls: &[FleetCall]) -> Self {
        let mut pages = Vec::with_capacity(columns.len());
        for column in columns {
            let at = out.len();
            let data = page(fleet, column, calls);
            let size = data.len() as i64;
            let mut header = Thrift::default();
            let values = header.inner(|inner| {
                inner.whole(1, calls.len() as i64);
                inner.whole(2, PLAIN);
                inner.whole(3, RLE);
                inner.whole(4, RLE);
            });
            header.whole(1, 0);
            header.whole(2, size);
            header.whole(3, size);
            header.structure(5, values);
            header.end_into(out);
            out.extend(data);
            pages.push((at, out.len() - at));
        }
        Self { rows: calls.len(), pages }
    }

    fn bytes(&self) -> usize {
        self.pages.iter().map(|(_, bytes)| bytes).sum()
    }
}

/// Which values are there, and behind that the values.
fn page(fleet: &Fleet, column: &Column, calls: &[FleetCall]) -> Vec<u8> {
    let (mut there, mut values, mut flags) = (Bits::default(), Vec::new(), Bits::default());
    for call in calls {
        let cell = column.cell(fleet, call);
        there.push(cell != Cell::Nothing);
        match cell {
            Cell::Nothing => {}
            Cell::Text(text) => {
                values.extend((text.len() as u32).to_le_bytes());
                values.extend(text.as_bytes());
            }
            Cell::Whole(number) => values.extend(number.to_le_bytes()),
            Cell::Real(number) => values.extend(number.to_le_bytes()),
            Cell::Flag(flag) => flags.push(flag),
        }
    }
    // One run of bits in groups of eight.
    let mut levels = Vec::new();
    varint(&mut levels, (there.bytes.len() as u64) << 1 | 1);
    levels.extend(there.bytes);
    let mut out = (levels.len() as u32).to_le_bytes().to_vec();
    out.extend(levels);
    out.extend(values);
    out.extend(flags.bytes);
    out
}

/// Bits, lowest first.
#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    count: usize,
}

impl Bits {
    fn push(&mut self, bit: bool) {
        if self.count.is_multiple_of(8) {
            self.bytes.push(0);
        }
        if let Some(last) = self.bytes.last_mut() {
            *last |= u8::from(bit) << (self.count % 8);
        }
        self.count += 1;
    }
}

fn kinds(kind: ColumnKind) -> (i64, Option<i64>) {
    match kind {
        ColumnKind::Text => (BYTE_ARRAY, Some(UTF8)),
        ColumnKind::Whole => (INT64, Some(UINT_64)),
        ColumnKind::Time => (INT64, Some(TIMESTAMP_MICROS)),
        ColumnKind::Real => (DOUBLE, None),
        ColumnKind::Flag => (BOOLEAN, None),
    }
}

fn footer(columns: &[Column], groups: &[RowGroup], rows: usize) -> Thrift {
    let mut footer = Thrift::default();
    let mut schema = vec![footer.inner(|root| {
        root.text(4, "calls");
        root.whole(5, columns.len() as i64);
    })];
    schema.extend(columns.iter().map(|column| {
        let (physical, converted) = kinds(column.kind);
        footer.inner(|element| {
            element.whole(1, physical);
            element.whole(3, OPTIONAL);
            element.text(4, &column.name);
            if let Some(converted) = converted {
                element.whole(6, converted);
            }
        })
    }));
    let groups: Vec<Vec<u8>> = groups
        .iter()
        .map(|group| {
            let chunks: Vec<Vec<u8>> = columns
                .iter()
                .zip(&group.pages)
                .map(|(column, page)| chunk(column, *page, group.rows))
                .collect();
            footer.inner(|element| {
                element.structures(1, &chunks);
                element.long(2, group.bytes() as i64);
                element.long(3, group.rows as i64);
            })
        })
        .collect();
    footer.whole(1, 1);
    footer.structures(2, &schema);
    footer.long(3, rows as i64);
    footer.structures(4, &groups);
    footer.text(6, concat!("trunkline version ", env!("CARGO_PKG_VERSION")));
    footer
}

fn chunk(column: &Column, (at, bytes): (usize, usize), rows: usize) -> Vec<u8> {
    let (physical, _) = kinds(column.kind);
    let mut chunk = Thrift::default();
    let about = chunk.inner(|about| {
        about.whole(1, physical);
        about.wholes(2, &[PLAIN, RLE]);
        about.texts(3, &[&column.name]);
        about.whole(4, 0);
        about.long(5, rows as i64);
        about.long(6, bytes as i64);
        about.long(7, bytes as i64);
        about.long(9, at as i64);
    });
    chunk.long(2, at as i64);
    chunk.structure(3, about);
    chunk.end()
}

/// A struct in Thrift's compact protocol; fields come in the order of their numbers.
#[derive(Default)]
struct Thrift {
    bytes: Vec<u8>,
    last: u8,
}

/// Types on the wire.
const I32: u8 = 5;
const I64: u8 = 6;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

impl Thrift {
    fn whole(&mut self, field: u8, value: i64) {
        self.head(field, I32);
        self.number(value);
    }

    fn long(&mut self, field: u8, value: i64) {
        self.head(field, I64);
        self.number(value);
    }

    fn text(&mut self, field: u8, text: &str) {
        self.head(field, BINARY);
        self.binary(text);
    }

    fn texts(&mut self, field: u8, texts: &[&str]) {
        self.list(field, BINARY, texts.len());
        texts.iter().for_each(|text| self.binary(text));
    }

    fn wholes(&mut self, field: u8, values: &[i64]) {
        self.list(field, I32, values.len());
        values.iter().for_each(|value| self.number(*value));
    }

    /// A struct that was ended.
    fn structure(&mut self, field: u8, structure: Vec<u8>) {
        self.head(field, STRUCT);
        self.bytes.extend(structure);
    }

    fn structures(&mut self, field: u8, structures: &[Vec<u8>]) {
        self.list(field, STRUCT, structures.len());
        structures.iter().for_each(|one| self.bytes.extend(one));
    }

    /// Another struct, ended.
    fn inner(&self, fill: impl FnOnce(&mut Self)) -> Vec<u8> {
        let mut inner = Self::default();
        fill(&mut inner);
        inner.end()
    }

    fn end(mut self) -> Vec<u8> {
        self.bytes.push(0);
        self.bytes
    }

    fn end_into(self, out: &mut Vec<u8>) {
        out.extend(self.end());
    }

    fn head(&mut self, field: u8, kind: u8) {
        debug_assert!(field > self.last && field - self.last < 16, "fields come in order");
        self.bytes.push((field - self.last) << 4 | kind);
        self.last = field;
    }

    fn list(&mut self, field: u8, kind: u8, count: usize) {
        self.head(field, LIST);
        if count < 15 {
            self.bytes.push((count as u8) << 4 | kind);
        } else {
            self.bytes.push(0xf0 | kind);
            varint(&mut self.bytes, count as u64);
        }
    }

    fn number(&mut self, value: i64) {
        varint(&mut self.bytes, (value << 1 ^ value >> 63) as u64);
    }

    fn binary(&mut self, text: &str) {
        varint(&mut self.bytes, text.len() as u64);
        self.bytes.extend(text.as_bytes());
    }
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    //! Shows the frame of a file and what stands in its pages; pyarrow reads one in `tools/cli/tests/trees.rs`.
    use super::*;
    use crate::trees::tests::tree;

    #[test]
    fn a_file_is_pages_and_a_footer_that_says_where() {
        let fleet = tree();
        let file = parquet(&fleet);
        assert!(file.starts_with(MARK) && file.ends_with(MARK));
        let footer_bytes =
            u32::from_le_bytes(file[file.len() - 8..file.len() - 4].try_into().unwrap()) as usize;
        let footer = &file[file.len() - 8 - footer_bytes..file.len() - 8];
        for column in Column::all() {
            let name = column.name.as_bytes();
            assert!(footer.windows(name.len()).any(|window| window == name), "{}", column.name);
        }
        assert_eq!(footer.last(), Some(&0), "a struct ends");
    }

    #[test]
    fn what_nobody_told_is_missing() {
        let fleet = tree();
        let columns = Column::all();
        let of = |name: &str| {
            let column = columns.iter().find(|column| column.name == name).unwrap();
            page(&fleet, column, &fleet.calls)
        };
        // Six calls; the parent of each is there, and four have an attempt.
        assert_eq!(of("parent")[..6], [2, 0, 0, 0, 3, 0b11_1111]);
        assert_eq!(of("attempt")[..6], [2, 0, 0, 0, 3, 0b01_1011]);
        assert_eq!(of("attempt").len(), 6 + 4 * 20);
        assert_eq!(of("generated"), [2, 0, 0, 0, 3, 0b11_1111, 0]);
        assert_eq!(of("a0_ns")[6..14], 1_000_u64.to_le_bytes());
    }

    #[test]
    fn numbers_take_as_many_bytes_as_they_need() {
        let mut out = Vec::new();
        [0, 127, 128, u64::MAX].iter().for_each(|value| varint(&mut out, *value));
        assert_eq!(out.len(), 1 + 1 + 2 + 10);
        let mut thrift = Thrift::default();
        thrift.whole(1, -1);
        thrift.long(3, 64);
        assert_eq!(thrift.end(), [0x15, 1, 0x26, 0x80, 1, 0]);
    }
}
