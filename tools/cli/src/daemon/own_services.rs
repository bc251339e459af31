//! The daemon's own services: the admin API, and what every gRPC server is expected to have. They are applications like
//! any other, but for the way they attach: within the process, and not by the socket's path, which leads elsewhere, or
//! nowhere, once somebody has changed what lies there.

use super::host::{DaemonHost, Order};
use crate::admin::proto::admin_server::AdminServer;
use crate::admin::proto::control_server::ControlServer;
use crate::admin::{AdminService, Audit, ControlService};
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use trunkline::{Connect, Server, ServerHandle, Status, Wait};
use trunkline_daemon::GrpcServices;

/// Time they get to finish: their calls are short, and a watcher never leaves by itself.
const GRACE: Duration = Duration::from_millis(200);

/// How often it is looked whether what was denied is written down.
const LOOK: Duration = Duration::from_millis(2);

/// The servers of them.
pub struct OwnServices {
    admin: ServerHandle,
    /// Apart from the admin API: others than this host's may ask here, and operators look meanwhile.
    grpc: Vec<ServerHandle>,
    /// Writes down which changes were denied.
    audit: Option<JoinHandle<()>>,
}

impl OwnServices {
    /// Starts them. They attach as soon as the daemon lets them.
    ///
    /// # Errors
    /// What they have not: threads, descriptors.
    pub fn start(host: &Arc<DaemonHost>, wanted: &GrpcServices) -> Result<Self, Status> {
        let daemon = Arc::downgrade(&host.daemon);
        let gone = || io::Error::other("the daemon ends");
        let connect: Arc<Connect> = Arc::new(move || daemon.upgrade().ok_or_else(gone)?.connect());
        let admin = serve_admin(host, Arc::clone(&connect))?;
        let begin = |name: &str| Server::builder().name(name).connect_with(Arc::clone(&connect));
        let grpc = trunkline_services::serve(&Arc::downgrade(&host.daemon), wanted, begin)?;
        let denied = host.daemon.denied_changes();
        let audit = denied.map(|denied| Audit::new(&host.audit_log).keep_denied(denied)).transpose();
        let audit = audit.map_err(|error| Status::internal(format!("audit: {error}")))?;
        Ok(Self { admin, grpc, audit })
    }

    /// Waits until they serve, or there is an order to end. An order for later is given back then.
    ///
    /// # Errors
    /// Why one of them cannot serve.
    pub fn until_ready(
        &self,
        orderer: &Sender<Order>,
        orders: &Receiver<Order>,
    ) -> Result<Option<Order>, Status> {
        let mut later = None;
        for server in std::iter::once(&self.admin).chain(&self.grpc) {
            match until_ready(server, orderer, orders)? {
                Some(end @ Order::End(_)) => return Ok(Some(end)),
                order => later = order.or(later),
            }
        }
        Ok(later)
    }

    /// Ends what others than operators ask. Its streams have no end of their own.
    pub fn end_grpc(&self) {
        // All are told first, so that they end together.
        let ends: Vec<_> = self.grpc.iter().map(|server| server.shutdown(GRACE)).collect();
        ends.into_iter().for_each(|end| drop(end.wait()));
    }

    /// Ends the admin API.
    pub fn end_admin(&self) {
        let _ = self.admin.shutdown(GRACE).wait();
    }

    /// Waits for so long at most until everything that was denied is written down: the daemon has handed over.
    pub fn settle_within(&self, longest: Duration) {
        let began = Instant::now();
        while self.audit.as_ref().is_some_and(|audit| !audit.is_finished()) && began.elapsed() < longest {
            std::thread::park_timeout(LOOK);
        }
    }

    /// Waits until everything that was denied is written down: to be called when the daemon has ended.
    pub fn settle(self) {
        self.audit.into_iter().for_each(|audit| drop(audit.join()));
    }
}

fn serve_admin(host: &Arc<DaemonHost>, connect: Arc<Connect>) -> Result<ServerHandle, Status> {
    let history = host.history.clone();
    history.keep(Arc::downgrade(host)).map_err(|error| Status::internal(format!("history: {error}")))?;
    let service = AdminService::new(Arc::downgrade(host), history)
        .map_err(|error| Status::internal(format!("admin looks: {error}")))?;
    let control = ControlService::new(Arc::downgrade(host), Audit::new(&host.audit_log))
        .map_err(|error| Status::internal(format!("admin changes: {error}")))?;
    let server = Server::builder().name("admin").connect_with(connect);
    server.add_service(AdminServer::new(service)).add_service(ControlServer::new(control)).spawn()
}

/// Waits for one server; gives back the order to end, or the last one that can wait.
fn until_ready(
    server: &ServerHandle,
    orderer: &Sender<Order>,
    orders: &Receiver<Order>,
) -> Result<Option<Order>, Status> {
    let waker = Waker::from(Arc::new(Looker(orderer.clone())));
    let mut ready = pin!(server.ready());
    let mut later = None;
    loop {
        if let Poll::Ready(outcome) = ready.as_mut().poll(&mut Context::from_waker(&waker)) {
            return outcome.map(|()| later);
        }
        match orders.recv() {
            Ok(Order::Look) => {}
            Ok(Order::End(why)) => return Ok(Some(Order::End(why))),
            Ok(order @ Order::Upgrade(_)) => later = Some(order),
            Err(_) => return Ok(Some(Order::End("every source of orders is gone"))),
        }
    }
}

/// Has the thread that carries orders out look at what it waits for.
struct Looker(Sender<Order>);

impl Wake for Looker {
    fn wake(self: Arc<Self>) {
        let _ = self.0.send(Order::Look);
    }
}

#[cfg(test)]
mod tests {
    //! Shows that who waits for a server hears orders meanwhile.
    use super::*;
    use crate::admin::UpgradeWish;
    use std::sync::mpsc::channel;

    #[test]
    fn an_order_to_end_is_heard_while_a_server_cannot_attach() {
        let connect: Arc<Connect> = Arc::new(|| Err(io::Error::other("not yet")));
        let server = Server::builder().connect_with(connect).spawn().unwrap();
        let (orderer, orders) = channel();
        let wish = UpgradeWish { binary: None, grace: Duration::ZERO, identity: String::new() };
        orderer.send(Order::Upgrade(wish)).unwrap();
        orderer.send(Order::End("SIGTERM")).unwrap();
        let heard = until_ready(&server, &orderer, &orders).unwrap();
        assert!(matches!(heard, Some(Order::End("SIGTERM"))), "{heard:?}");
        server.shutdown(Duration::ZERO).wait().unwrap();
    }

    #[test]
    fn a_server_that_has_attached_is_waited_for_no_longer() {
        let daemon = trunkline_daemon::Daemon::embedded(trunkline_daemon::Config::default()).unwrap();
        let connect: Arc<Connect> = Arc::new(move || daemon.connect());
        let server = Server::builder().connect_with(connect).spawn().unwrap();
        let (orderer, orders) = channel();
        orderer.send(Order::Look).unwrap();
        assert!(matches!(until_ready(&server, &orderer, &orders), Ok(None)));
        server.shutdown(Duration::ZERO).wait().unwrap();
    }
}
