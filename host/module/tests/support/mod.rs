//! Loading a module and asking it about a call.

use std::path::Path;
use trunkline_call::{Code, Deadline, Instant};
use trunkline_module::Loader;
use trunkline_policy::{FieldValue, Module, ModuleCall, ModuleError, ModuleLoader, SettingValue, Side};

pub fn load(
    loader: &Loader,
    path: &Path,
    settings: &[(String, SettingValue)],
) -> Result<Box<dyn Module>, ModuleError> {
    loader.load("policy", path.to_str().unwrap(), settings)
}

/// How a call was refused, if it was; or the fault.
pub fn ask(
    module: &mut Box<dyn Module>,
    now: Instant,
    values: &[FieldValue<'_>],
) -> Result<Option<(Code, String)>, String> {
    let call = ModuleCall {
        side: Side::Server,
        now,
        deadline: Deadline::NONE,
        request_bytes: 7,
        client_streams: false,
        path: "/shop.v1.Shop/Buy",
        application: "shop",
        peer_identity: "uid:1000",
        peer_address: "",
        metadata: &[],
        values,
    };
    module.decide(&call).map(|answer| answer.denied).map_err(|error| error.problem)
}
