//! Makes an authority out of a socket's path, in what a client says over a Unix socket.
//!
//! Many clients of gRPC name the path of a Unix socket as `:authority`: gRPC C core and Swift percent-encoded
//! (`run%2Fx.sock`), Java as it is (`/run/x.sock`). h2 refuses a request whose authority has a `%` or `/`, or a second
//! `:` (`/run/a:b:c.sock`), and what a server on a Unix socket is called tells nothing: the client has found it. So the
//! bytes at fault are replaced before h2 reads them, in place.
//!
//! Each is replaced by one whose Huffman code (RFC 7541, appendix B) is one bit away: the lengths of the string, of the
//! frame and of the dynamic table's entry stay what they were, however the string is encoded, so nothing has to be
//! decoded, copied or held back. A name that an encoder takes from the dynamic table is not looked at: those we know
//! take `:authority` from the static table, or spell it out.
//!
//! What is malformed is passed on: h2 refuses it, as it would have.

use super::meter::{CONTINUATION, HEAD_BYTES, HEADERS, PREFACE};

const PADDED: u8 = 0x8;
const PRIORITIZED: u8 = 0x20;
/// Stream dependency and weight (RFC 9113, section 6.2).
const PRIORITY_BYTES: usize = 5;

/// The name, and what Huffman's code makes of it.
const NAME: &[u8] = b":authority";
const NAME_CODED: &[u8] = &[0xb8, 0x3b, 0x53, 0x39, 0xec, 0x32, 0x7d, 0x7f];
/// Its index in the static table.
const NAME_INDEX: u32 = 1;
/// h2 takes four bytes after an integer's first.
const SHIFT_MAX: u32 = 21;
/// The Huffman code: how long codes are, and the first that is longer. The five longest characters of a path have 13
/// bits; what is longer is in no authority that h2 takes.
const CODE_ENDS: [(u8, u16); 8] =
    [(5, 0x0a), (6, 0x2e), (7, 0x7c), (8, 0xfe), (10, 0x3fd), (11, 0x7fd), (12, 0xffc), (13, 0x1ffe)];
const CODE_BITS_MAX: u8 = 13;
/// The codes of `:` and `[`, with their lengths.
const COLON: (u8, u16) = (7, 0x5c);
const BRACKET: (u8, u16) = (13, 0x1ffb);

/// Follows the bytes of one client.
#[derive(Debug)]
pub(super) struct UnixAuthority {
    head: [u8; HEAD_BYTES],
    head_filled: usize,
    /// Bytes that come next and are no part of a header block: the preface, a priority, another frame's payload.
    skip: usize,
    /// The length of the padding comes next, and is part of the payload.
    is_padded: bool,
    /// Bytes of the header block in this frame that are still to come.
    fragment: usize,
    /// Bytes of this frame after that.
    padding: usize,
    block: Block,
}

/// Where in a header block its reader stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    /// A representation begins (RFC 7541, section 6).
    Field,
    /// More of an integer comes.
    Integer { value: u32, shift: u32, of: Integer },
    /// A string begins.
    Text(Text),
    /// So many bytes of a string come.
    Skipped { text: Text, left: u32 },
    /// A name that may be it, as long as `rest` is what comes.
    Name { rest: &'static [u8] },
    /// An authority, as it is.
    Plain { left: u32, colons: Colons },
    /// An authority in Huffman's code, and the bits of the code that have come.
    Coded { left: u32, code: u16, bits: u8, colons: Colons },
    /// Malformed.
    Lost,
}

/// Which `:` have been in an authority. The first may be that of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Colons {
    /// Nothing has come.
    Unbegun,
    None,
    One,
    /// It began with a bracket: they are an address's of IPv6.
    OfAddress,
}

/// What an integer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Integer {
    /// A field of the tables, or their size.
    Whole,
    NameIndex,
    Length {
        text: Text,
        is_coded: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Text {
    Name,
    Value { is_authority: bool },
}

impl UnixAuthority {
    /// Reads the bytes that come next, and replaces what is at fault in them.
    pub fn handle_input(&mut self, mut bytes: &mut [u8]) {
        while !bytes.is_empty() {
            let count = if self.skip > 0 {
                take(&mut self.skip, bytes.len())
            } else if self.is_padded {
                self.take_padding(bytes[0]);
                1
            } else if self.fragment > 0 {
                let count = take(&mut self.fragment, bytes.len());
                self.block = self.block.follow(&mut bytes[..count]);
                count
            } else if self.padding > 0 {
                take(&mut self.padding, bytes.len())
            } else {
                self.take_head(bytes)
            };
            bytes = &mut bytes[count..];
        }
    }

    fn take_head(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(HEAD_BYTES - self.head_filled);
        self.head[self.head_filled..][..count].copy_from_slice(&bytes[..count]);
        self.head_filled += count;
        if self.head_filled == HEAD_BYTES {
            self.head_filled = 0;
            self.begin_frame();
        }
        count
    }

    fn begin_frame(&mut self) {
        let [a, b, c, kind, flags, ..] = self.head;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        match kind {
            HEADERS => {
                self.block = Block::Field;
                self.is_padded = flags & PADDED != 0 && length > 0;
                self.fragment = length - usize::from(self.is_padded);
                if flags & PRIORITIZED != 0 && !self.is_padded {
                    self.take_priority();
                }
            }
            CONTINUATION => self.fragment = length,
            _ => self.skip = length,
        }
    }

    fn take_padding(&mut self, length: u8) {
        self.is_padded = false;
        // What is longer than the frame is malformed, and there is no block in it.
        self.padding = usize::from(length).min(self.fragment);
        self.fragment -= self.padding;
        if self.head[4] & PRIORITIZED != 0 {
            self.take_priority();
        }
    }

    fn take_priority(&mut self) {
        self.skip = take(&mut self.fragment, PRIORITY_BYTES);
    }
}

impl Default for UnixAuthority {
    /// Awaits the preface.
    fn default() -> Self {
        Self {
            head: [0; HEAD_BYTES],
            head_filled: 0,
            skip: PREFACE.len(),
            is_padded: false,
            fragment: 0,
            padding: 0,
            block: Block::Field,
        }
    }
}

impl Block {
    fn follow(mut self, mut bytes: &mut [u8]) -> Self {
        while let [first, ..] = bytes {
            let count;
            (self, count) = match self {
                Self::Field => (Self::begin(*first), 1),
                Self::Integer { value, shift, of } => (Self::go_on(value, shift, of, *first), 1),
                Self::Text(text) => {
                    let of = Integer::Length { text, is_coded: *first & 0x80 != 0 };
                    (Self::integer(*first, 0x7f, of), 1)
                }
                Self::Skipped { text, mut left } => {
                    let count = take_text(&mut left, bytes.len());
                    (if left > 0 { Self::Skipped { text, left } } else { text.end(false) }, count)
                }
                Self::Name { rest } => match rest.strip_prefix(&[*first]) {
                    Some([]) => (Text::Name.end(true), 1),
                    Some(rest) => (Self::Name { rest }, 1),
                    // Looked at once more, and skipped.
                    None => (Self::Skipped { text: Text::Name, left: rest.len() as u32 }, 0),
                },
                Self::Plain { mut left, mut colons } => {
                    let count = take_text(&mut left, bytes.len());
                    bytes[..count].iter_mut().for_each(|byte| *byte = replaced(*byte, &mut colons));
                    (if left > 0 { Self::Plain { left, colons } } else { Self::Field }, count)
                }
                Self::Coded { left, mut code, mut bits, mut colons } => {
                    let is_sound = replace_coded(first, (&mut code, &mut bits), &mut colons);
                    let next = match left - 1 {
                        0 => Self::Field,
                        left if is_sound => Self::Coded { left, code, bits, colons },
                        left => Self::Skipped { text: Text::Value { is_authority: false }, left },
                    };
                    (next, 1)
                }
                Self::Lost => return self,
            };
            bytes = &mut bytes[count..];
        }
        self
    }

    /// By the first byte of a representation.
    fn begin(first: u8) -> Self {
        match first {
            0x80.. => Self::integer(first, 0x7f, Integer::Whole),
            0x40.. => Self::integer(first, 0x3f, Integer::NameIndex),
            0x20.. => Self::integer(first, 0x1f, Integer::Whole),
            _ => Self::integer(first, 0x0f, Integer::NameIndex),
        }
    }

    /// By the first byte of an integer, whose prefix has these bits (RFC 7541, section 5.1).
    fn integer(first: u8, prefix: u8, of: Integer) -> Self {
        match first & prefix {
            full if full == prefix => Self::Integer { value: u32::from(prefix), shift: 0, of },
            value => of.end(u32::from(value)),
        }
    }

    fn go_on(value: u32, shift: u32, of: Integer, byte: u8) -> Self {
        let value = value + (u32::from(byte & 0x7f) << shift);
        match byte {
            0..0x80 => of.end(value),
            _ if shift < SHIFT_MAX => Self::Integer { value, shift: shift + 7, of },
            _ => Self::Lost,
        }
    }
}

impl Integer {
    /// What follows once its value is known.
    fn end(self, value: u32) -> Block {
        match (self, value) {
            (Self::Whole, _) => Block::Field,
            (Self::NameIndex, 0) => Block::Text(Text::Name),
            (Self::NameIndex, index) => Block::Text(Text::Value { is_authority: index == NAME_INDEX }),
            (Self::Length { text, .. }, 0) => text.end(false),
            (Self::Length { text: Text::Value { is_authority: true }, is_coded }, left) => match is_coded {
                true => Block::Coded { left, code: 0, bits: 0, colons: Colons::Unbegun },
                false => Block::Plain { left, colons: Colons::Unbegun },
            },
            (Self::Length { text: text @ Text::Value { is_authority: false }, .. }, left) => {
                Block::Skipped { text, left }
            }
            (Self::Length { text: Text::Name, is_coded }, left) => {
                let rest = if is_coded { NAME_CODED } else { NAME };
                match rest.len() as u32 == left {
                    true => Block::Name { rest },
                    false => Block::Skipped { text: Text::Name, left },
                }
            }
        }
    }
}

impl Text {
    /// What follows it.
    fn end(self, is_authority: bool) -> Block {
        match self {
            Self::Name => Block::Text(Self::Value { is_authority }),
            Self::Value { .. } => Block::Field,
        }
    }
}

impl Colons {
    /// A character has come. `true` if it is a `:` too many.
    fn count(&mut self, is_colon: bool, is_bracket: bool) -> bool {
        let is_another = is_colon && *self == Self::One;
        *self = match *self {
            Self::Unbegun if is_bracket => Self::OfAddress,
            Self::Unbegun | Self::None if is_colon => Self::One,
            Self::Unbegun => Self::None,
            known => known,
        };
        is_another
    }
}

/// What stands in an authority for a byte of a path.
fn replaced(byte: u8, colons: &mut Colons) -> u8 {
    match byte {
        _ if colons.count(byte == b':', byte == b'[') => b'B',
        b'%' => b'.',
        b'/' => b'3',
        b' ' => b'-',
        other => other,
    }
}

/// The same for codes that end in this byte. `false` if one is in no authority.
///
/// No bit that was passed on before is changed: which of two characters a code is, its sixth bit says, and for `%` and
/// the space alike the fifth is set. (`/` becomes `3` by its sixth, `:` becomes `B` by its seventh.)
fn replace_coded(byte: &mut u8, (code, bits): (&mut u16, &mut u8), colons: &mut Colons) -> bool {
    for bit in (0..8).rev().map(|shift| 1 << shift) {
        *code = *code << 1 | u16::from(*byte & bit != 0);
        *bits += 1;
        if matches!((*bits, *code), (5, 0b0_1010) | (6, 0b01_1000)) {
            *byte |= bit;
        }
        if CODE_ENDS.iter().any(|(length, end)| length == bits && *code < *end) {
            let is = |character| (*bits, *code) == character;
            if colons.count(is(COLON), is(BRACKET)) {
                *byte |= bit;
            }
            (*code, *bits) = (0, 0);
        } else if *bits == CODE_BITS_MAX {
            return false;
        }
    }
    true
}

/// Takes at most `count` of what is left, and tells how many.
fn take(left: &mut usize, count: usize) -> usize {
    let taken = count.min(*left);
    *left -= taken;
    taken
}

fn take_text(left: &mut u32, count: usize) -> usize {
    let taken = u32::try_from(count).unwrap_or(u32::MAX).min(*left);
    *left -= taken;
    taken as usize
}

#[cfg(test)]
mod tests {
    //! Shows, beside another reader of HPACK, that an authority comes out as it should and everything else as it went
    //! in, however it is encoded and cut; and that what is malformed stays so.
    use super::*;
    use fluke_hpack::Decoder;
    use proptest::prelude::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// RFC 7541, appendix B: the characters of each length in the order of their codes, which is theirs.
    const CODED: [(u32, &[u8]); 8] = [
        (5, b"012aceiost"),
        (6, b" %-./3456789=A_bdfghlmnpru"),
        (7, b":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz"),
        (8, b"&*,;XZ"),
        (10, b"!\"()?"),
        (11, b"'+|"),
        (12, b"#>"),
        (13, b"\0$@[]~"),
    ];

    fn coded(text: &[u8]) -> Vec<u8> {
        let mut bits = Vec::new();
        for byte in text {
            let (row, at) = (0..CODED.len())
                .find_map(|row| Some((row, CODED[row].1.iter().position(|of| of == byte)?)))
                .expect("a character of a path");
            let (length, symbols) = CODED[row];
            let code = usize::from(CODE_ENDS[row].1) - symbols.len() + at;
            bits.extend((0..length).rev().map(|bit| code >> bit & 1 != 0));
        }
        bits.resize(bits.len().next_multiple_of(8), true);
        bits.chunks(8).map(|byte| byte.iter().fold(0, |byte, bit| byte << 1 | u8::from(*bit))).collect()
    }

    fn integer(out: &mut Vec<u8>, first: u8, prefix: u8, value: usize) {
        if value < usize::from(prefix) {
            return out.push(first | value as u8);
        }
        out.push(first | prefix);
        let mut rest = value - usize::from(prefix);
        while rest >= 0x80 {
            out.push(0x80 | rest as u8);
            rest >>= 7;
        }
        out.push(rest as u8);
    }

    fn text(out: &mut Vec<u8>, text: &[u8], is_coded: bool) {
        let bytes = if is_coded { coded(text) } else { text.to_vec() };
        integer(out, if is_coded { 0x80 } else { 0 }, 0x7f, bytes.len());
        out.extend(bytes);
    }

    /// A field as an encoder may write it: a literal by its name or the name's index, a field of a table, its size.
    fn field() -> impl Strategy<Value = Vec<u8>> {
        let kinds = prop::sample::select(vec![(0x40, 0x3f), (0x00, 0x0f), (0x10, 0x0f)]);
        let index = prop_oneof![3 => Just(1), 2 => Just(0), 1 => 2usize..62];
        let name = prop::sample::select(vec![":authority", ":authoritx", "user-agent", "x", ":path"]);
        let literal = (kinds, index, name, any::<[bool; 2]>(), "\\[?[a-z0-9%/ ._~&*(A-Z:@\\[\\]-]{0,200}")
            .prop_map(|((first, prefix), index, name, coded, value)| {
                let mut out = Vec::new();
                integer(&mut out, first, prefix, index);
                if index == 0 {
                    text(&mut out, name.as_bytes(), coded[0]);
                }
                text(&mut out, value.as_bytes(), coded[1]);
                out
            });
        let indexed = (1usize..64).prop_map(|index| vec![0x80 | index as u8]);
        let size = (0usize..4096).prop_map(|size| {
            let mut out = Vec::new();
            integer(&mut out, 0x20, 0x1f, size);
            out
        });
        prop_oneof![6 => literal, 2 => indexed, 1 => size]
    }

    /// A header block in two frames, with and without what may stand before and after it.
    fn frames(block: &[u8], cut: usize, flags: u8) -> Vec<u8> {
        let (first, rest) = block.split_at(cut.min(block.len()));
        let mut payload = Vec::new();
        if flags & PADDED != 0 {
            payload.push(7);
        }
        if flags & PRIORITIZED != 0 {
            payload.extend(b"%%%%%");
        }
        payload.extend(first);
        if flags & PADDED != 0 {
            payload.extend(b"\x41\x05%%%%%");
        }
        let frame = |kind, payload: &[u8]| {
            let head = [&(payload.len() as u32).to_be_bytes()[1..], &[kind, flags, 0, 0, 0, 1]].concat();
            [&head, payload].concat()
        };
        [frame(0, b"\x41\x01%"), frame(HEADERS, &payload), frame(CONTINUATION, rest)].concat()
    }

    fn blocks_of(mut bytes: &[u8], cut: usize, flags: u8, lengths: &[usize]) -> Vec<Vec<u8>> {
        let lead =
            12 + HEAD_BYTES + usize::from(flags & PADDED != 0) + if flags & PRIORITIZED != 0 { 5 } else { 0 };
        let tail = if flags & PADDED != 0 { 7 } else { 0 };
        let mut found = Vec::new();
        for length in lengths {
            let first = cut.min(*length);
            let rest = lead + first + tail + HEAD_BYTES;
            found.push([&bytes[lead..lead + first], &bytes[rest..rest + length - first]].concat());
            bytes = &bytes[rest + length - first..];
        }
        found
    }

    /// What a client said and what becomes of it, read in pieces of these lengths.
    fn rewritten(said: &[u8], cuts: &[usize]) -> Vec<u8> {
        let mut rewrite = UnixAuthority::default();
        let mut bytes = [PREFACE, said].concat();
        let mut rest = &mut bytes[..];
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (now, later) = rest.split_at_mut((*cut).min(rest.len()));
            rewrite.handle_input(now);
            rest = later;
        }
        assert_eq!(&bytes[..PREFACE.len()], PREFACE);
        bytes.split_off(PREFACE.len())
    }

    type Fields = Vec<(Vec<u8>, Vec<u8>)>;

    fn read(blocks: &[Vec<u8>]) -> Vec<Option<Fields>> {
        let mut decoder = Decoder::new();
        // The other reader panics at some of what is malformed.
        let mut decode =
            |block| catch_unwind(AssertUnwindSafe(|| decoder.decode(block).ok())).unwrap_or_default();
        blocks.iter().map(|block| decode(block)).collect()
    }

    fn replaced_in(value: &[u8]) -> Vec<u8> {
        let mut colons = Colons::Unbegun;
        value.iter().map(|byte| replaced(*byte, &mut colons)).collect()
    }

    fn as_it_should(fields: Option<Fields>) -> Option<Fields> {
        let mut fields = fields?;
        for (name, value) in &mut fields {
            if name == NAME {
                *value = replaced_in(value);
            }
        }
        Some(fields)
    }

    #[test]
    fn what_clients_say() {
        for (said, becomes) in [
            ("tmp%2Fx.sock", "tmp.2Fx.sock"),
            ("/tmp/x.sock", "3tmp3x.sock"),
            ("%2Frun%2Fa b~c.sock", ".2Frun.2Fa-b~c.sock"),
            ("localhost:50051", "localhost:50051"),
            ("[::1]:50051", "[::1]:50051"),
            ("%2Frun%2Fa:b:c::d.sock", ".2Frun.2Fa:bBcBBd.sock"),
            ("/run/a:b:c.sock", "3run3a:bBc.sock"),
        ] {
            for (index, name_coded, value_coded) in
                [(1, false, false), (1, false, true), (0, false, false), (0, true, true)]
            {
                let mut block = Vec::new();
                integer(&mut block, 0x40, 0x3f, index);
                if index == 0 {
                    text(&mut block, NAME, name_coded);
                }
                text(&mut block, said.as_bytes(), value_coded);
                // As the client refers to it from now on.
                let blocks = [block.len(), 1];
                let bytes = [frames(&block, 3, 0), frames(&[0xbe], 3, 0)].concat();
                let is = read(&blocks_of(&rewritten(&bytes, &[1]), 3, 0, &blocks));
                let field = vec![(NAME.to_vec(), becomes.as_bytes().to_vec())];
                assert_eq!(
                    is,
                    [Some(field.clone()), Some(field)],
                    "{said} {index} {name_coded} {value_coded}"
                );
                assert!(becomes.parse::<http::uri::Authority>().is_ok(), "h2 takes {becomes}");
            }
        }
    }

    #[test]
    fn other_frames_are_let_be() {
        let mut said = b"\0\0\x08\0\0\0\0\0\x01\x41\x06%2Fa/b\0\0\x04\x08\0\0\0\0\0/%/%".to_vec();
        said.extend(b"\0\0\x08\x05\x04\0\0\0\x01\x41\x06%2Fa/b");
        assert_eq!(rewritten(&said, &[1]), said);
        // Padding longer than the frame, and no room for a priority.
        for flags in [PADDED, PADDED | PRIORITIZED, PRIORITIZED] {
            let mut said = b"\0\0\x04\x01\0\0\0\0\x01\xff%/%\0\0\x04\x08\0\0\0\0\0/%/%".to_vec();
            said[4] = flags;
            assert_eq!(rewritten(&said, &[100]), said);
        }
    }

    proptest! {
        #[test]
        fn an_authority_comes_out_as_it_should_and_the_rest_as_it_was(
            blocks in prop::collection::vec(prop::collection::vec(field(), 0..6), 1..6),
            cut in 0usize..100,
            flags in prop::sample::select(vec![0, PADDED, PRIORITIZED, PADDED | PRIORITIZED]),
            cuts in prop::collection::vec(1usize..40, 1..40),
        ) {
            let blocks: Vec<_> = blocks.iter().map(|fields| fields.concat()).collect();
            let said: Vec<_> = blocks.iter().flat_map(|block| frames(block, cut, flags)).collect();
            let lengths: Vec<_> = blocks.iter().map(Vec::len).collect();
            prop_assert_eq!(&blocks_of(&said, cut, flags, &lengths), &blocks);
            let is = rewritten(&said, &cuts);
            prop_assert_eq!(&is, &rewritten(&said, &[said.len()]), "cuts do not matter");
            prop_assert_eq!(&rewritten(&is, &cuts), &is, "once is enough");
            let should: Vec<_> = read(&blocks).into_iter().map(as_it_should).collect();
            prop_assert_eq!(read(&blocks_of(&is, cut, flags, &lengths)), should);
        }

        #[test]
        fn what_is_malformed_stays_so(block in prop::collection::vec(any::<u8>(), 0..200), coded in any::<bool>()) {
            // Half of them begin with an authority that is never whole.
            let mut said = if coded { vec![0x41, 0xff, 0x20] } else { Vec::new() };
            said.extend(&block);
            let is = blocks_of(&rewritten(&frames(&said, 50, 0), &[7]), 50, 0, &[said.len()]);
            let (before, after) = (read(&[said]), read(&is));
            let (Some(before), Some(after)) = (&before[0], &after[0]) else {
                prop_assert_eq!(before[0].is_some(), after[0].is_some());
                return Ok(());
            };
            prop_assert_eq!(before.len(), after.len());
            for ((name, value), (name_after, value_after)) in before.iter().zip(after) {
                prop_assert!(name == name_after);
                prop_assert!(value == value_after || name == NAME && *value_after == replaced_in(value));
            }
        }

        #[test]
        fn any_bytes_pass(said in prop::collection::vec(any::<u8>(), 0..500), cut in 1usize..20) {
            prop_assert_eq!(rewritten(&said, &[cut]), rewritten(&said, &[said.len().max(1)]));
        }
    }
}
