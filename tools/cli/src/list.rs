//! `trunkline list`: the state of a daemon.

use crate::admin::proto::admin_client::AdminClient;
use crate::admin::proto::{Application, ListRequest, ListResponse, Peer, Service, Shard};
use crate::admin::shown;
use crate::table::{Table, bytes, count};
use serde_json::{Value, json};
use trunkline::{Status, Wait};
use trunkline_call::printable;

/// Asks and prints.
///
/// # Errors
/// The call's.
pub fn list(client: &AdminClient, as_json: bool) -> Result<(), Status> {
    let list = client.list(ListRequest::default()).wait()?.into_inner();
    if as_json {
        println!("{:#}", to_json(&list));
    } else {
        print!("{}", render(&list));
    }
    Ok(())
}

/// The list as a person reads it.
pub fn render(list: &ListResponse) -> String {
    let memory = list.memory.clone().unwrap_or_default();
    let listening = if list.listening.is_empty() { "nowhere".into() } else { list.listening.join(", ") };
    let mut out = format!(
        "{} (trunkline {}, process {}, up {})\napplications attach at {}; peers connect to {}\n\
         {} in flight; {} resident, {} of receive heaps in use\n",
        list.node,
        list.version,
        list.process_id,
        uptime(list.uptime_ns),
        list.socket,
        listening,
        count(list.calls_in_flight, "call"),
        bytes(memory.resident_bytes),
        bytes(memory.receive_heap_bytes),
    );
    if !list.admin_listening.is_empty() {
        out.push_str(&format!("operators connect to {}\n", list.admin_listening.join(", ")));
    }
    if !list.gateway_listening.is_empty() {
        out.push_str(&format!(
            "gRPC clients of the gateway connect to {}\n",
            list.gateway_listening.join(", ")
        ));
    }
    section(&mut out, "applications", &applications(&list.applications));
    section(&mut out, "services", &services(&list.services));
    section(&mut out, "peers", &peers(&list.peers));
    section(&mut out, "shards", &shards(&list.shards));
    out
}

/// Asks, and prints the shards.
///
/// # Errors
/// The call's.
pub fn list_shards(client: &AdminClient, as_json: bool) -> Result<(), Status> {
    let list = client.list(ListRequest::default()).wait()?.into_inner();
    if as_json {
        println!("{:#}", shards_json(&list.shards));
    } else {
        print!("{}", shards(&list.shards));
    }
    Ok(())
}

fn section(out: &mut String, name: &str, table: &Table) {
    if table.is_empty() {
        out.push_str(&format!("\nno {name}\n"));
    } else {
        out.push_str(&format!("\n{table}"));
    }
}

fn applications(rows: &[Application]) -> Table {
    let heading = ["APPLICATION", "SHARD", "MADE", "SERVING", "QUEUED", "PARKED", "HEAP", "SERVES"];
    let mut table = Table::new(&heading, &[1, 2, 3, 4, 5, 6]);
    for row in rows {
        let leaving = if row.draining { " (leaving)" } else { "" };
        table.row([
            format!("{}{leaving}", printable(&row.name)),
            row.shard.to_string(),
            row.calls_made.to_string(),
            row.calls_delivered.to_string(),
            row.completions_queued.to_string(),
            row.messages_parked.to_string(),
            bytes(row.receive_heap_bytes),
            shown(&row.serves, row.serves_more),
        ]);
    }
    table
}

fn services(rows: &[Service]) -> Table {
    let mut table = Table::new(&["SERVICE", "SERVERS", "METHODS"], &[1]);
    for row in rows {
        table.row([row.name.clone(), row.servers.to_string(), row.methods.join(", ")]);
    }
    table
}

fn peers(rows: &[Peer]) -> Table {
    let heading = ["PEER", "SPEAKS", "NODE", "DIALLED", "SHARD", "STREAMS", "QUEUED"];
    let mut table = Table::new(&heading, &[4, 5, 6]);
    for row in rows {
        table.row([
            row.address.clone(),
            row.protocol.clone(),
            match (row.node.is_empty(), row.protocol.as_str()) {
                (false, _) => printable(&row.node),
                (true, "grpc" | "r2p2") => "-".into(),
                (true, _) => "(no hello yet)".into(),
            },
            if row.outgoing { "here" } else { "there" }.into(),
            row.shard.to_string(),
            row.streams.to_string(),
            bytes(row.queued_bytes),
        ]);
    }
    table
}

fn shards(rows: &[Shard]) -> Table {
    let mut table = Table::new(&["SHARD", "THREAD", "BUSY", "SESSIONS", "CALLS"], &[0, 2, 3, 4]);
    for (index, row) in rows.iter().enumerate() {
        // Its work is done by another's thread.
        let busy = || format!("{} %", row.busy_permille / 10);
        table.row([
            index.to_string(),
            if row.has_thread { "own" } else { "-" }.into(),
            if row.has_thread { busy() } else { "-".into() },
            row.sessions.to_string(),
            row.calls_in_flight.to_string(),
        ]);
    }
    table
}

fn shards_json(rows: &[Shard]) -> Value {
    let rows = rows.iter().enumerate().map(|(index, row)| {
        json!({
            "shard": index, "hasThread": row.has_thread, "busyPermille": row.busy_permille,
            "sessions": row.sessions, "callsInFlight": row.calls_in_flight,
        })
    });
    rows.collect()
}

fn uptime(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, s) => format!("{s} s"),
        (0, 0, m, s) => format!("{m} min {s} s"),
        (0, h, m, _) => format!("{h} h {m} min"),
        (d, h, _, _) => format!("{d} d {h} h"),
    }
}

fn to_json(list: &ListResponse) -> Value {
    let memory = list.memory.clone().unwrap_or_default();
    json!({
        "node": list.node,
        "version": list.version,
        "processId": list.process_id,
        "uptimeNs": list.uptime_ns,
        "socket": list.socket,
        "listening": list.listening,
        "adminListening": list.admin_listening,
        "gatewayListening": list.gateway_listening,
        "callsInFlight": list.calls_in_flight,
        "applications": list.applications.iter().map(application_json).collect::<Vec<_>>(),
        "services": list.services.iter().map(|row| json!({
            "name": row.name, "methods": row.methods, "servers": row.servers,
        })).collect::<Vec<_>>(),
        "peers": list.peers.iter().map(|row| json!({
            "address": row.address, "node": row.node, "outgoing": row.outgoing, "shard": row.shard,
            "streams": row.streams, "queuedBytes": row.queued_bytes, "protocol": row.protocol,
        })).collect::<Vec<_>>(),
        "shards": shards_json(&list.shards),
        "memory": { "residentBytes": memory.resident_bytes, "receiveHeapBytes": memory.receive_heap_bytes },
    })
}

fn application_json(row: &Application) -> Value {
    json!({
        "name": row.name,
        "shard": row.shard,
        "serves": row.serves,
        "servesMore": row.serves_more,
        "callsMade": row.calls_made,
        "callsDelivered": row.calls_delivered,
        "completionsQueued": row.completions_queued,
        "messagesParked": row.messages_parked,
        "receiveHeapBytes": row.receive_heap_bytes,
        "draining": row.draining,
    })
}

#[cfg(test)]
mod tests {
    //! Shows what a person sees.
    use super::*;
    use crate::admin::proto::Memory;

    #[test]
    fn a_daemon_at_work() {
        let list = ListResponse {
            node: "alpha".into(),
            version: "0.1.0".into(),
            process_id: 42,
            uptime_ns: 3_725_000_000_000,
            socket: "/run/trunkline.sock".into(),
            listening: vec!["tcp://10.0.0.7:7878".into()],
            admin_listening: vec!["unix:///run/trunkline-admin.sock".into()],
            gateway_listening: vec!["unix:///run/trunkline-grpc.sock".into()],
            calls_in_flight: 3,
            applications: vec![Application {
                name: "search\u{1b}[2J[7]".into(),
                serves: vec!["search.v1.Search".into()],
                calls_delivered: 3,
                receive_heap_bytes: 4096,
                draining: true,
                ..Application::default()
            }],
            services: vec![Service {
                name: "search.v1.Search".into(),
                methods: vec!["Query".into(), "Index".into()],
                servers: 1,
            }],
            peers: Vec::new(),
            memory: Some(Memory { resident_bytes: 5 << 20, receive_heap_bytes: 4096 }),
            shards: vec![
                Shard { has_thread: true, busy_permille: 421, sessions: 1, calls_in_flight: 3 },
                Shard::default(),
            ],
        };
        let expected = "\
alpha (trunkline 0.1.0, process 42, up 1 h 2 min)
applications attach at /run/trunkline.sock; peers connect to tcp://10.0.0.7:7878
3 calls in flight; 5.0 MiB resident, 4.0 KiB of receive heaps in use
operators connect to unix:///run/trunkline-admin.sock
gRPC clients of the gateway connect to unix:///run/trunkline-grpc.sock

APPLICATION              SHARD  MADE  SERVING  QUEUED  PARKED     HEAP  SERVES
search\u{fffd}[2J[7] (leaving)      0     0        3       0       0  4.0 KiB  search.v1.Search

SERVICE           SERVERS  METHODS
search.v1.Search        1  Query, Index

no peers

SHARD  THREAD  BUSY  SESSIONS  CALLS
    0  own     42 %         1      3
    1  -          -         0      0
";
        assert_eq!(render(&list), expected);
    }
}
