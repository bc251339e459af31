//! What other shards have been told of who serves what on this one, and when they may be told more.

/// What other shards have been told of who serves what here.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub(crate) struct Telling {
    /// The registry's version they were told of.
    told: Option<u64>,
    /// They have been told very much, and are told of changes later.
    #[serde(skip)]
    rests: bool,
}

impl Telling {
    /// All is to be told again, and at once.
    pub fn begin_anew(&mut self) {
        *self = Self::default();
    }

    /// Whether they are to be told now what is served at this version.
    #[inline]
    pub fn has_news(&self, version: u64) -> bool {
        !self.rests && self.is_behind(version)
    }

    /// Whether they do not know what is served at this version.
    pub fn is_behind(&self, version: u64) -> bool {
        self.told != Some(version)
    }

    /// They have been told what is served at this version.
    pub fn note(&mut self, version: u64) {
        self.told = Some(version);
    }

    /// Whether they hear of changes later.
    pub fn rests(&self) -> bool {
        self.rests
    }

    /// They hear nothing for a while.
    pub fn rest(&mut self) {
        self.rests = true;
    }

    /// They may be told of what has changed meanwhile.
    pub fn go_on(&mut self) {
        self.rests = false;
    }
}
