//! Custom metadata, both ways, in a unary call and in a stream.

use super::cases::{Caller, CaseError, LIMIT, call, large_request, same};
use super::streams::{asking, next, no_more};
use super::{ECHO_INITIAL, ECHO_TRAILING};
use trunkline::{Metadata, MetadataError, Wait};

const INITIAL: &str = "test_initial_metadata_value";
const TRAILING: &[u8] = &[0x0a, 0x0b, 0x0a, 0x0b, 0x0a, 0x0b];

pub(super) fn custom_metadata(caller: &Caller) -> Result<(), CaseError> {
    let mut request = caller.request(large_request((1, 1)));
    request.metadata_mut().insert(ECHO_INITIAL, INITIAL).map_err(refused)?;
    request.metadata_mut().insert(ECHO_TRAILING, TRAILING).map_err(refused)?;
    let reply = caller.service().unary_call(request).wait().map_err(call("UnaryCall"))?;
    echoed(reply.headers(), reply.trailers())?;

    let stream = caller.service().full_duplex_call().with_timeout(LIMIT);
    let stream = stream.with_metadata(ECHO_INITIAL, INITIAL).map_err(refused)?;
    let (mut tx, mut rx) = stream.with_metadata(ECHO_TRAILING, TRAILING).map_err(refused)?.split();
    tx.send(asking(1, &[1])).wait().map_err(call("FullDuplexCall"))?;
    next(&mut rx, 1)?;
    tx.close();
    no_more(&mut rx)?;
    echoed(rx.metadata(), rx.trailers())
}

fn echoed(headers: &Metadata, trailers: &Metadata) -> Result<(), CaseError> {
    let values = |of: &Metadata, key: &str| -> Vec<Vec<u8>> {
        of.iter().filter(|(k, _)| *k == key).map(|(_, value)| value.to_vec()).collect()
    };
    same(ECHO_INITIAL, values(headers, ECHO_INITIAL), vec![INITIAL.as_bytes().to_vec()])?;
    same(ECHO_TRAILING, values(trailers, ECHO_TRAILING), vec![TRAILING.to_vec()])
}

fn refused(error: MetadataError) -> CaseError {
    CaseError::Wrong(error.to_string())
}
