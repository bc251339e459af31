//! `[gateway]`: where gRPC clients have their calls forwarded.

use super::error::{Breach, breach, quoted};
use super::{Address, Mode};
use crate::schemas::SchemaCache;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use trunkline_engine::GatewaySettings;
use trunkline_net::Endpoint;

/// `[gateway]`: where gRPC clients call whatever this host serves or has endpoints for.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Gateway {
    /// Unix sockets and ports it listens at. None: there is no gateway.
    pub listen: Vec<Address>,
    /// Permissions of those sockets: who may connect at all.
    pub socket_mode: Mode,
    /// Whom its ports are for.
    pub open_to: OpenTo,
    /// Gateways a call may pass, this one among them.
    pub hops_max: u32,
    /// Descriptor sets of services whose messages policies look at.
    pub schemas: Vec<PathBuf>,
}

/// Whom the gateway's ports are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OpenTo {
    /// Programs of this host: addresses others reach are refused.
    #[default]
    Host,
    /// Others, too, but by TLS only.
    Tls,
    /// Others, too, and in the clear.
    Anyone,
}

/// More gateways in a row than this are a mistake.
const HOPS_MAX: u32 = 16;

impl Default for Gateway {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            socket_mode: Mode(0o660),
            open_to: OpenTo::default(),
            hops_max: GatewaySettings::default().hops_max,
            schemas: Vec::new(),
        }
    }
}

impl Gateway {
    /// How the engine forwards calls.
    ///
    /// # Errors
    /// Which descriptor set cannot be used, and why.
    pub(crate) fn settings(&self) -> Result<GatewaySettings, String> {
        let mut schemas = SchemaCache::default();
        let mut read = |path: &PathBuf| {
            let failed = |why: String| format!("{}: {why}", path.display());
            let bytes = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
            schemas.of_bytes(bytes).map_err(failed)
        };
        let schemas = self.schemas.iter().map(&mut read).collect::<Result<_, _>>()?;
        Ok(GatewaySettings { hops_max: self.hops_max, schemas })
    }

    /// Checks every value; clients are served over TLS if `tls_is_served`.
    pub(super) fn check(&self, tls_is_served: bool) -> Result<(), Breach> {
        const KEY: &str = "gateway.listen";
        for address in &self.listen {
            let (endpoint, shown) = (&address.0, quoted(&address.to_string()));
            if matches!(endpoint, Endpoint::Tls(..) | Endpoint::R2p2(_)) {
                let problem = format!("has {shown}, which is no place to listen at for gRPC");
                return Err(breach(KEY, problem, "write tcp://, or unix: and a path"));
            }
            if self.open_to == OpenTo::Host && endpoint.is_beyond_host() {
                let problem = format!("has {shown}, which others than this host's programs reach");
                let advice = "write gateway.open_to = \"tls\" (with tls.certificate and tls.key), or \"anyone\" for \
                              all who reach it in the clear, or a loopback address";
                return Err(breach(KEY, problem, advice));
            }
            if self.open_to == OpenTo::Tls && endpoint.is_beyond_host() && !tls_is_served {
                let problem = "would refuse every connection: TLS is not served".to_owned();
                return Err(breach("gateway.open_to", problem, "write tls.certificate and tls.key, too"));
            }
        }
        if !(1..=HOPS_MAX).contains(&self.hops_max) {
            let problem = format!("is {}", self.hops_max);
            return Err(breach("gateway.hops_max", problem, &format!("write a number from 1 to {HOPS_MAX}")));
        }
        if let Some(path) = self.schemas.iter().find(|path| !path.is_absolute()) {
            let problem = format!("has {:?}", path.display().to_string());
            let advice =
                "write the absolute path of a descriptor set, as protoc --descriptor_set_out makes it";
            return Err(breach("gateway.schemas", problem, advice));
        }
        Ok(())
    }
}
