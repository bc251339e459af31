//! `trunkline tax`: where a host's processor time went, as far as it was measured.
//!
//! What is known of a recording: the processor time of the host, that of handlers that told it, that of the daemon's
//! threads by stage of a call's path, and that of the processes of applications in all. What the kernel does outside of
//! anybody's system calls, and other programs, is in the rest, which is printed as such: a part without a measurement
//! is not shown as one.

use crate::args::FilesArgs;
use crate::load::load;
use crate::say;
use std::collections::BTreeMap;
use trunkline_insight::Fleet;
use trunkline_insight::machines::{machine, own_parts};
use trunkline_insight::words::time;
use trunkline_telemetry::{Coverage, Side, TaxStage, UNATTRIBUTED};

/// Of one host.
#[derive(Clone, Debug, Default, PartialEq)]
struct HostTime<'a> {
    /// All that its processors were busy, in seconds, and how many blocks say so.
    busy_s: f64,
    blocks: u32,
    /// Its handlers, in calls that ended well and in those that did not.
    handlers_s: [f64; 2],
    /// Its applications' processes, handlers included; `None` if a block does not say.
    applications_s: Option<f64>,
    /// Its daemon's threads, by stage.
    daemon_s: BTreeMap<&'a str, f64>,
    /// Calls that its handlers served, and those of them whose handler told its time.
    served: f64,
    told: f64,
}

/// Prints the parts of each host.
///
/// # Errors
/// A file cannot be read, or no block says what the host's processors did.
pub fn tax(args: &FilesArgs) -> Result<(), String> {
    let fleet = load(&args.files)?;
    let hosts = times(&fleet);
    if hosts.values().all(|host| host.blocks == 0) {
        return Err(
            "no block says how busy its host was: such records were made elsewhere, or are generated".into(),
        );
    }
    print!("{}", text(&hosts));
    print!("{}", say::footer(&fleet, fleet.calls.len()));
    Ok(())
}

fn times(fleet: &Fleet) -> BTreeMap<&str, HostTime<'_>> {
    let mut hosts: BTreeMap<&str, HostTime<'_>> = BTreeMap::new();
    let own_parts = own_parts(&fleet.heads, |head| Some((machine(head)?, head.host.as_str())));
    for (head, own_part) in fleet.heads.iter().zip(own_parts).filter(|(head, _)| !head.generated) {
        let host = hosts.entry(&head.host).or_default();
        if let Some(busy_s) = head.variables.get("cpu_seconds") {
            // Two daemons of a machine may have one name.
            host.busy_s += busy_s * own_part;
            host.applications_s = match (host.blocks, host.applications_s, head.application_seconds) {
                (0, _, seconds) => seconds,
                (_, before_s, seconds) => before_s.zip(seconds).map(|(before_s, seconds)| before_s + seconds),
            };
            host.blocks += 1;
            for (stage, seconds) in &head.daemon_seconds {
                *host.daemon_s.entry(stage).or_default() += seconds;
            }
        }
    }
    // What another host's handler took of a call made here is that host's.
    let is_here =
        |side, coverage| side == Side::Served || (side == Side::Made && coverage == Coverage::OneHost);
    for call in fleet.calls.iter().filter(|call| is_here(call.row.side, call.row.components.coverage)) {
        let Some(host) = hosts.get_mut(fleet.heads[call.block as usize].host.as_str()) else { continue };
        host.served += call.weight;
        if call.row.cpu_ns > 0 {
            let failed = usize::from(call.row.code != trunkline::Code::Ok);
            host.told += call.weight;
            host.handlers_s[failed] += call.weight * f64::from(call.row.cpu_ns) * 1e-9;
        }
    }
    for late in &fleet.late {
        if let Some(host) = hosts.get_mut(fleet.heads[late.block as usize].host.as_str()) {
            host.handlers_s[1] += late.seconds;
        }
    }
    hosts
}

fn text(hosts: &BTreeMap<&str, HostTime<'_>>) -> String {
    let mut rows = Vec::new();
    for (name, host) in hosts.iter().filter(|(_, host)| host.blocks > 0) {
        let share = |part_s: f64| match host.busy_s {
            0.0 => "–".to_owned(),
            busy_s => format!("{:.1} %", 100.0 * part_s / busy_s),
        };
        let mut row = |what: &str, part_s: f64| {
            rows.push(vec![(*name).to_owned(), what.to_owned(), time(part_s), share(part_s)]);
        };
        let [good_s, failed_s] = host.handlers_s;
        row("busy processors", host.busy_s);
        row("handlers, calls that ended well", good_s);
        row("handlers, calls that failed", failed_s);
        // Processes and threads are counted by different clocks: the rest of something small may be below nothing.
        let rest_s = host.applications_s.map(|all_s| (all_s - good_s - failed_s).max(0.0));
        if let Some(rest_s) = rest_s {
            row("applications, beside handlers", rest_s);
        }
        for stage in TaxStage::ALL {
            if let Some(seconds) = host.daemon_s.get(stage.label()) {
                row(&format!("daemon, {}", words(stage)), *seconds);
            }
        }
        if let Some(seconds) = host.daemon_s.get(UNATTRIBUTED) {
            row("daemon, unattributed", *seconds);
        }
        // Ticks are coarse: the parts may be more than was counted.
        let known_s = good_s + failed_s + rest_s.unwrap_or(0.0) + host.daemon_all_s();
        row("unattributed", (host.busy_s - known_s).max(0.0));
    }
    let mut text = say::table(&["host", "processor time", "", "of all"], &rows);
    for (name, host) in hosts.iter().filter(|(_, host)| host.blocks > 0 && host.told < host.served) {
        let percent = 100.0 * (1.0 - host.told / host.served);
        let whose = match host.applications_s {
            Some(_) => "beside handlers",
            None => "unattributed",
        };
        text += &format!(
            "{name}: {percent:.1} % of the calls it served tell no processor time, and are {whose}\n"
        );
    }
    for (name, host) in hosts.iter().filter(|(_, host)| host.daemon_all_s() > 0.0) {
        let percent = 100.0 * (1.0 - host.daemon_s.get(UNATTRIBUTED).unwrap_or(&0.0) / host.daemon_all_s());
        text +=
            &format!("{name}: stages explain {percent:.1} % of the processor time of the daemon's threads\n");
    }
    let (known, unknown) =
        hosts.values().filter(|host| host.blocks > 0).fold((0, 0), |(known, unknown), host| {
            if host.applications_s.is_some() { (known + 1, unknown) } else { (known, unknown + 1) }
        });
    if known > 0 {
        text += "beside handlers: libraries, what applications do by themselves, and handlers that did not tell\n";
    }
    let applications = if unknown > 0 { "applications' libraries where no row has them, " } else { "" };
    text + &format!("unattributed: {applications}other programs, and the kernel outside of system calls\n")
}

impl HostTime<'_> {
    fn daemon_all_s(&self) -> f64 {
        self.daemon_s.values().sum()
    }
}

fn words(stage: TaxStage) -> &'static str {
    match stage {
        TaxStage::Compression => "compression",
        TaxStage::Encryption => "encryption",
        TaxStage::Serialization => "serialization",
        TaxStage::Networking => "network stack",
        TaxStage::RpcLibrary => "RPC library",
        TaxStage::SharedMemoryHop => "shared-memory hop",
        TaxStage::Copies => "copies",
        TaxStage::Telemetry => "telemetry",
        TaxStage::Idle => "looking for work",
    }
}

#[cfg(test)]
mod tests {
    //! Shows whose time is whose, and that the rest is called so.
    use super::*;
    use trunkline_insight::{BlockHead, RecordBlock};
    use trunkline_telemetry::RecordedCall;

    fn call(side: Side, coverage: Coverage, cpu_ns: u32, code: u8) -> RecordedCall {
        let mut bytes = vec![0; RecordedCall::BYTES];
        bytes[84..88].copy_from_slice(&cpu_ns.to_le_bytes());
        bytes[108..112].copy_from_slice(&2.0_f32.to_le_bytes());
        bytes[116..119].copy_from_slice(&[code, side as u8, coverage as u8]);
        RecordedCall::decode(&bytes).unwrap()
    }

    #[test]
    fn time_is_that_of_the_host_it_was_taken_on() {
        let rows = vec![
            call(Side::Served, Coverage::ServerOnly, 500_000_000, 0),
            call(Side::Served, Coverage::ServerOnly, 250_000_000, 13),
            call(Side::Served, Coverage::ServerOnly, 0, 0),
            call(Side::Made, Coverage::OneHost, 100_000_000, 0),
            call(Side::Made, Coverage::Whole, 900_000_000, 0),
        ];
        let head = BlockHead {
            host: "alpha".into(),
            ended_ns: 1,
            methods: vec![(0, "/a.B/C".into())],
            peers: vec![(0, "p".into())],
            variables: [("cpu_seconds".to_owned(), 10.0)].into(),
            daemon_seconds: [("networking".to_owned(), 0.9), ("unattributed".to_owned(), 0.1)].into(),
            ..BlockHead::default()
        };
        let mut fleet = Fleet::default();
        fleet.add(RecordBlock { head: head.clone(), rows: rows.clone(), ..RecordBlock::default() });
        let hosts = times(&fleet);
        let HostTime { handlers_s: [good_s, failed_s], served, told, .. } = hosts["alpha"].clone();
        assert!((good_s - 1.2).abs() < 1e-6 && (failed_s - 0.5).abs() < 1e-6, "{hosts:?}");
        assert_eq!((served, told), (8.0, 6.0));
        let text = self::text(&hosts);
        for line in [
            "12.0 %",
            "5.0 %",
            "daemon, network stack",
            "9.0 %",
            "73.0 %",
            "alpha: 25.0 % of the calls it served tell no processor time",
            "alpha: stages explain 90.0 % of the processor time of the daemon's threads",
            "and are unattributed",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }

        // Applications took four seconds, 1.7 of them in handlers.
        let mut fleet = Fleet::default();
        let head = BlockHead { application_seconds: Some(4.0), ..head };
        fleet.add(RecordBlock { head, rows, ..RecordBlock::default() });
        let text = self::text(&times(&fleet));
        let line = text.lines().find(|line| line.contains("applications, beside handlers")).unwrap();
        assert!(line.contains("2.3 s") && line.contains("23.0 %") && text.contains("50.0 %"), "{text}");
        assert!(text.contains("tell no processor time, and are beside handlers"), "{text}");
    }
}
