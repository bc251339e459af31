//! ORCA load reports: how loaded a server says it is, with every answer.

use crate::message::Response;
use prost::Message as _;
use std::collections::BTreeMap;
use trunkline_call::{Metadata, MetadataError};

/// The trailer a report travels in (gRFC A51).
const KEY: &str = "endpoint-load-metrics-bin";

/// How loaded a server is: `xds.data.orca.v3.OrcaLoadReport`, the field's own form.
///
/// A handler sends one with its answer, and balancers that understand ORCA pick by it; a caller finds it in the
/// trailers of whatever came back.
///
/// ```
/// # use trunkline::codegen::Message;
/// use trunkline::{LoadReport, Response};
///
/// # fn example<R: Message>(reply: R) -> Result<Response<R>, trunkline::Status> {
/// let load = LoadReport { cpu_utilization: 0.7, rps_fractional: 1200.0, ..LoadReport::default() };
/// Ok(Response::new(reply).with_load_report(&load)?)
/// # }
/// ```
///
/// A handler that streams says `out.set_trailers(load.to_metadata()?)`. On the other side, [`LoadReport::of`] reads
/// whatever trailers came: of a response, of a stream, of a failure.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LoadReport {
    /// Share of the server's CPU in use: 1.0 is all it has been given; more means that it borrows.
    #[prost(double, tag = "1")]
    pub cpu_utilization: f64,
    /// Share of the server's memory in use, from 0 to 1.
    #[prost(double, tag = "2")]
    pub mem_utilization: f64,
    /// Requests per second, averaged over the last moments.
    #[prost(double, tag = "6")]
    pub rps_fractional: f64,
    /// Errors per second, likewise.
    #[prost(double, tag = "7")]
    pub eps: f64,
    /// How busy the application says it is, from 0; what balancers prefer to the CPU where it is set.
    #[prost(double, tag = "9")]
    pub application_utilization: f64,
    /// What this one request cost, by the application's own measures.
    #[prost(btree_map = "string, double", tag = "4")]
    pub request_cost: BTreeMap<String, f64>,
    /// Shares of other resources in use, each from 0 to 1.
    #[prost(btree_map = "string, double", tag = "5")]
    pub utilization: BTreeMap<String, f64>,
    /// Anything else.
    #[prost(btree_map = "string, double", tag = "8")]
    pub named_metrics: BTreeMap<String, f64>,
}

impl LoadReport {
    /// The report in some trailers. `None` if there is none, or it is not one: a report is advice, and a broken one no
    /// reason to fail.
    pub fn of(trailers: &Metadata) -> Option<Self> {
        Self::decode(trailers.first(KEY)?).ok()
    }

    /// Trailers with this report and nothing else.
    ///
    /// # Errors
    /// [`MetadataError::TooLarge`].
    pub fn to_metadata(&self) -> Result<Metadata, MetadataError> {
        let mut metadata = Metadata::new();
        self.put_into(&mut metadata)?;
        Ok(metadata)
    }

    /// Adds this report to trailers, in place of another.
    ///
    /// # Errors
    /// [`MetadataError::TooLarge`].
    pub fn put_into(&self, trailers: &mut Metadata) -> Result<(), MetadataError> {
        trailers.remove(KEY);
        trailers.insert(KEY, self.encode_to_vec())
    }
}

impl<M> Response<M> {
    /// Reports the server's load beside the response.
    ///
    /// # Errors
    /// [`MetadataError::TooLarge`].
    pub fn with_load_report(mut self, report: &LoadReport) -> Result<Self, MetadataError> {
        report.put_into(&mut self.trailers)?;
        Ok(self)
    }

    /// The load the server reported with this response.
    pub fn load_report(&self) -> Option<LoadReport> {
        LoadReport::of(&self.trailers)
    }
}

#[cfg(test)]
mod tests {
    //! Shows that reports survive, are the field's own bytes, and that garbage is no report.
    use super::*;

    #[test]
    fn reports_are_the_fields_own() {
        let request_cost = BTreeMap::from([("rows".to_owned(), 2.0)]);
        let report = LoadReport { cpu_utilization: 0.5, request_cost, ..LoadReport::default() };
        let mut trailers = report.to_metadata().unwrap();
        assert_eq!(LoadReport::of(&trailers), Some(report));
        // Field 1 a double; field 4 a map entry of string and double (protobuf's encoding guide).
        let half: &[u8] = &[0x09, 0, 0, 0, 0, 0, 0, 0xe0, 0x3f];
        let rows: &[u8] = &[0x22, 15, 0x0a, 4, b'r', b'o', b'w', b's', 0x11, 0, 0, 0, 0, 0, 0, 0, 0x40];
        assert_eq!(trailers.first("endpoint-load-metrics-bin"), Some(&[half, rows].concat()[..]));
        LoadReport::default().put_into(&mut trailers).unwrap();
        assert_eq!((LoadReport::of(&trailers), trailers.len()), (Some(LoadReport::default()), 1));
    }

    #[test]
    fn garbage_is_no_report() {
        let mut trailers = Metadata::new();
        assert_eq!(LoadReport::of(&trailers), None);
        trailers.insert(KEY, [0x09, 1]).unwrap();
        assert_eq!(LoadReport::of(&trailers), None);
    }
}
