//! Shows that a crowd of silent connections, of a process with few descriptors and a log that cannot be written, ends
//! nothing and keeps out nobody: calls go on without an error, and whoever comes and says what he wants is served; what
//! was lost of the log is counted. That silent connections of one shard give way to whoever comes to another. And that
//! a log nobody reads stops nobody.
//!
//! `TRUNKLINE_CROWD_SECONDS=300` has a crowd come again and again for five minutes, to a daemon that may have 2,000
//! descriptors.

mod support;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;
use std::io::{BufRead, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use support::{Host, end, own_address, trunkline, watched};
use trunkline::Wait;
use trunkline_example_search::proto::QueryRequest;

/// More than the daemon may have descriptors, many times.
const CROWD: usize = 2300;
const DESCRIPTORS: usize = 300;
/// The same where the crowd comes for long.
const DESCRIPTORS_FOR_LONG: usize = 2000;
/// What the first bytes of the crowd are, one after the other: nothing; the beginnings of HTTP/2 and of the native
/// protocol, whose greeting never comes.
const SAID: [&[u8]; 3] = [b"", b"PRI * HT", &trunkline_native::PREAMBLE.to_le_bytes()];

#[test]
fn a_crowd_that_says_nothing() {
    a_crowd_comes("", true);
}

/// Places for more connections than there are descriptors: there is none for an application that attaches, but calls go
/// on.
#[test]
fn a_crowd_that_takes_every_descriptor() {
    a_crowd_comes("connections_max = 100000\nconnections_per_source_max = 100000\n", false);
}

fn a_crowd_comes(config: &str, has_room: bool) {
    watched();
    let own = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: own.maximum, ..own }).unwrap();
    let metrics = own_address().to_string();
    let config = format!(
        "[metrics]\nlisten = [\"tcp://{metrics}\"]\n[daemon]\nlisten = [\"tcp://127.0.0.1:0\"]\n{config}"
    );
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let long = std::env::var("TRUNKLINE_CROWD_SECONDS").ok().map(|seconds| seconds.parse().unwrap());
    let descriptors = if long.is_some() { DESCRIPTORS_FOR_LONG } else { DESCRIPTORS };
    let mut host = Host::start_in_need(&config, descriptors, full);
    let listed: Value = serde_json::from_str(&host.verb(&["list", "--json"], "").out).unwrap();
    let address = listed["listening"][0].as_str().unwrap().strip_prefix("tcp://").unwrap().to_owned();
    let (_server, client) = host.serve_search();
    let (is_over, calls) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (began, lasts) = (Instant::now(), Duration::from_secs(long.unwrap_or(0)));
    let mut crowds = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let request = QueryRequest { query: "bell".into(), ..QueryRequest::default() };
                client.query(request).wait().expect("a good pair is not disturbed");
                calls.fetch_add(1, Ordering::Relaxed);
            }
        });
        let _ends = EndsAtDrop(&is_over);
        while crowds == 0 || began.elapsed() < lasts {
            let _crowd = crowd(&address);
            crowds += 1;
            let listed = end(&mut trunkline(&["call", "-plaintext", &address, "list"]), "");
            assert!(listed.out.contains("search.v1.Search"), "one who speaks is served: {listed:?}");
            if has_room {
                assert!(host.verb(&["list"], "").out.contains("search.v1.Search"), "applications attach");
            }
            let before = calls.load(Ordering::Relaxed);
            while calls.load(Ordering::Relaxed) < before + 100 {
                std::thread::yield_now();
            }
        }
    });
    assert_eq!(host.child.try_wait().unwrap(), None, "the daemon is there");
    // The crowd has gone: there are descriptors for whoever asks.
    let lost = lost_lines(&metrics);
    eprintln!("{crowds} crowds of {CROWD}, {} calls, {lost} lines of the log lost", calls.into_inner());
    assert!(lost > 0, "a log that cannot be written loses lines, which are counted");
}

/// Ends the calls of the good pair, though the test fails.
struct EndsAtDrop<'a>(&'a AtomicBool);

impl Drop for EndsAtDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Where each shard has sockets of its own, the kernel spreads over them who connects: often the silent ones are on one
/// shard, and whoever speaks comes to the other.
#[test]
fn whoever_is_silent_gives_way_on_whichever_shard() {
    watched();
    let config = "[daemon]\nshards = 2\nconnections_max = 4\nconnections_per_source_max = 4\n\
                  listen = [\"tcp://127.0.0.1:0\"]\n";
    let host = Host::start_in_need(config, 1024, std::io::stderr());
    let listed: Value = serde_json::from_str(&host.verb(&["list", "--json"], "").out).unwrap();
    let address = listed["listening"][0].as_str().unwrap().strip_prefix("tcp://").unwrap().to_owned();
    let (_server, _client) = host.serve_search();
    for _ in 0..40 {
        let _silent: Vec<_> = (0..4).map(|_| TcpStream::connect(&address).unwrap()).collect();
        let listed = end(&mut trunkline(&["call", "-plaintext", &address, "list"]), "");
        assert!(listed.out.contains("search.v1.Search"), "one who speaks is served: {listed:?}");
    }
}

fn crowd(address: &str) -> Vec<TcpStream> {
    let come = |said: &[u8]| {
        let mut stream = TcpStream::connect(address).unwrap();
        // It may have had to give way already.
        let _ = stream.write_all(said);
        stream
    };
    SAID.into_iter().cycle().take(CROWD).map(come).collect()
}

/// Lines the daemon could not write, as its metrics say.
fn lost_lines(metrics: &str) -> u64 {
    loop {
        let mut answer = String::new();
        let asked = TcpStream::connect(metrics).and_then(|mut stream| {
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
            stream.read_to_string(&mut answer)
        });
        let figure = "trunkline_log_lines_lost_total{why=\"unwritten\"} ";
        if asked.is_ok()
            && let Some(line) = answer.lines().find_map(|line| line.strip_prefix(figure))
        {
            return line.parse().unwrap();
        }
        std::thread::yield_now();
    }
}

/// The pipe is full before the daemon says its first word.
#[test]
fn a_log_nobody_reads() {
    watched();
    let (mut reader, writer) = std::io::pipe().unwrap();
    let filled = fill(&writer);
    let config = "[log]\nlevel = \"debug\"\nlines_per_kind = 0";
    let mut host = Host::start_in_need(config, 1024, writer);
    let (_server, client) = host.serve_search();
    for _ in 0..20 {
        assert!(host.verb(&["list"], "").out.contains("search.v1.Search"), "applications attach");
        client.query(QueryRequest { query: "bell".into(), ..QueryRequest::default() }).wait().unwrap();
    }
    // When somebody reads after all, nothing is missing.
    let mut heard = vec![0; filled];
    reader.read_exact(&mut heard).unwrap();
    let mut line = String::new();
    let mut lines = std::io::BufReader::new(reader);
    while !line.contains("daemon is ready") {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "the line is there");
    }
    assert_eq!(host.child.try_wait().unwrap(), None, "the daemon is there");
    // It ends though nobody reads any more.
    drop(host.child.stdin.take());
    assert!(host.child.wait().unwrap().success());
}

/// Writes as much as there is room for.
fn fill(mut pipe: &std::io::PipeWriter) -> usize {
    rustix::io::ioctl_fionbio(pipe, true).unwrap();
    let filled = std::iter::from_fn(|| pipe.write(&[b'x'; 4096]).ok()).sum();
    rustix::io::ioctl_fionbio(pipe, false).unwrap();
    filled
}
