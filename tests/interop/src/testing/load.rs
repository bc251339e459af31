//! Load reports (ORCA): with a call's trailers, and out of band.

use super::LOAD_REPORT;
use super::cases::{Caller, CaseError, LIMIT, call, same};
use super::streams::{asking, next};
use crate::codec::Codec;
use crate::proto::grpc::testing::{SimpleRequest, TestOrcaReport};
use crate::proto::xds::data::orca::v3::OrcaLoadReport;
use crate::proto::xds::service::orca::v3::{FILE_DESCRIPTOR_SET, OrcaLoadReportRequest};
use std::collections::HashMap;
use trunkline::Wait;
use trunkline::wkt::Duration as Interval;

pub(super) fn orca_per_rpc(caller: &Caller) -> Result<(), CaseError> {
    let asked = TestOrcaReport { request_cost: one("cost", 3456.32), ..load(0.8210, 0.5847, 0.30499) };
    let wanted = OrcaLoadReport { request_cost: one("cost", 3456.32), ..report(0.8210, 0.5847, 0.30499) };
    let request = SimpleRequest { orca_per_query_report: Some(asked), ..SimpleRequest::default() };
    let reply = caller.unary(request)?;
    let wire = reply.trailers().first(LOAD_REPORT);
    let wire = wire.ok_or_else(|| CaseError::Wrong(format!("there is no trailer {LOAD_REPORT}")))?;
    let codec = Codec::new(FILE_DESCRIPTOR_SET).map_err(|error| CaseError::Wrong(error.to_string()))?;
    let got: OrcaLoadReport = codec.decode(wire).map_err(|error| CaseError::Wrong(error.to_string()))?;
    same(LOAD_REPORT, got, wanted)
}

/// Tells the server its load twice, and waits until it says so itself.
pub(super) fn orca_oob(caller: &Caller) -> Result<(), CaseError> {
    let (mut tx, mut rx) = caller.service().full_duplex_call().with_timeout(LIMIT).split();
    let report_interval = Some(Interval { seconds: 0, nanos: 100_000_000 });
    let request = OrcaLoadReportRequest { report_interval, ..OrcaLoadReportRequest::default() };
    let reports = caller.orca().stream_core_metrics(caller.request(request)).wait();
    let mut reports = reports.map_err(call("StreamCoreMetrics"))?;
    for (cpu, memory, utilization) in [(0.8210, 0.5847, 0.30499), (0.29309, 0.2, 0.2039)] {
        let mut asked = asking(0, &[1]);
        asked.orca_oob_report = Some(load(cpu, memory, utilization));
        tx.send(asked).wait().map_err(call("FullDuplexCall"))?;
        next(&mut rx, 1)?;
        loop {
            // The stream's own time limit ends this loop if the report never comes.
            let got = reports.recv().wait().map_err(call("StreamCoreMetrics"))?;
            let got = got.ok_or_else(|| CaseError::Wrong("reports ended".into()))?;
            if got.into_inner() == report(cpu, memory, utilization) {
                break;
            }
        }
    }
    Ok(())
}

fn load(cpu_utilization: f64, memory_utilization: f64, util: f64) -> TestOrcaReport {
    let utilization = one("util", util);
    TestOrcaReport { cpu_utilization, memory_utilization, utilization, ..TestOrcaReport::default() }
}

fn report(cpu_utilization: f64, mem_utilization: f64, util: f64) -> OrcaLoadReport {
    let utilization = one("util", util);
    OrcaLoadReport { cpu_utilization, mem_utilization, utilization, ..OrcaLoadReport::default() }
}

fn one(name: &str, value: f64) -> HashMap<String, f64> {
    HashMap::from([(name.to_owned(), value)])
}
