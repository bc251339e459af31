//! Who serves a method: sessions that serve it by its name, and those that serve its service as a whole.

use crate::SessionKey;
use crate::method_types::MethodTypes;
use std::sync::Arc;
use trunkline_call::RouteIndex;
use trunkline_policy::Plan;

/// One session's service of one method, or of a whole service.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Server {
    /// Who.
    pub session: SessionKey,
    /// What its delivered calls carry.
    pub route: RouteIndex,
    /// With which types.
    pub types: Arc<MethodTypes>,
    /// Only while nobody else does.
    pub stands_by: bool,
    /// The policies its calls pass.
    #[serde(skip)]
    pub plan: Option<Arc<Plan>>,
}

/// The servers of a method. In both lists those who stand by are behind the others.
#[derive(Clone, Copy, Debug, Default)]
pub struct Servers<'a> {
    /// By the method's name.
    pub(crate) own: &'a [Server],
    /// By that of its service.
    pub(crate) whole: &'a [Server],
}

impl<'a> Servers<'a> {
    /// Each.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = &'a Server> + Clone {
        self.own.iter().chain(self.whole)
    }

    /// How many.
    #[inline]
    pub fn len(self) -> usize {
        self.own.len() + self.whole.len()
    }

    /// Whether nobody serves it.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.own.is_empty() && self.whole.is_empty()
    }

    /// Any of them.
    #[inline]
    pub fn first(self) -> Option<&'a Server> {
        self.own.first().or(self.whole.first())
    }

    /// The one there is, if there is no other.
    #[inline]
    pub fn only_one(self) -> Option<&'a Server> {
        if self.len() == 1 { self.first() } else { None }
    }

    /// Those that get calls: those who stand by are not among them while anybody else is.
    #[inline]
    pub fn in_line(self) -> Self {
        // Mostly.
        if self.len() <= 1 {
            return self;
        }
        let regular = Self {
            own: &self.own[..first_in_line(self.own)],
            whole: &self.whole[..first_in_line(self.whole)],
        };
        if regular.is_empty() { self } else { regular }
    }

    /// Each once, from one of them on.
    #[inline]
    pub(crate) fn starting_at(self, start: usize) -> impl Iterator<Item = &'a Server> {
        let (own, whole) = (self.own.split_at_checked(start), start.saturating_sub(self.own.len()));
        let (first, second, third) = match own {
            Some((before, behind)) if !behind.is_empty() => (behind, self.whole, before),
            _ => {
                let (before, behind) = self.whole.split_at(whole.min(self.whole.len()));
                (behind, self.own, before)
            }
        };
        first.iter().chain(second).chain(third)
    }
}

/// The first of those who stand by; as many serve without that.
#[inline]
pub(crate) fn first_in_line(servers: &[Server]) -> usize {
    servers.partition_point(|server| !server.stands_by)
}

/// Puts a server where it belongs among others.
pub(crate) fn enter(servers: &mut Vec<Server>, server: Server) {
    let at = if server.stands_by { servers.len() } else { first_in_line(servers) };
    servers.insert(at, server);
}
