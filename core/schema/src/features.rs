//! proto2, proto3 and editions, reduced to one set of facts.
//!
//! Features are inherited: edition defaults, then file, message (each enclosing one), oneof, field. Sources:
//! protobuf's "Feature Settings for Editions" and `descriptor.proto` (`FeatureSet`, `Edition`).

use crate::wire::{Fields, Malformed};

/// `Edition`; the first two are what some tools add to files that have a `syntax`.
const EDITION_PROTO2: i32 = 998;
const EDITION_PROTO3: i32 = 999;
const EDITION_2023: i32 = 1000;
/// The newest whose defaults are known here, 2024: it changed none that this room reads.
const EDITION_NEWEST: i32 = 1001;

/// `FeatureSet.field_presence`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    Explicit,
    Implicit,
    Required,
}

/// Resolved features of one declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Features {
    pub(crate) presence: Presence,
    pub(crate) closed_enums: bool,
    pub(crate) packed: bool,
    pub(crate) utf8: bool,
    pub(crate) delimited: bool,
}

impl Features {
    pub(crate) const PROTO2: Self = Self {
        presence: Presence::Explicit,
        closed_enums: true,
        packed: false,
        utf8: false,
        delimited: false,
    };
    pub(crate) const PROTO3: Self = Self {
        presence: Presence::Implicit,
        closed_enums: false,
        packed: true,
        utf8: true,
        delimited: false,
    };
    const EDITIONS: Self = Self { presence: Presence::Explicit, ..Self::PROTO3 };

    /// The defaults of a file's language, by its `syntax` and `edition`.
    pub(crate) fn of_language(syntax: &str, edition: i32) -> Result<Self, &'static str> {
        match (syntax, edition) {
            ("" | "proto2", 0 | EDITION_PROTO2) => Ok(Self::PROTO2),
            ("proto3", 0 | EDITION_PROTO3) => Ok(Self::PROTO3),
            ("" | "editions", EDITION_2023..=EDITION_NEWEST) => Ok(Self::EDITIONS),
            _ => Err("a syntax or edition this version does not know"),
        }
    }

    /// These features with a declaration's own settings on top.
    pub(crate) fn with(self, own: FeatureSettings) -> Self {
        Self {
            presence: own.presence.unwrap_or(self.presence),
            closed_enums: own.closed_enums.unwrap_or(self.closed_enums),
            packed: own.packed.unwrap_or(self.packed),
            utf8: own.utf8.unwrap_or(self.utf8),
            delimited: own.delimited.unwrap_or(self.delimited),
        }
    }
}

/// What one declaration says itself; `None` inherits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FeatureSettings {
    presence: Option<Presence>,
    closed_enums: Option<bool>,
    packed: Option<bool>,
    utf8: Option<bool>,
    delimited: Option<bool>,
}

impl FeatureSettings {
    /// Reads an encoded `FeatureSet` on top of what is there. Values not known here inherit.
    pub(crate) fn merge(&mut self, feature_set: &[u8]) -> Result<(), Malformed> {
        for field in Fields::new(feature_set) {
            match field? {
                (1, value) => self.presence = presence(value.int32()?).or(self.presence),
                (2, value) => self.closed_enums = either(value.int32()?, 2, 1).or(self.closed_enums),
                (3, value) => self.packed = either(value.int32()?, 1, 2).or(self.packed),
                (4, value) => self.utf8 = either(value.int32()?, 2, 3).or(self.utf8),
                (5, value) => self.delimited = either(value.int32()?, 2, 1).or(self.delimited),
                _ => {}
            }
        }
        Ok(())
    }
}

fn presence(value: i32) -> Option<Presence> {
    match value {
        1 => Some(Presence::Explicit),
        2 => Some(Presence::Implicit),
        3 => Some(Presence::Required),
        _ => None,
    }
}

fn either(value: i32, when_true: i32, when_false: i32) -> Option<bool> {
    match value {
        v if v == when_true => Some(true),
        v if v == when_false => Some(false),
        _ => None,
    }
}
