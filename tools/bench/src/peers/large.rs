//! HPRPC's LargeData: a message of N integers there, and the same back.
//!
//! Generated code for 16,256 members would take longer to compile than everything else here. This is what it would do,
//! with an array for the fields: the same constants (the build script reads them off the schema), one setter and one
//! accessor for each member, called one after the other.

use trunkline::codegen as rt;
use trunkline::{Incoming, Response, Status};

include!(concat!(env!("OUT_DIR"), "/large.rs"));
pub(super) use sized;

/// What generated code has as constants of a message type.
struct Type {
    members: usize,
    name: &'static str,
    fingerprint: u64,
    block_bytes: u32,
    /// Slot of the first member; the others follow.
    first_slot: u32,
}

/// A message of `N` members.
#[derive(Clone, Debug, Default)]
pub struct LargeData<const N: usize>(Vec<i32>);

impl<const N: usize> LargeData<N> {
    const TYPE: &'static Type = type_of(N);

    /// Where a member is, counted from zero.
    pub const fn at(member: usize) -> rt::FieldAt {
        rt::FieldAt::new(Self::TYPE.first_slot + 4 * member as u32, member as u32)
    }
}

/// Fails to compile if there is none.
const fn type_of(members: usize) -> &'static Type {
    let mut index = 0;
    while TYPES[index].members != members {
        index += 1;
    }
    &TYPES[index]
}

impl<const N: usize> rt::Message for LargeData<N> {
    type View<'a> = rt::View<'a>;
    type Builder<'b, E: rt::Extent + 'b> = rt::Block<'b, E>;

    const FULL_NAME: &'static str = Self::TYPE.name;
    const FINGERPRINT: u64 = Self::TYPE.fingerprint;
    const BLOCK_BYTES: u32 = Self::TYPE.block_bytes;

    fn write<E: rt::Extent>(&self, mut block: rt::Block<'_, E>) {
        for (member, value) in self.0.iter().enumerate() {
            block.set_i32(Self::at(member), *value);
        }
    }

    fn read(view: rt::View<'_>) -> Self {
        Self((0..N).map(|member| view.i32(Self::at(member))).collect())
    }
}

/// Calls the service.
#[derive(Clone, Debug)]
pub struct LargeClient(rt::ClientCore);

impl LargeClient {
    /// A client that calls through `channel`.
    pub fn new(channel: rt::Channel) -> Self {
        Self(rt::ClientCore::new(channel, &SERVICE))
    }

    /// Calls the method of messages of `N` members.
    pub fn send_rcv<const N: usize>(
        &self,
        request: rt::Built<LargeData<N>>,
    ) -> rt::Unary<LargeData<N>, LargeData<N>> {
        let method = TYPES.iter().position(|of| of.members == N);
        self.0.unary(method.expect("type_of found it when this was compiled"), request)
    }
}

/// Sends every message back.
pub struct LargeServer;

impl rt::Service for LargeServer {
    fn description(&self) -> &'static rt::ServiceDescription {
        &SERVICE
    }

    fn call(&self, method: usize, call: rt::Delivered) -> rt::Handling {
        let members = TYPES.get(method).map_or(0, |of| of.members);
        sized!(members, N => call.unary(send_back::<N>), call.unimplemented())
    }
}

/// Reads every member and sets it in the answer.
async fn send_back<const N: usize>(
    request: Incoming<LargeData<N>>,
) -> Result<Response<LargeData<N>>, Status> {
    let received = request.view();
    let copied = request.build::<LargeData<N>>(|answer| {
        for member in 0..N {
            let at = LargeData::<N>::at(member);
            answer.set_i32(at, received.i32(at));
        }
    })?;
    Ok(copied.into())
}

/// The value of a member, counted from zero: every member is set, and takes two or three bytes in protobuf. The peers
/// and `core/engine/tests/wire_bytes.rs` have the same.
pub fn value(member: usize) -> i32 {
    ((member + 1) * 7919 % 100_000 + 1) as i32
}
