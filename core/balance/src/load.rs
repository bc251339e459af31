//! Load reports of servers: ORCA's `OrcaLoadReport` (github.com/cncf/xds, xds/data/orca/v3/orca_load_report.proto), as
//! far as balancing reads it.

/// What a server says about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoadReport {
    /// Share of its processors in use.
    pub cpu_utilization: f64,
    /// Share of what the application itself counts as its capacity.
    pub application_utilization: f64,
    /// Calls it takes per second.
    pub calls_per_second: f64,
    /// Of those, the ones that fail.
    pub errors_per_second: f64,
}

/// Longest report read. It comes with a trailer, which is no longer than its limit of metadata.
const BYTES_MAX: usize = 64 << 10;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;

impl LoadReport {
    /// Trailing metadata in which a server reports (gRFC A51).
    pub const KEY: &'static str = "endpoint-load-metrics-bin";

    /// Reads a report; `None` if it is not protobuf. Fields nobody here needs are stepped over.
    pub fn decode(mut bytes: &[u8]) -> Option<Self> {
        let mut report = Self::default();
        if bytes.len() > BYTES_MAX {
            return None;
        }
        while !bytes.is_empty() {
            let tag = varint(&mut bytes)?;
            match (tag >> 3, tag & 7) {
                (1, FIXED64) => report.cpu_utilization = double(&mut bytes)?,
                (6, FIXED64) => report.calls_per_second = double(&mut bytes)?,
                (7, FIXED64) => report.errors_per_second = double(&mut bytes)?,
                (9, FIXED64) => report.application_utilization = double(&mut bytes)?,
                (0, _) => return None,
                (_, 0) => drop(varint(&mut bytes)?),
                (_, FIXED64) => drop(take(&mut bytes, 8)?),
                (_, BYTES) => {
                    let len = usize::try_from(varint(&mut bytes)?).ok()?;
                    take(&mut bytes, len)?;
                }
                (_, 5) => drop(take(&mut bytes, 4)?),
                _ => return None,
            }
        }
        Some(report)
    }
}

fn take<'b>(bytes: &mut &'b [u8], count: usize) -> Option<&'b [u8]> {
    let (taken, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(taken)
}

fn double(bytes: &mut &[u8]) -> Option<f64> {
    take(bytes, 8)?.try_into().ok().map(f64::from_le_bytes)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}
