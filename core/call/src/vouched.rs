//! What a host's daemon says about who makes a call there, for the daemon of another host.
//!
//! It is as true as the daemon that says it is trusted: whoever hears it has to know first whose word it is.

use std::fmt;

/// Who makes a call, by the word of the daemon of its host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct VouchedCaller {
    /// What that daemon knows it by: `uid:1000` for a process of its host, the identity in the certificate for a gRPC
    /// client of its gateway; empty if nothing was proven there.
    pub identity: Box<str>,
    /// The name the application has given itself.
    pub name: Box<str>,
    /// The program of its process, as the kernel names it; empty if the daemon may not look.
    pub program: Box<str>,
    /// Full names of services it serves on its host; not more than [`VouchedCaller::SERVICES_MAX`] of them.
    pub services: Vec<Box<str>>,
}

impl VouchedCaller {
    /// Longest identity, name, and name of a service, in bytes: what a SPIFFE id, a file's name and a service's have.
    pub const NAME_BYTES_MAX: usize = 255;
    /// Longest path of a program.
    pub const PROGRAM_BYTES_MAX: usize = 1024;
    /// Services that are named. One that serves more is known by the first of them, in the order of their names.
    pub const SERVICES_MAX: usize = 16;

    /// The user it runs as, if it is a process.
    pub fn uid(&self) -> Option<u32> {
        self.identity.strip_prefix("uid:")?.parse().ok()
    }

    /// The same, cut to what may be said: a name that is too long is left out, because its beginning may be another's
    /// name, and so is one with control characters.
    #[must_use]
    pub fn within_bounds(mut self) -> Self {
        let fits = |text: &str, bytes_max| text.len() <= bytes_max && !text.contains(char::is_control);
        let cut = |text: &mut Box<str>, bytes_max| {
            if !fits(text, bytes_max) {
                *text = Box::default();
            }
        };
        cut(&mut self.identity, Self::NAME_BYTES_MAX);
        cut(&mut self.name, Self::NAME_BYTES_MAX);
        cut(&mut self.program, Self::PROGRAM_BYTES_MAX);
        self.services.retain(|service| fits(service, Self::NAME_BYTES_MAX));
        self.services.sort_unstable();
        self.services.truncate(Self::SERVICES_MAX);
        self
    }
}

impl fmt::Display for VouchedCaller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { identity, name, .. } = self;
        match (name.is_empty(), identity.is_empty()) {
            (true, true) => f.write_str("a caller of no name"),
            (true, false) => f.write_str(identity),
            (false, true) => write!(f, "application {name}"),
            (false, false) => write!(f, "application {name} ({identity})"),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Shows who is a user, and what is left out for want of room.
    use super::*;

    #[test]
    fn users_have_numbers() {
        let of = |identity: &str| VouchedCaller { identity: identity.into(), ..VouchedCaller::default() };
        let uids = ["uid:1000", "uid:", "uid:-1", "spiffe://a/b", ""].map(|identity| of(identity).uid());
        assert_eq!(uids, [Some(1000), None, None, None, None]);
    }

    #[test]
    fn what_is_too_long_is_left_out_and_not_cut() {
        let long: Box<str> = "x".repeat(256).into();
        let services = ["a\nb".into()]
            .into_iter()
            .chain((0..40).rev().map(|n| format!("s{n:02}").into()))
            .chain([long.clone()])
            .collect();
        let all =
            VouchedCaller { identity: long.clone(), name: long.clone(), program: long.clone(), services };
        let cut = all.within_bounds();
        assert_eq!((&*cut.identity, &*cut.name, cut.program.len()), ("", "", 256));
        assert_eq!((cut.services.len(), &*cut.services[0], &*cut.services[15]), (16, "s00", "s15"));
    }
}
