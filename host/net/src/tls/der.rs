//! Takes DER apart (X.690): elements, one behind the other. Nothing is believed for what is read here.

/// Tag of a sequence.
pub(super) const SEQUENCE: u8 = 0x30;

/// The content of the first element and what stands behind it; `None` if it is another, or not all there.
pub(super) fn content(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, inside, behind) = element(der)?;
    (found == tag).then_some((inside, behind))
}

pub(super) fn behind(der: &[u8]) -> Option<&[u8]> {
    element(der).map(|(.., behind)| behind)
}

pub(super) fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, length], rest) = der.split_first_chunk()?;
    let (length, rest) = match usize::from(length) {
        short @ 0..=0x7f => (short, rest),
        // Four bytes of length are more than any file has.
        long @ 0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(long - 0x80)?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (inside, behind) = rest.split_at_checked(length)?;
    Some((tag, inside, behind))
}

/// The elements that stand one behind the other, whole; `None` if there is anything else among them.
pub(super) fn sequences(mut der: &[u8]) -> Option<Vec<&[u8]>> {
    let mut found = Vec::new();
    while !der.is_empty() {
        let (_, rest) = content(der, SEQUENCE)?;
        let (one, _) = der.split_at(der.len() - rest.len());
        found.push(one);
        der = rest;
    }
    Some(found)
}
