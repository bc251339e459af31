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

/// The same, read where it lies.
#[derive(Clone, Copy)]
pub struct LargeView<'a, const N: usize>(rt::View<'a>);

/// The same, built in place.
pub struct LargeBuilder<'b, E, const N: usize>(rt::Block<'b, E>);

impl<const N: usize> LargeData<N> {
    const TYPE: &'static Type = type_of(N);

    const fn at(member: usize) -> rt::FieldAt {
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
    type View<'a> = LargeView<'a, N>;
    type Builder<'b, E: rt::Extent + 'b> = LargeBuilder<'b, E, N>;

    const FULL_NAME: &'static str = Self::TYPE.name;
    const FINGERPRINT: u64 = Self::TYPE.fingerprint;
    const BLOCK_BYTES: u32 = Self::TYPE.block_bytes;

    fn write<E: rt::Extent>(&self, block: rt::Block<'_, E>) {
        let mut builder = LargeBuilder::<E, N>(block);
        for (member, value) in self.0.iter().enumerate() {
            builder.set(member, *value);
        }
    }

    fn read(view: Self::View<'_>) -> Self {
        Self((0..N).map(|member| view.member(member)).collect())
    }
}

impl<'a, const N: usize> LargeView<'a, N> {
    /// A member, counted from zero.
    pub fn member(self, member: usize) -> i32 {
        self.0.i32(LargeData::<N>::at(member))
    }
}

impl<E: rt::Extent, const N: usize> LargeBuilder<'_, E, N> {
    /// Sets a member, counted from zero.
    pub fn set(&mut self, member: usize, value: i32) {
        self.0.set_i32(LargeData::<N>::at(member), value);
    }
}

impl<'a, const N: usize> From<rt::View<'a>> for LargeView<'a, N> {
    fn from(view: rt::View<'a>) -> Self {
        Self(view)
    }
}

impl<'a, const N: usize> From<LargeView<'a, N>> for rt::View<'a> {
    fn from(view: LargeView<'a, N>) -> Self {
        view.0
    }
}

impl<'b, E, const N: usize> From<rt::Block<'b, E>> for LargeBuilder<'b, E, N> {
    fn from(block: rt::Block<'b, E>) -> Self {
        Self(block)
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
            answer.set(member, received.member(member));
        }
    })?;
    Ok(copied.into())
}

/// The value of a member, counted from zero: every member is set, and takes two or three bytes in protobuf. The peers
/// and `core/engine/tests/wire_bytes.rs` have the same.
pub fn value(member: usize) -> i32 {
    ((member + 1) * 7919 % 100_000 + 1) as i32
}
