//! Shows the live page of a running daemon: what it says as JSON, that the page may run its own script and no other,
//! that hostile names stay names, and, where there is a browser, that it shows all of this.

#[path = "support/browser.rs"]
mod browser;
#[path = "support/greeter.rs"]
mod greeter;
mod support;

use browser::Browser;
use greeter::Hello;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use support::{Host, own_address, until, watched};
use trunkline::{Server, Wait};
use trunkline_example_greeter::proto::greeter_client::GreeterClient;
use trunkline_example_greeter::proto::greeter_server::GreeterServer;
use trunkline_example_greeter::proto::{HelloReply, HelloRequest};
use trunkline_example_search::proto::QueryRequest;

/// A name that would be more than a name, if it were put in as markup.
const HOSTILE: &str = "</script><img src=x onerror=\"document.title='owned'\">";
const CALLS: usize = 10;

fn config(address: SocketAddr) -> String {
    format!(
        "[daemon]\nnode = {HOSTILE:?}\n[metrics]\nlisten = [\"tcp://{address}\"]\n\
         [limits]\nmessage_bytes = 65536\n\
         [services.\"far.Away\"]\nendpoints = [\"tcp://127.0.0.1:1\"]\n\
         [[policy]]\nname = \"no-bells\"\nkind = \"access\"\nside = \"server\"\ndeny = 'application == \"bell\"'\n"
    )
}

/// The head and body of a page.
fn read(address: SocketAddr, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, text) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    (head.to_owned(), text.to_owned())
}

/// A daemon with calls, of which one was too long.
fn busy(address: SocketAddr) -> (Host, impl Sized) {
    let host = Host::start(&config(address));
    let (server, client) = host.serve_search();
    let query = |query: String| client.query(QueryRequest { query, ..QueryRequest::default() }).wait();
    for _ in 0..CALLS {
        query("bell".into()).unwrap();
    }
    let refused = query("b".repeat(100_000)).unwrap_err();
    assert_eq!(refused.code(), trunkline::Code::ResourceExhausted, "{refused:?}");
    (host, (server, client))
}

/// The JSON, once it knows of all calls: it is up to a second old.
fn seen(address: SocketAddr) -> Value {
    until("the calls", || {
        let seen: Value = serde_json::from_str(&read(address, "/live.json").1).unwrap();
        if seen["methods"][0]["calls"] == CALLS + 1 { Ok(seen) } else { Err(seen.to_string()) }
    })
}

#[test]
fn it_says_what_the_verbs_say() {
    watched();
    let address = own_address();
    let _busy = busy(address);
    let (head, _) = read(address, "/live.json");
    assert!(head.contains("content-type: application/json"), "{head}");
    let seen = seen(address);
    assert_eq!(seen["node"], HOSTILE, "a name is a name");
    let method = &seen["methods"][0];
    assert_eq!((&method["method"], &method["side"]), (&"/search.v1.Search/Query".into(), &"made".into()));
    assert_eq!(method["codes"], serde_json::json!([["RESOURCE_EXHAUSTED", 1]]));
    let parts = method["parts"].as_array().unwrap();
    assert_eq!(parts.len(), 10, "the nine, and what could not be divided");
    let whole: f64 = parts.iter().map(|part| part["share_percent"].as_f64().unwrap()).sum();
    assert!((whole - 100.0).abs() < 0.1, "{whole} % of the time");
    assert!(method["measured"].as_str().unwrap().contains("7 of 7, within this host: 10"), "{method}");
    let named = |list: &str, key: &str, name: &str| {
        let rows = seen[list].as_array().unwrap();
        rows.iter().find(|row| row[key].as_str().is_some_and(|found| found.starts_with(name))).cloned()
    };
    let application = named("applications", "name", "searcher").expect("the server");
    assert_eq!(application["serves"], serde_json::json!(["search.v1.Search"]));
    assert_eq!(named("services", "name", "search.v1.Search").unwrap()["servers"], 1);
    let endpoint =
        named("endpoints", "endpoint", "tcp://127.0.0.1:1").expect("an endpoint nobody has called");
    assert_eq!((&endpoint["service"], &endpoint["ejected"]), (&"far.Away".into(), &false.into()));
    assert_eq!(named("policies", "name", "no-bells").unwrap()["seen"], CALLS);
    let limits = seen["limits"].as_object().unwrap();
    assert!(
        limits.iter().any(|(name, calls)| name.contains("limits.message_bytes") && *calls == 1),
        "{seen}"
    );
    assert!(
        seen["memory"]
            .as_array()
            .unwrap()
            .iter()
            .any(|row| row[0] == "telemetry" && row[1].as_u64() > Some(0))
    );
    assert_eq!(seen["upgrade"]["under_way"], false);
}

#[test]
fn figures_for_prometheus_tell_the_same() {
    watched();
    let address = own_address();
    let _busy = busy(address);
    seen(address);
    let met = "trunkline_limit_met_total{limit=\"bytes of a message (limits.message_bytes)\"} 1";
    let text = until("the call that was too long", || {
        let text = read(address, "/metrics").1;
        if text.contains(met) { Ok(text) } else { Err(text) }
    });
    for line in [
        met,
        "trunkline_endpoint_ejected{endpoint=\"tcp://127.0.0.1:1\"} 0",
        "trunkline_endpoint_calls{endpoint=\"tcp://127.0.0.1:1\"} 0",
        "trunkline_attempts_total{what=\"retries\"} 0",
        "trunkline_attempts_total{what=\"pushed_back\"} 0",
        "trunkline_memory_bytes{owner=\"calls waiting for a worker\"} 0",
        "trunkline_handler_cpu_calls_total{side=\"made\",method=\"search.v1.Search/Query\",peer=\"(local)\"}",
    ] {
        assert!(text.lines().any(|found| found.starts_with(line)), "{line} in\n{text}");
    }
}

#[test]
fn the_page_runs_its_own_script_and_no_other() {
    watched();
    let address = own_address();
    let _host = Host::start(&config(address));
    let (head, page) = read(address, "/");
    assert!(head.contains("content-type: text/html"), "{head}");
    let policy = head.lines().find(|line| line.starts_with("content-security-policy:")).unwrap();
    assert!(policy.contains("default-src 'none'") && policy.contains("script-src 'sha256-"), "{policy}");
    assert!(
        !policy.split(';').any(|part| part.contains("script-src") && part.contains("unsafe")),
        "{policy}"
    );
    assert!(!page.contains("onerror"), "the page is the same whatever names there are");
    let (head, _) = read(address, "/metrics");
    assert!(!head.contains("script-src"), "{head}");
}

/// What a browser makes of the page. A host without one shows the rest.
#[test]
fn a_browser_shows_it() {
    watched();
    let address = own_address();
    let _busy = busy(address);
    seen(address);
    let Some(browser) = browser::name() else { return };
    let profile = tempfile::tempdir().unwrap();
    let mut command = Command::new(browser);
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000", "--dump-dom"]);
    command.arg(format!("--user-data-dir={}", profile.path().display())).arg(format!("http://{address}/"));
    let shown = command.stderr(Stdio::null()).output().unwrap();
    let shown = String::from_utf8_lossy(&shown.stdout);
    for text in
        ["/search.v1.Search/Query", "no-bells", "far.Away", "searcher", "limits.message_bytes", "telemetry"]
    {
        assert!(shown.contains(text), "{text} in {shown}");
    }
    assert!(shown.contains("&lt;/script&gt;&lt;img src=x"), "the name is text: {shown}");
    assert!(!shown.contains("<img"), "and nothing else: {shown}");
    assert!(!shown.contains("<title>owned"), "{shown}");
}

/// A method that is slow, beside calls of a host with much to do, too.
const SLOW: Hello = Hello(|_| {
    std::thread::sleep(Duration::from_millis(200));
    HelloReply::default()
});

/// Makes calls until it goes out of scope.
struct Load(Arc<AtomicBool>, Option<JoinHandle<()>>);

impl Load {
    fn of(call: impl Fn(usize) + Send + 'static) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            (0..).take_while(|_| !seen.load(Ordering::Relaxed)).for_each(|n| {
                call(n);
                std::thread::sleep(Duration::from_millis(2));
            });
        });
        Self(is_over, Some(thread))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        let ended = self.1.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || matches!(ended, Some(Ok(()))), "a call failed");
    }
}

/// Two daemons with calls between them, which go on: the address of the caller's page, and what keeps it all going.
fn two_daemons() -> (SocketAddr, impl Sized) {
    let (address, peer) = (own_address(), own_address());
    let served = Host::start(&format!("[daemon]\nnode = \"beta\"\nlisten = [\"tcp://{peer}\"]\n"));
    let (server, _) = served.serve_search();
    let slow =
        Server::builder().socket(served.socket()).name("greeter").add_service(GreeterServer::new(SLOW));
    let slow = slow.spawn().unwrap();
    slow.ready().wait().unwrap();
    let service = |name: &str| format!("[services.{name:?}]\nendpoints = [\"tcp://{peer}\"]\n");
    let made = Host::start(&format!(
        "[daemon]\nnode = \"alpha\"\n[metrics]\nlisten = [\"tcp://{address}\"]\n[limits]\nmessage_bytes = 65536\n\
         {}{}[[policy]]\nname = \"no-bells\"\nkind = \"access\"\nside = \"client\"\ndeny = 'false'\n",
        service("search.v1.Search"),
        service("greeter.v1.Greeter")
    ));
    let search =
        trunkline_example_search::proto::search_client::SearchClient::new(made.channel().connect_lazy());
    let greeter = GreeterClient::new(made.channel().connect_lazy());
    let query = |query: String| search.query(QueryRequest { query, ..QueryRequest::default() }).wait();
    for n in 0..100 {
        query("bell".into()).unwrap();
        if n % 10 == 0 {
            greeter.say_hello(HelloRequest::default()).wait().unwrap();
        }
    }
    query("b".repeat(100_000)).unwrap_err();
    // Fields end in this order: the calls before those who answer them.
    let load = Load::of(move |n| {
        let query = QueryRequest { query: "bell".into(), ..QueryRequest::default() };
        search.query(query).wait().unwrap();
        if n % 10 == 0 {
            greeter.say_hello(HelloRequest::default()).wait().unwrap();
        }
    });
    (address, (load, made, slow, server, served))
}

/// A person finds the method that was made slow in two clicks, sees what makes it slow, and finds every panel filled;
/// by keys alone, too; in the light and in the dark.
#[test]
fn a_slow_method_is_found_in_two_clicks() {
    watched();
    let Some(name) = browser::name() else { return };
    let (address, _running) = two_daemons();
    let url = format!("http://{address}/");
    let mut seen = Browser::open(&name, &url, false);
    seen.until("document.querySelectorAll('tr[data-id]').length >= 2");
    let panels = seen.value(
        "[...document.querySelectorAll('section')].map(one => [one.querySelector('h2').textContent, \
         one.querySelectorAll('tbody tr').length || one.querySelectorAll('p').length])",
    );
    let panels = panels.as_array().unwrap();
    assert_eq!(panels.len(), 9, "{panels:?}");
    let is_filled = |panel: &&Value| panel[1].as_u64().is_some_and(|rows| rows > 0);
    assert_eq!(panels.iter().filter(is_filled).count(), 9, "{panels:?}");
    let tables = seen.value("document.querySelectorAll('section table').length");
    assert_eq!(tables, 8, "all but how the last upgrade went: {panels:?}");
    assert_eq!(seen.value("document.body.textContent.includes('message_bytes')"), true, "the limit met");

    // Calls go on meanwhile: a column says how many a second.
    seen.until(
        "[...document.querySelectorAll('tr[data-id]')].every(row => parseFloat(row.children[2].textContent) > 0)",
    );

    seen.click("#sort-p99_ns");
    assert_eq!(
        seen.value("document.querySelector('tr[data-id]').dataset.id"),
        "made /greeter.v1.Greeter/SayHello"
    );
    seen.click("tr[data-id]");
    let largest = "[...document.querySelectorAll('.nine .bar')].map(bar => [parseFloat(bar.firstChild.style.width), \
                   bar.previousElementSibling.textContent]).sort((a, b) => b[0] - a[0])[0]";
    let largest = seen.value(largest);
    assert_eq!(largest[1], "server application", "{largest}");
    seen.picture("live-light");

    let mut seen = Browser::open(&name, &url, true);
    seen.until("document.querySelectorAll('tr[data-id]').length >= 2");
    assert_eq!(seen.value("getComputedStyle(document.body).backgroundColor"), "rgb(20, 24, 28)");
    seen.press("/");
    "greet".chars().for_each(|c| seen.press(&c.to_string()));
    assert_eq!(seen.value("document.querySelectorAll('tr[data-id]').length"), 1, "the filter");
    seen.press("Escape");
    seen.until("document.querySelectorAll('tr[data-id]').length >= 2");
    seen.value("document.activeElement.blur()");
    seen.until(
        "[...document.querySelectorAll('tr[data-id]')].every(row => parseFloat(row.children[2].textContent) > 0)",
    );
    // The busiest method comes first: the slow one is the second.
    seen.press("ArrowDown");
    seen.press("ArrowDown");
    assert_eq!(seen.value("document.activeElement.dataset.id"), "made /greeter.v1.Greeter/SayHello");
    seen.press("Enter");
    assert_eq!(seen.value("document.querySelectorAll('.nine').length"), 1, "it is open");
    seen.press("p");
    assert_eq!(seen.value("document.getElementById('stale').textContent"), "paused");
    seen.picture("live-dark");
    seen.press("Enter");
    assert_eq!(seen.value("document.querySelectorAll('.nine').length"), 0, "and shut");
}

/// The page is made anew all the time. What somebody points at stays where it is, and a click counts that the page is
/// made anew in.
#[test]
fn the_page_holds_still_under_a_pointer() {
    watched();
    let Some(name) = browser::name() else { return };
    let (address, _running) = two_daemons();
    let mut seen = Browser::open(&name, &format!("http://{address}/"), false);
    seen.until("document.querySelectorAll('tr[data-id]').length >= 2");
    seen.press("p");
    let rows = "[...document.querySelectorAll('tr[data-id]')].map(row => row.dataset.id)";
    let drawn = |seen: &mut Browser, sign: i32| {
        seen.value(&format!("state.last.methods.forEach((one, n) => one.rate = {sign} * n); draw()"));
        seen.value(rows)
    };
    let before = drawn(&mut seen, 1);
    seen.point("tr[data-id]");
    assert_eq!(drawn(&mut seen, -1), before, "none goes away from under the pointer");
    seen.point("h1");
    let after = drawn(&mut seen, -1);
    assert!(before.as_array().unwrap().iter().rev().eq(after.as_array().unwrap()), "{before} {after}");

    // By another column at once, wherever the page is made anew.
    seen.point("tr[data-id]");
    let at = seen.point("#sort-method");
    seen.button("mousePressed", &at);
    seen.value("draw()");
    seen.button("mouseReleased", &at);
    assert_eq!(
        seen.value("document.getElementById('sort-method').parentElement.ariaSort"),
        "ascending",
        "the click counts"
    );
    assert_eq!(seen.value(&format!("{rows}[0]")), "made /greeter.v1.Greeter/SayHello");
    // What came while a button was pressed is shown when it is let go of, click or none.
    let at = seen.point("h1");
    seen.button("mousePressed", &at);
    seen.value("state.last.node = 'gamma'; draw()");
    assert_ne!(seen.value("document.getElementById('node').textContent"), "gamma");
    seen.button("mouseReleased", &at);
    seen.until("document.getElementById('node').textContent === 'gamma'");
}
