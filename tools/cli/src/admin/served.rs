//! What each application serves, for an answer to an operator: names, as many as an answer may have, and the number of
//! the others. A session may serve some thousand services with long names, and there may be thousands of sessions.

use std::collections::HashMap;
use trunkline_engine::{ServiceRow, SessionKey};

/// Names told of one application. Those of a host serve a few services each.
const NAMES_PER_APPLICATION_MAX: usize = 100;
/// Bytes of such names in one answer, over all applications: some ten thousand names.
const NAME_BYTES_MAX: usize = 1 << 20;

/// The services of a shard's sessions, by session: each row of services is walked once.
pub struct ServedServices<'a>(HashMap<SessionKey, ServedNames<'a>>);

#[derive(Default)]
struct ServedNames<'a> {
    first: Vec<&'a str>,
    more: usize,
}

/// How much of all names an answer may still have.
pub struct NameRoom {
    bytes_left: usize,
}

impl Default for NameRoom {
    fn default() -> Self {
        Self { bytes_left: NAME_BYTES_MAX }
    }
}

impl<'a> ServedServices<'a> {
    /// By session.
    pub fn of(services: &'a [ServiceRow]) -> Self {
        let mut served: HashMap<SessionKey, ServedNames<'a>> = HashMap::new();
        for service in services {
            for session in &service.sessions {
                let names = served.entry(*session).or_default();
                match names.first.len() < NAMES_PER_APPLICATION_MAX {
                    true => names.first.push(&service.name),
                    false => names.more += 1,
                }
            }
        }
        Self(served)
    }

    /// What a session serves: the names there is room for, and how many others.
    pub fn names(&self, session: SessionKey, room: &mut NameRoom) -> (Vec<String>, u32) {
        let Some(ServedNames { first, more }) = self.0.get(&session) else { return (Vec::new(), 0) };
        let fits = |name: &&&str| {
            let left = room.bytes_left.checked_sub(name.len());
            room.bytes_left = left.unwrap_or(room.bytes_left);
            left.is_some()
        };
        let names: Vec<String> = first.iter().take_while(fits).map(|name| (*name).to_owned()).collect();
        let others = first.len() - names.len() + more;
        (names, u32::try_from(others).unwrap_or(u32::MAX))
    }
}

/// The names for a person, with the number of those that are not told.
pub fn shown(names: &[String], more: u32) -> String {
    match (names, more) {
        (_, 0) => names.join(", "),
        ([], more) => format!("{more} services"),
        (_, more) => format!("{} and {more} more", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    //! Shows that the names of an answer are bounded, for one application and for all, and that none goes uncounted.
    use super::*;

    fn session(number: u64) -> SessionKey {
        SessionKey::from_bits(number)
    }

    fn row(name: String, sessions: impl IntoIterator<Item = u64>) -> ServiceRow {
        ServiceRow { name, methods: Vec::new(), sessions: sessions.into_iter().map(session).collect() }
    }

    #[test]
    fn an_application_names_so_many_and_counts_the_rest() {
        let services: Vec<_> = (0..NAMES_PER_APPLICATION_MAX + 20)
            .map(|number| row(format!("a.S{number:03}"), if number == 7 { vec![1, 2] } else { vec![1] }))
            .collect();
        let (served, mut room) = (ServedServices::of(&services), NameRoom::default());
        let (names, more) = served.names(session(1), &mut room);
        assert_eq!((names.len(), names[7].as_str(), more), (NAMES_PER_APPLICATION_MAX, "a.S007", 20));
        assert_eq!(served.names(session(2), &mut room), (vec!["a.S007".to_owned()], 0));
        assert_eq!(served.names(session(3), &mut room), (Vec::new(), 0));
        assert!(shown(&names, more).ends_with("a.S099 and 20 more"));
        assert_eq!((shown(&[], 0), shown(&[], 3)), (String::new(), "3 services".to_owned()));
    }

    #[test]
    fn all_names_of_an_answer_have_one_bound() {
        const SESSIONS: u64 = 300;
        let services: Vec<_> = (0..100).map(|number| row(format!("a.{number:0>510}"), 0..SESSIONS)).collect();
        let (served, mut room) = (ServedServices::of(&services), NameRoom::default());
        let told: Vec<_> = (0..SESSIONS).map(|number| served.names(session(number), &mut room)).collect();
        let bytes: usize = told.iter().flat_map(|(names, _)| names).map(String::len).sum();
        assert!(bytes <= NAME_BYTES_MAX && bytes > NAME_BYTES_MAX - 512, "{bytes}");
        assert!(told.iter().all(|(names, more)| names.len() + *more as usize == 100));
    }
}
