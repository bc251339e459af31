//! What a call asks of whoever gives it to one of several workers: reserved metadata, read here and nowhere else.

use crate::MetadataReader;

/// Metadata that says the class of a call, `0` to `31`: workers may be kept for a class.
pub const WORKER_CLASS_KEY: &str = "trunkline-worker-class";
/// Metadata that says whether calls of one caller go to one worker: `true` or `false`.
pub const STICKY_KEY: &str = "trunkline-sticky";
/// Classes there are.
const CLASSES: u8 = 32;

/// Which worker a call asks for; `None` for what nobody has said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct WorkerChoice {
    /// Its class, below 32.
    pub class: Option<u8>,
    /// Whether calls of its caller go to one worker.
    pub sticky: Option<bool>,
}

impl WorkerChoice {
    /// What metadata in its encoded form says. Pairs that are none say nothing here.
    ///
    /// # Errors
    /// Names the key, what it has, and what to write.
    pub fn read(encoded: &[u8]) -> Result<Self, String> {
        match MetadataReader::read(encoded) {
            Ok(mut pairs) => pairs.try_fold(Self::default(), |choice, pair| {
                pair.map_or(Ok(choice), |(key, value)| choice.with(key, value))
            }),
            Err(_) => Ok(Self::default()),
        }
    }

    /// With what one more pair says, if that is of choices.
    ///
    /// # Errors
    /// As [`WorkerChoice::read`].
    pub fn with(mut self, key: &str, value: &[u8]) -> Result<Self, String> {
        let said = || String::from_utf8_lossy(value);
        match key {
            WORKER_CLASS_KEY => {
                let number = said().parse().ok().and_then(Self::class_of);
                let wrong = || format!("{key} is {:?}, not a number from 0 to {}", said(), CLASSES - 1);
                self.class = Some(number.ok_or_else(wrong)?);
            }
            STICKY_KEY => {
                self.sticky = match value {
                    b"true" => Some(true),
                    b"false" => Some(false),
                    _ => return Err(format!("{key} is {:?}, neither true nor false", said())),
                };
            }
            _ => {}
        }
        Ok(self)
    }

    /// What this one does not say, `other` may.
    pub fn or(self, other: Self) -> Self {
        Self { class: self.class.or(other.class), sticky: self.sticky.or(other.sticky) }
    }

    /// A class if there is such a one.
    pub fn class_of(number: u64) -> Option<u8> {
        u8::try_from(number).ok().filter(|class| *class < CLASSES)
    }
}

#[cfg(test)]
mod tests {
    //! Shows what metadata says, and what is refused.
    use super::*;
    use crate::Metadata;

    fn choice(pairs: &[(&str, &str)]) -> Result<WorkerChoice, String> {
        let (mut metadata, mut encoded) = (Metadata::new(), Vec::new());
        pairs.iter().for_each(|(key, value)| metadata.insert(key, value).unwrap());
        metadata.encode(&mut encoded);
        WorkerChoice::read(&encoded)
    }

    #[test]
    fn metadata_says_class_and_sticky() {
        let of = |class, sticky| Ok(WorkerChoice { class, sticky });
        assert_eq!(choice(&[]), of(None, None));
        assert_eq!(choice(&[("tenant", "blue"), (WORKER_CLASS_KEY, "31")]), of(Some(31), None));
        assert_eq!(choice(&[(STICKY_KEY, "true"), (WORKER_CLASS_KEY, "0")]), of(Some(0), Some(true)));
        assert_eq!(choice(&[(STICKY_KEY, "false")]), of(None, Some(false)));
        for wrong in ["32", "-1", "", "two", "1 "] {
            let said = choice(&[(WORKER_CLASS_KEY, wrong)]).unwrap_err();
            assert_eq!(said, format!("trunkline-worker-class is {wrong:?}, not a number from 0 to 31"));
        }
        let said = choice(&[(STICKY_KEY, "yes")]).unwrap_err();
        assert_eq!(said, "trunkline-sticky is \"yes\", neither true nor false");
        assert_eq!(WorkerChoice::read(&[9]), of(None, None), "no metadata");
    }
}
