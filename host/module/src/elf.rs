//! Whether bytes are a shared object for this machine, and all of it.
//!
//! The dynamic loader maps a file as its headers say; of a file that ends early, a copy that was not finished, it maps
//! pages that are not there and the process dies. So the headers are read here first: ELF64, little endian (System V
//! ABI, "ELF Header", "Program Header"). Offsets are those of `Elf64_Ehdr` and `Elf64_Phdr`.

/// Why bytes are no shared object this process could load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElfError {
    /// It is something else.
    NotElf,
    /// Of another word size, byte order or processor.
    OtherMachine,
    /// A program or an object file.
    NotShared,
    /// It ends before its headers say so.
    Truncated,
}

const HEADER_BYTES: usize = 64;
const SEGMENT_BYTES: usize = 56;
const SECTION_BYTES: usize = 64;
/// ELFCLASS64, ELFDATA2LSB, EV_CURRENT.
const IDENT: [u8; 7] = [0x7f, b'E', b'L', b'F', 2, 1, 1];
const ET_DYN: u16 = 3;
/// EM_X86_64, EM_AARCH64, EM_RISCV.
const MACHINE: u16 = if cfg!(target_arch = "x86_64") {
    62
} else if cfg!(target_arch = "aarch64") {
    183
} else {
    243
};

/// Checks headers, segments and the table of sections, which linkers put at the end of the file.
///
/// # Errors
/// [`ElfError`].
pub fn check(bytes: &[u8]) -> Result<(), ElfError> {
    if !bytes.starts_with(&IDENT[..4]) {
        return Err(ElfError::NotElf);
    }
    if bytes.len() < HEADER_BYTES {
        return Err(ElfError::Truncated);
    }
    if !bytes.starts_with(&IDENT) || u16_at(bytes, 18)? != MACHINE {
        return Err(ElfError::OtherMachine);
    }
    let (segments_at, segments) = (u64_at(bytes, 32)?, u16_at(bytes, 56)?);
    if u16_at(bytes, 16)? != ET_DYN || u16_at(bytes, 54)? as usize != SEGMENT_BYTES || segments == 0 {
        return Err(ElfError::NotShared);
    }
    within(bytes, segments_at, u64::from(segments) * SEGMENT_BYTES as u64)?;
    for index in 0..usize::from(segments) {
        let at = usize::try_from(segments_at).map_err(|_| ElfError::Truncated)? + index * SEGMENT_BYTES;
        within(bytes, u64_at(bytes, at + 8)?, u64_at(bytes, at + 32)?)?;
    }
    let (sections_at, sections) = (u64_at(bytes, 40)?, u64::from(u16_at(bytes, 60)?));
    within(bytes, sections_at, sections * SECTION_BYTES as u64)
}

fn within(bytes: &[u8], at: u64, len: u64) -> Result<(), ElfError> {
    let end = at.checked_add(len).ok_or(ElfError::Truncated)?;
    if end <= bytes.len() as u64 { Ok(()) } else { Err(ElfError::Truncated) }
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16, ElfError> {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk());
    found.map(|number| u16::from_le_bytes(*number)).ok_or(ElfError::Truncated)
}

fn u64_at(bytes: &[u8], at: usize) -> Result<u64, ElfError> {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk());
    found.map(|number| u64::from_le_bytes(*number)).ok_or(ElfError::Truncated)
}

impl std::fmt::Display for ElfError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NotElf => "is no ELF file",
            Self::OtherMachine => "is made for another machine",
            Self::NotShared => "is no shared object",
            Self::Truncated => "ends before its headers say so",
        })
    }
}

#[cfg(test)]
mod tests {
    //! Shows that a real program passes up to what it is, that every shorter copy of it is found out, and that any
    //! bytes are judged.
    use super::*;
    use proptest::prelude::*;

    /// A position-independent program: ET_DYN, as shared objects are.
    fn real() -> Vec<u8> {
        std::fs::read(std::env::current_exe().unwrap()).unwrap()
    }

    #[test]
    fn what_is_whole_passes_and_what_is_not_does_not() {
        let whole = real();
        assert_eq!(check(&whole), Ok(()));
        for keep in [0, 3, 4, 63, 64, 200, 4096, whole.len() / 2, whole.len() - 1] {
            let expected = if keep < 4 { ElfError::NotElf } else { ElfError::Truncated };
            assert_eq!(check(&whole[..keep]), Err(expected), "{keep} bytes");
        }
        let mut other = whole[..4096].to_vec();
        other[18] = 0x28;
        assert_eq!(check(&other), Err(ElfError::OtherMachine));
        let mut object = whole[..4096].to_vec();
        object[16] = 1;
        assert_eq!(check(&object), Err(ElfError::NotShared));
        assert_eq!(check(b"#!/bin/sh\nexit 0\n"), Err(ElfError::NotElf));
    }

    proptest! {
        #[test]
        fn any_bytes_are_judged(
            noise in prop::collection::vec(any::<u8>(), 0..64),
            at in 0..64usize,
            len in 0..300usize,
        ) {
            let mut bytes = IDENT.to_vec();
            bytes.resize(len.max(7), 0);
            if len > 20 {
                bytes[16..20].copy_from_slice(&[3, 0, MACHINE as u8, 0]);
            }
            for (place, byte) in bytes.iter_mut().skip(at).zip(&noise) {
                *place = *byte;
            }
            let _ = check(&bytes);
            let _ = check(&noise);
        }
    }
}
