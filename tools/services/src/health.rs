//! `grpc.health.v1.Health`: whether a service can be called here.

use crate::host::{Host, Kept};
use crate::proto::grpc::health::v1 as pb;
use crate::slots::Slots;
use pb::health_check_response::ServingStatus;
use pb::{HealthCheckRequest, HealthCheckResponse, HealthListRequest, HealthListResponse};
use std::collections::BTreeMap;
use std::sync::Arc;
use trunkline::{Incoming, Response, Sender, Status};
use trunkline_call::printable;
use trunkline_daemon::Services;

/// Services in one answer of List. More than that is not what a health check is for, and the specification foresees
/// RESOURCE_EXHAUSTED.
pub(crate) const LIST_MAX: usize = 10_000;

/// Answers health checks.
pub(crate) struct HealthService<H> {
    known: Kept<H, Known>,
    streams: Slots,
}

/// Who serves, at one time.
struct Known {
    draining: bool,
    serving: BTreeMap<String, bool>,
}

impl<H: Host> HealthService<H> {
    pub fn new(host: H, streams: Slots) -> Self {
        Self { known: Kept::new(host), streams }
    }

    fn known(&self) -> Arc<Known> {
        self.known.get(|services, _| Known::new(services))
    }
}

impl Known {
    fn new(services: Services) -> Self {
        let serving = services.states.into_iter().map(|state| (state.name, state.serving)).collect();
        Self { draining: services.draining, serving }
    }

    /// `None`: nobody has ever served it here.
    fn status(&self, service: &str) -> Option<ServingStatus> {
        match service {
            // The daemon itself.
            "" => Some(status(!self.draining)),
            service => self.serving.get(service).map(|serving| status(*serving)),
        }
    }
}

impl<H: Host> pb::health_server::Health for HealthService<H> {
    async fn check(
        &self,
        request: Incoming<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let service = request.view().service();
        let status = self.known().status(service).ok_or_else(|| unknown(service))?;
        Ok(Response::new(HealthCheckResponse { status }))
    }

    async fn list(&self, _: Incoming<HealthListRequest>) -> Result<Response<HealthListResponse>, Status> {
        let known = self.known();
        if known.serving.len() >= LIST_MAX {
            let why =
                format!("{} services; List tells of {LIST_MAX} at most (LIST_MAX)", known.serving.len());
            return Err(Status::resource_exhausted(why));
        }
        let names = known.serving.keys().map(String::as_str).chain([""]);
        let row = |name: &str| {
            let status = known.status(name).unwrap_or_default();
            (name.to_owned(), HealthCheckResponse { status })
        };
        Ok(Response::new(HealthListResponse { statuses: names.map(row).collect() }))
    }

    async fn watch(
        &self,
        request: Incoming<HealthCheckRequest>,
        mut out: Sender<HealthCheckResponse>,
    ) -> Result<(), Status> {
        let slot = self.streams.take(request.caller())?;
        let service = request.into_inner().service;
        let gone = || Status::unavailable("the daemon is draining");
        let mut watcher = self.known.host().watch().ok_or_else(gone)?;
        let mut told = None;
        slot.run(async {
            loop {
                let known = self.known();
                let status = known.status(&service).unwrap_or(ServingStatus::ServiceUnknown);
                if told.replace(status) != Some(status) {
                    out.send(HealthCheckResponse { status }).await?;
                }
                if known.draining {
                    // Said, and nothing better will follow: a stream that stayed would hold up the daemon's end.
                    return Err(gone());
                }
                watcher.changed().await;
            }
        })
        .await
    }
}

fn status(serving: bool) -> ServingStatus {
    if serving { ServingStatus::Serving } else { ServingStatus::NotServing }
}

fn unknown(service: &str) -> Status {
    // Not for the terminal of whoever reads it, and not longer than a name.
    let name: String = printable(service).chars().take(256).collect();
    Status::not_found(format!(
        "no application of this host serves {name:?}, and none has since the daemon began"
    ))
}
