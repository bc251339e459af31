//! Shows that calls made after the shape of a generated fleet go through two real daemons and are recorded with that
//! shape: method, sizes, calls above and below, outcome, and what they stand for.

mod support;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use support::{Host, end, own_address, trunkline, watched};

/// Of a call: bytes of request and response, calls below with itself, calls above.
type Shape = [u64; 4];

/// Calls by method and outcome: their shapes in order, and how many calls they stand for.
fn shapes(file: &str) -> BTreeMap<(String, String), (Vec<Shape>, f64)> {
    let csv = end(&mut trunkline(&["export", "--csv", file]), "");
    assert_eq!(csv.code, Some(0), "{}", csv.err);
    let mut lines = csv.out.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let head = lines.next().unwrap();
    let place = |name: &str| head.iter().position(|column| *column == name).unwrap();
    let columns = ["request_bytes", "response_bytes", "subtree", "ancestors"].map(place);
    let [method, code, weight] = ["method", "code", "weight"].map(place);
    let mut found: BTreeMap<(String, String), (Vec<Shape>, f64)> = BTreeMap::new();
    for line in lines {
        let (shapes, sum) = found.entry((line[method].to_owned(), line[code].to_owned())).or_default();
        shapes.push(columns.map(|column| line[column].parse().unwrap_or(0)));
        *sum += line[weight].parse::<f64>().unwrap();
    }
    found.values_mut().for_each(|(shapes, _)| shapes.sort_unstable());
    found
}

/// What handlers of calls that ended well told of their processor time, by method.
fn processor_times(file: &str) -> BTreeMap<String, Vec<u64>> {
    let csv = end(&mut trunkline(&["export", "--csv", file]), "");
    let mut lines = csv.out.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let head = lines.next().unwrap();
    let place = |name: &str| head.iter().position(|column| *column == name).unwrap();
    let [method, code, cpu_ns] = ["method", "code", "cpu_ns"].map(place);
    let mut found: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for line in lines.filter(|line| line[code] == "OK") {
        let told_ns: u64 = line[cpu_ns].parse().unwrap_or(0);
        found.entry(line[method].to_owned()).or_default().extend((told_ns > 0).then_some(told_ns));
    }
    found.retain(|_, told| !told.is_empty());
    found
}

const CALLER: &str = "[daemon]\nnode = \"alpha\"\n[recorder]\ntraces = true\nsample = 1.0\n";
/// Calls begin at their times, whatever the host is busy with: more are under way then than a daemon usually lets in.
const ROOM: &str = "[limits]\ncalls_made_per_session = 65536\ncalls_delivered_per_session = 65536\n";

/// A daemon for the servers, and where it listens.
fn server() -> (Host, SocketAddr) {
    let port = own_address();
    (Host::start(&format!("[daemon]\nnode = \"beta\"\nlisten = [\"tcp://{port}\"]\n{ROOM}")), port)
}

/// Hosts of two clusters make the calls that the file has of theirs: figures by cluster can be drawn then.
#[test]
fn each_cluster_makes_its_calls() {
    watched();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let planned = file("planned.rec");
    let synth = end(&mut trunkline(&["synth", "--methods", "20", "--calls", "200", "-o", &planned]), "");
    assert_eq!(synth.code, Some(0), "{synth:?}");
    let (beta, port) = server();
    let (server, to) = (beta.socket().to_str().unwrap().to_owned(), format!("tcp://{port}"));
    let drive = |cluster: &str| {
        let (alpha, out) = (Host::start(&format!("{CALLER}{ROOM}")), file(cluster));
        let verb = ["drive", &planned, "--server-socket", &server, "--to", &to, "--rate", "1000/s"];
        let options = ["--time-scale", "0.05", "--below-max", "2", "--message-bytes-max", "4096"];
        let more = ["--cluster", cluster, "--work", "1", "--in-flight-max", "64", "-o", &out];
        (alpha.verb(&[&verb[..], &options, &more].concat(), ""), out)
    };
    let (none, _) = drive("elsewhere");
    assert!(none.code == Some(1) && none.err.contains("no calls of cluster elsewhere"), "{none:?}");
    let files = ["cluster-03", "cluster-07"].map(|cluster| {
        let (driven, out) = drive(cluster);
        assert_eq!(driven.code, Some(0), "{driven:?}");
        out
    });
    let check = end(&mut trunkline(&["characterize", &files[0], &files[1], "--check"]), "");
    let line = check.out.lines().find(|line| line.contains("cluster count")).unwrap();
    assert!(line.split_whitespace().any(|word| word == "2"), "{line}");
    assert!(!line.contains("out of reach"), "{line}");
    // Handlers took at least the processor time of those in the file, and say so also if their calls were cancelled.
    // What it takes to answer is part of it, and not known before.
    const ANSWER_NS: u64 = 8_000;
    let wanted = processor_times(&planned);
    for (method, told_ns) in files.iter().flat_map(|file| processor_times(file)) {
        let (least, most) = (told_ns.iter().min(), wanted[&method].iter().min());
        assert!(least.map(|ns| ns + ANSWER_NS) >= most.copied(), "{method}: {least:?} of {most:?}");
    }
    let cancelled = check.out.lines().find(|line| line.contains("CANCELLED: share of their cycles")).unwrap();
    assert!(!cancelled.contains("out of reach") && !cancelled.contains(" 0 "), "{cancelled}");
    let report = file("report");
    let drawn = end(&mut trunkline(&["characterize", &files[0], &files[1], "-o", &report]), "");
    assert_eq!(drawn.code, Some(0), "{drawn:?}");
    let page = std::fs::read_to_string(folder.path().join("report").join("index.html")).unwrap();
    assert!(
        page.contains(": the slowest cluster takes") && page.contains("which has most calls of its service"),
        "Figures 16 and 19 are drawn"
    );
    // Weights are those of the calls that the file has of the cluster.
    let stands_for = |file: &str| shapes(file).values().map(|(_, weight)| weight).sum::<f64>();
    let both: f64 = files.iter().map(|file| stands_for(file)).sum();
    assert!(both < stands_for(&planned) / 2.0, "{both}");
}

/// Of a call, in nanoseconds: all of it, both wires, both stacks, the four queues.
type Times = [u64; 4];

/// Calls of a method that ended well: their times, and the cluster of who made them.
fn times(file: &str) -> BTreeMap<String, Vec<(String, Times)>> {
    let csv = end(&mut trunkline(&["export", "--csv", file]), "");
    let mut lines = csv.out.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let head = lines.next().unwrap();
    let place = |name: &str| head.iter().position(|column| *column == name).unwrap();
    let [method, code, cluster] = ["method", "code", "cluster"].map(place);
    let places = |name: &str| -> Vec<usize> {
        (0..head.len()).filter(|at| head[*at].ends_with(&format!("{name}_ns"))).collect()
    };
    let columns = ["total", "wire", "stack", "queue"].map(places);
    let mut found: BTreeMap<String, Vec<(String, Times)>> = BTreeMap::new();
    for line in lines.filter(|line| line[code] == "OK") {
        let of = |columns: &Vec<usize>| columns.iter().map(|at| line[*at].parse::<u64>().unwrap()).sum();
        let times = [of(&columns[0]), of(&columns[1]), of(&columns[2]), of(&columns[3])];
        found.entry(line[method].to_owned()).or_default().push((line[cluster].to_owned(), times));
    }
    found
}

/// The four queues of calls that ended well, in the order in which a call has them, with their whole time; by method.
fn queues(file: &str) -> BTreeMap<String, Vec<(String, [u64; 5])>> {
    let csv = end(&mut trunkline(&["export", "--csv", file]), "");
    let mut lines = csv.out.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let head = lines.next().unwrap();
    let place = |name: &str| head.iter().position(|column| *column == name).unwrap();
    let [method, code, cluster] = ["method", "code", "cluster"].map(place);
    let columns = [
        "total_ns",
        "client_send_queue_ns",
        "server_receive_queue_ns",
        "server_send_queue_ns",
        "client_receive_queue_ns",
    ]
    .map(place);
    let mut found: BTreeMap<String, Vec<(String, [u64; 5])>> = BTreeMap::new();
    for line in lines.filter(|line| line[code] == "OK") {
        let times = columns.map(|column| line[column].parse().unwrap());
        found.entry(line[method].to_owned()).or_default().push((line[cluster].to_owned(), times));
    }
    for calls in found.values_mut() {
        calls.sort_by_key(|(cluster, times)| (cluster.clone(), times[0]));
    }
    found
}

/// Each of the queues is as long as in the file, where that is long enough to be told from what a host adds: in most
/// calls about so long. An answer that a busy host has late waits less in the last two; the first two are never
/// shorter.
fn has_queues_of(driven: &str, planned: &str) {
    const LONG_NS: u64 = 2_000_000;
    let (planned, made) = (queues(planned), queues(driven));
    for queue in 1..5 {
        let mut off: Vec<i64> = Vec::new();
        for (method, made) in &made {
            let of_cluster = |(cluster, _): &&(String, _)| made.iter().any(|(own, _)| own == cluster);
            let wanted: Vec<_> = planned[method].iter().filter(of_cluster).collect();
            let calls = made.iter().zip(wanted).filter(|(_, (_, wanted))| wanted[queue] >= LONG_NS);
            off.extend(calls.map(|((_, made), (_, wanted))| {
                let (made, wanted) = (made[queue] as i64, wanted[queue] as i64);
                (made - wanted) * 1_000 / wanted
            }));
        }
        off.sort_unstable();
        assert!(off.len() >= 20, "queue {queue}: {} calls", off.len());
        let (low, middle) = (off[0], off[off.len() / 2]);
        assert!(queue > 2 || low >= 0, "queue {queue}: off by {low} ‰ of {off:?}");
        assert!((-200..500).contains(&middle), "queue {queue}: off by {middle} ‰ of {off:?}");
    }
}

/// Hosts of two clusters at once, with the wires, stacks and queues that the file has: each is where it was planted.
#[test]
fn wires_stacks_and_queues_are_planted() {
    watched();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let [planned, driven] = ["planned.rec", "driven.rec"].map(file);
    let synth = end(&mut trunkline(&["synth", "--methods", "300", "--calls", "10", "-o", &planned]), "");
    assert_eq!(synth.code, Some(0), "{synth:?}");
    let (beta, port) = server();
    let hosts = ["cluster-02", "cluster-09"].map(|cluster| {
        let host = Host::start(&format!("{CALLER}{ROOM}").replace("alpha", cluster));
        let caller = format!("{cluster}={}", host.socket().display());
        (host, caller)
    });
    let (server, to) = (beta.socket().to_str().unwrap().to_owned(), format!("tcp://{port}"));
    let verb = ["drive", &planned, "--server-socket", &server, "--to", &to, "--rate", "100/s", "--plant"];
    let callers = ["--caller", &hosts[0].1, "--caller", &hosts[1].1];
    let options = ["--below-max", "2", "--message-bytes-max", "65536", "-o", &driven];
    let drive = end(&mut trunkline(&[&verb[..], &callers, &options].concat()), "");
    assert!(drive.code == Some(0) && !drive.out.contains("not as those"), "{drive:?}");

    let files = [planned.clone(), driven.clone()];
    let (planned, made) = (times(&planned), times(&driven));
    let mut far = 0;
    for (method, made) in &made {
        let mut wanted: Vec<&(String, Times)> = planned[method]
            .iter()
            .filter(|(cluster, _)| made.iter().any(|(own, _)| own == cluster))
            .collect();
        wanted.sort_by_key(|(cluster, times)| (cluster, times[0]));
        let mut made: Vec<&(String, Times)> = made.iter().collect();
        made.sort_by_key(|(cluster, times)| (cluster, times[0]));
        assert_eq!(made.len(), wanted.len(), "{method}");
        // A busy host makes all of it longer, and never shorter: a relay's time is nearly that of the wire, and what it
        // has too little of, the stack has.
        for ((own, made), (_, wanted)) in made.iter().zip(&wanted) {
            assert!(["cluster-02", "cluster-09"].contains(&own.as_str()), "{own}");
            assert!(made[0] + 1_000 >= wanted[0], "{method}: {made:?} of {wanted:?}");
        }
        let sum =
            |calls: &[&(String, Times)], part: usize| calls.iter().map(|(_, times)| times[part]).sum::<u64>();
        let network = |calls: &[&(String, Times)]| sum(calls, 1) + sum(calls, 2);
        let (got, least) = (network(&made), network(&wanted) * 19 / 20);
        assert!(got >= least, "{method}: {made:?} of {wanted:?}");
        far += usize::from(sum(&made, 1) > 2_000_000);
    }
    assert!(far > 20, "{far} methods with calls from afar");
    has_queues_of(&files[1], &files[0]);
    let check = end(&mut trunkline(&["characterize", &driven, "--check"]), "");
    let of = |name: &str| check.out.lines().find(|line| line.contains(name)).unwrap().to_owned();
    assert!(!of("tail tax is wire").contains("out of reach"), "{check:?}");
    let report = file("report");
    let drawn = end(&mut trunkline(&["characterize", &driven, "-o", &report]), "");
    assert_eq!(drawn.code, Some(0), "{drawn:?}");
    let page = std::fs::read_to_string(folder.path().join("report").join("index.html")).unwrap();
    assert!(page.contains("Wires, stacks and queues were planted"), "the page says so");
}

#[test]
fn a_generated_fleet_goes_through_two_daemons() {
    const BELOW_MAX: u64 = 6;
    const BYTES_MAX: u64 = 4096;
    watched();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let [planned, driven] = ["planned.rec", "driven.rec"].map(file);
    let synth = end(&mut trunkline(&["synth", "--methods", "300", "--calls", "10", "-o", &planned]), "");
    assert_eq!(synth.code, Some(0), "{synth:?}");
    let (beta, port) = server();
    let alpha = Host::start(&format!("{CALLER}{ROOM}"));
    let (bytes, below, to) = (BYTES_MAX.to_string(), BELOW_MAX.to_string(), format!("tcp://{port}"));
    let drive = alpha.verb(
        &[
            "drive",
            &planned,
            "--server-socket",
            beta.socket().to_str().unwrap(),
            "--to",
            &to,
            "--rate",
            "500/s",
            "--time-scale",
            "0.05",
            "--below-max",
            &below,
            "--message-bytes-max",
            &bytes,
            "-o",
            &driven,
        ],
        "",
    );
    assert!(drive.code == Some(0), "{drive:?}");
    assert!(!drive.out.contains("not as those") && !drive.out.contains("overwritten"), "{drive:?}");

    let (planned, driven_calls) = (shapes(&planned), shapes(&driven));
    assert_eq!(
        planned.keys().collect::<Vec<_>>(),
        driven_calls.keys().collect::<Vec<_>>(),
        "methods and outcomes: {drive:?}"
    );
    for (of, (wanted, stands_for)) in &planned {
        let (got, sum) = &driven_calls[of];
        assert!((sum / stands_for - 1.0).abs() < 1e-3, "{of:?} stands for {sum}, not {stands_for}");
        let within = |shape: &Shape| {
            let [request, response, subtree, above] = *shape;
            [request.min(BYTES_MAX), response.min(BYTES_MAX), subtree.min(BELOW_MAX + 1), above]
        };
        let mut wanted: Vec<Shape> = wanted.iter().map(within).collect();
        wanted.sort_unstable();
        match of.1.as_str() {
            "OK" => assert_eq!(got, &wanted, "{of:?}"),
            // An error has no answer, and who is cancelled tells nothing of calls below.
            _ => assert_eq!(
                got.iter().map(|shape| shape[0]).collect::<Vec<_>>(),
                wanted.iter().map(|shape| shape[0]).collect::<Vec<_>>(),
                "{of:?}"
            ),
        }
    }

    let check = end(&mut trunkline(&["characterize", &driven, "--check"]), "");
    assert!(check.out.contains("made by `trunkline drive`, times divided by 0.05"), "{check:?}");
    assert!(check.out.contains("out of reach: handlers wait"), "{check:?}");
    let errors = check.out.lines().find(|line| line.contains("error rate")).unwrap();
    assert!(errors.trim_end().ends_with("reached") && !errors.contains("not reached"), "{errors}");
}
