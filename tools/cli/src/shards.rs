//! `trunkline shards`: what the shards of a daemon have, and an application that is moved by hand.

use crate::admin::proto::MoveApplicationRequest;
use crate::admin::proto::admin_client::AdminClient;
use crate::admin::proto::control_client::ControlClient;
use crate::args::{ShardsArgs, ShardsVerb};
use crate::list::list_shards;
use crate::table::count;
use trunkline::{Channel, Status, Wait};

/// Shows them, or does what is asked.
///
/// # Errors
/// The call's.
pub fn shards(channel: &Channel, args: &ShardsArgs) -> Result<(), Status> {
    let Some(ShardsVerb::Move { application, shard }) = &args.verb else {
        return list_shards(&AdminClient::new(channel.clone()), args.json);
    };
    let order = MoveApplicationRequest { application: application.clone(), shard: *shard };
    let moved = ControlClient::new(channel.clone()).move_application(order).wait()?.view().moved();
    println!("{} of {application} moved to shard {shard}", count(moved.into(), "session"));
    Ok(())
}
