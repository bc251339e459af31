//! A connection of an application whose session ends: told why, and closed, when nobody reads its rings any more.

use crate::clients::Client;
use crate::closer::Closer;
use std::sync::Arc;

/// A connection to the control socket that ends with its session.
pub(crate) struct EndingConnection {
    client: Client,
    /// What its application is told, in answer to what.
    told: Option<(u64, String)>,
    closer: Arc<Closer>,
}

impl EndingConnection {
    pub fn new(client: Client, told: Option<(u64, String)>, closer: Arc<Closer>) -> Self {
        Self { client, told, closer }
    }

    /// Its ring is read no more.
    pub fn end(self) {
        let Self { mut client, told, closer } = self;
        if let Some((tag, why)) = told {
            client.dismiss(tag, why);
        }
        client.close(&closer);
    }
}
