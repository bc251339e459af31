//! All of them, as one server's services.

use crate::channelz::ChannelzService;
use crate::health::HealthService;
use crate::host::Host;
use crate::load::{HostLoad, LoadService};
use crate::proto::grpc::channelz::v1::channelz_server::ChannelzServer;
use crate::proto::grpc::health::v1::health_server::HealthServer;
use crate::proto::grpc::reflection::{v1, v1alpha};
use crate::proto::xds::service::orca::v3::open_rca_service_server::OpenRcaServiceServer;
use crate::reflection::ReflectionService;
use crate::slots::Slots;
use std::sync::Arc;
use trunkline::{ServerBuilder, ServerHandle, Status};
use trunkline_daemon::GrpcServices;

/// Serves the services that are wanted, by servers that [stand by](ServerBuilder::stand_by) and that `begin` begins, by
/// name. Health checks have one to themselves: who asks reflection for much would otherwise have load balancers hear
/// nothing, and take the host out.
///
/// # Errors
/// What there is not: threads, descriptors.
pub fn serve(
    host: &impl Host,
    wanted: &GrpcServices,
    begin: impl Fn(&str) -> ServerBuilder,
) -> Result<Vec<ServerHandle>, Status> {
    let others = GrpcServices { health: false, ..*wanted };
    let mut servers = vec![add_to(begin("grpc services").stand_by(), host, &others).spawn()?];
    if wanted.health {
        let health = GrpcServices { health: true, reflection: false, channelz: false, orca: false };
        servers.push(add_to(begin("grpc health").stand_by(), host, &health).spawn()?);
    }
    Ok(servers)
}

/// Adds the services that are wanted to a server, which is to [stand by](ServerBuilder::stand_by). It is told who
/// calls: streams that wait are counted by caller.
pub fn add_to(server: ServerBuilder, host: &impl Host, wanted: &GrpcServices) -> ServerBuilder {
    let streams = Slots::default();
    let mut server = server.tell_callers(true);
    if wanted.health {
        server = server.add_service(HealthServer::new(HealthService::new(host.clone(), streams.clone())));
    }
    if wanted.reflection {
        let service = Arc::new(ReflectionService::new(host.clone(), streams.clone()));
        let alpha = v1alpha::server_reflection_server::ServerReflectionServer::from_arc(Arc::clone(&service));
        let first = v1::server_reflection_server::ServerReflectionServer::from_arc(service);
        server = server.add_service(first).add_service(alpha);
    }
    if wanted.channelz {
        server = server.add_service(ChannelzServer::new(ChannelzService::new(host.clone())));
    }
    if wanted.orca {
        let load = LoadService::with_slots(HostLoad::new(host.clone()), streams);
        server = server.add_service(OpenRcaServiceServer::new(load));
    }
    server
}
