//! What calls go through.

use crate::hub::{Hub, Patience, SessionWait};
use crate::intercept::{ClientInterceptor, ClientInterceptors};
use crate::leases::{lane_of, usual_session};
use crate::message::{Built, SendExtent};
use crate::settings::Settings;
use std::borrow::Cow;
use std::future::poll_fn;
use std::path::PathBuf;
use std::sync::Arc;
use trunkline_call::Status;
use trunkline_message::Message;

/// Where calls go: a target, reached through this host's daemon (or one inside this process).
///
/// Cheap to clone, `Send` and `Sync`; one channel serves any number of clients, threads and tasks. Connections to the
/// target are the daemon's and are shared by all applications of the host; a channel itself connects to nothing but the
/// daemon.
///
/// ```no_run
/// # async fn example() -> Result<(), trunkline::Status> {
/// use trunkline::Channel;
///
/// let here = Channel::local();                                   // whoever serves it on this host
/// let there = Channel::connect("tcp://10.0.0.7:7878").await?;    // a certain peer
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Channel {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    hub: Arc<Hub>,
    target: Arc<str>,
    patience: Patience,
    interceptors: ClientInterceptors,
}

/// Settings of a [`Channel`].
#[derive(Clone, Debug, Default)]
pub struct ChannelBuilder {
    settings: Settings,
    target: String,
    wait_for_ready: bool,
}

impl Channel {
    /// A channel to whoever serves the called service: an application on this host, else what the daemon's
    /// configuration says. Does nothing until the first call.
    ///
    /// # Panics
    /// If this process has no descriptor left for what attaches its channels; the first of a daemon takes one.
    pub fn local() -> Self {
        Self::builder().connect_lazy()
    }

    /// A channel to `target`, attached to the daemon: `tcp://host:port`, `unix:path`, a name or list as gRPC writes
    /// them (`dns:///host:port`, `host:port`, `ipv4:address:port,address:port`), or empty as [`Channel::local`].
    ///
    /// Whether the target can be reached shows when it is called.
    ///
    /// # Errors
    /// UNAVAILABLE when there is no daemon.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing: the next call attaches.
    pub async fn connect(target: &str) -> Result<Self, Status> {
        Self::builder().target(target).connect().await
    }

    /// A channel with other than the usual settings.
    pub fn builder() -> ChannelBuilder {
        ChannelBuilder::default()
    }

    /// Builds a request in place, in the memory it will be sent from.
    ///
    /// It is built for the session this thread would call through; before the first call there is none, and the message
    /// is copied once when it is sent.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED when the message does not fit the send heap, at the moment or ever; INTERNAL when it nests
    /// too deeply. Nothing was sent.
    pub fn build<M: Message>(
        &self,
        fill: impl FnOnce(&mut M::Builder<'_, SendExtent>),
    ) -> Result<Built<M>, Status> {
        let session = usual_session(&self.hub());
        let heap = session.and_then(|session| SendExtent::of_session(&session, M::BLOCK_BYTES as usize).ok());
        Built::build(heap.unwrap_or_else(SendExtent::local), fill)
    }

    /// Where calls go.
    pub fn target(&self) -> &str {
        &self.inner.target
    }

    /// A channel that shows each call to `interceptor` before it is made. Of several, the one added first comes first.
    /// Channels cloned from this one before have no part in it.
    pub fn with_interceptor(self, interceptor: impl ClientInterceptor) -> Self {
        let Inner { hub, target, patience, interceptors } = &*self.inner;
        let (hub, target, patience) = (Arc::clone(hub), Arc::clone(target), *patience);
        Self {
            inner: Arc::new(Inner { hub, target, patience, interceptors: interceptors.with(interceptor) }),
        }
    }

    pub(crate) fn through(hub: Arc<Hub>, target: &str, patience: Patience) -> Self {
        let interceptors = ClientInterceptors::default();
        Self { inner: Arc::new(Inner { hub, target: target.into(), patience, interceptors }) }
    }

    pub(crate) fn interceptors(&self) -> &ClientInterceptors {
        &self.inner.interceptors
    }

    pub(crate) fn hub(&self) -> Cow<'_, Arc<Hub>> {
        self.inner.hub.here()
    }

    pub(crate) fn target_arc(&self) -> &Arc<str> {
        &self.inner.target
    }

    pub(crate) fn patience(&self) -> Patience {
        self.inner.patience
    }
}

impl ChannelBuilder {
    /// As in [`Channel::connect`]; empty for whoever serves the called service.
    pub fn target(mut self, target: &str) -> Self {
        target.clone_into(&mut self.target);
        self
    }

    /// The daemon's socket, instead of `TRUNKLINE_SOCKET` and the default places.
    pub fn socket(mut self, path: impl Into<PathBuf>) -> Self {
        self.settings.socket = Some(path.into());
        self
    }

    /// Whether the daemon runs inside this process, instead of `TRUNKLINE_EMBEDDED` and of looking for one.
    pub fn embedded(mut self, embedded: bool) -> Self {
        self.settings.embedded = Some(embedded);
        self
    }

    /// The name operators see; the program's file name if none is given. All channels of a process that use the same
    /// daemon share the name of the first.
    pub fn name(mut self, name: &str) -> Self {
        self.settings.name = Some(name.to_owned());
        self
    }

    /// Calls wait for a daemon, and for a connection to the target, until their deadline, instead of failing when there
    /// is none.
    pub fn wait_for_ready(mut self, wait: bool) -> Self {
        self.wait_for_ready = wait;
        self
    }

    /// The channel, attached.
    ///
    /// # Errors
    /// UNAVAILABLE when there is no daemon.
    ///
    /// # Cancel safety
    /// As [`Channel::connect`].
    pub async fn connect(self) -> Result<Channel, Status> {
        let channel = self.connect_lazy();
        let mut wait = SessionWait::new(channel.patience());
        // The hub anew each time: a forked child that goes on with this has one of its own.
        poll_fn(|cx| {
            let hub = channel.hub();
            wait.poll(hub.reactor(), &lane_of(&hub, cx.waker()), cx)
        })
        .await?;
        Ok(channel)
    }

    /// The channel; the first call attaches.
    ///
    /// # Panics
    /// As [`Channel::local`].
    pub fn connect_lazy(self) -> Channel {
        let hub = Hub::of(self.settings.daemon(), &self.settings.name());
        let patience = if self.wait_for_ready { Patience::UntilReady } else { Patience::FailFast };
        Channel::through(hub, &self.target, patience)
    }
}
