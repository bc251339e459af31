//! A definition that was found sound: its scope, its expressions parsed, its numbers in the units of use.

use crate::definition::{ClassName, Definition, EncodingName, Kind, OnFault, Side};
use crate::expr::{Expression, Wanted};
use crate::queue::QueueSettings;
use crate::refused::Wrong;
use crate::state::Slot;
use std::sync::Arc;
use trunkline_balance::Settings;
use trunkline_call::{Code, WorkerChoice};

/// One policy of a chain.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub definition: Definition,
    pub when: Option<Expression>,
    pub action: Action,
    /// Where its state is kept.
    pub slot: Slot,
}

/// What a policy does to the calls it applies to.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    Access {
        condition: Expression,
        passes_if: bool,
    },
    RateLimit {
        key: Option<Expression>,
        interval_ns: u64,
        burst: u32,
        keys_max: usize,
    },
    Fault {
        percent: f64,
        delay_ns: u64,
        abort: Option<Code>,
    },
    Timeout {
        ns: u64,
    },
    AccessLog {
        percent: f64,
    },
    ConcurrencyLimit {
        calls_max: u32,
    },
    Balance(Box<Settings>),
    Queue {
        settings: QueueSettings,
        urgent: Option<Expression>,
    },
    Compress {
        encoding: EncodingName,
    },
    Priority(Class),
    Workers {
        choice: WorkerChoice,
        reserved: usize,
    },
    Mirror {
        percent: f64,
        target: Arc<str>,
        timeout_ns: u64,
        calls_max: u32,
    },
    /// The fields are known once the module is loaded.
    Module {
        fields: Vec<ModuleInput>,
        on_fault: OnFault,
    },
}

/// A field a module wants to see.
#[derive(Clone, Debug)]
pub(crate) struct ModuleInput {
    pub expression: Expression,
    pub optional: bool,
}

/// A call's place among those of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Class {
    /// Ahead of the others.
    Latency,
    /// Behind: while calls of the other class are about, all calls of this one move so many bytes a second.
    Batch {
        /// At least 1.
        bytes_per_second: u64,
    },
}

/// Nobody means longer: an hour.
const TIME_MS_MAX: u64 = 3_600_000;
/// Keys a bucket table remembers unless told otherwise: 24 bytes each.
const KEYS_DEFAULT: u32 = 10_000;
const KEYS_MAX: u32 = 1 << 20;
/// A billion calls a second is no limit.
const RATE_MAX: f64 = 1e9;
/// Calls that wait are held by the daemon or their senders: a thousand of a KiB are a MiB.
const WAITING_DEFAULT: u32 = 1000;
const WAITING_MAX: u32 = 1 << 20;
/// Copies under way at once: a shadow that keeps up with a thousand calls a second at 50 ms each has fewer.
const COPIES_DEFAULT: u32 = 64;
const COPIES_MAX: u32 = 65_536;
/// Envoy's route timeout.
const COPY_MS_DEFAULT: u64 = 15_000;
/// A list of some hundred addresses.
const TARGET_BYTES_MAX: usize = 4096;
/// The values of "Fail at Scale" (`queue.rs`).
const TARGET_MS_DEFAULT: u64 = 5;
const INTERVAL_MS_DEFAULT: u64 = 100;
/// A mebibyte keeps cores and caches of both hosts busy for about half a millisecond. Sixteen a second disturb fewer
/// than one call in a hundred (docs/measured/history/beside.md), so the 99th percentile does not see them.
const BATCH_BYTES_PER_SECOND_DEFAULT: u64 = 16 << 20;
/// Words for a caller travel in the status message, and that in one metadata value.
const MESSAGE_BYTES_MAX: usize = 1024;
/// Sessions one daemon can have by default.
const RESERVED_MAX: u32 = 1024;
/// Linux: PATH_MAX.
const PATH_BYTES_MAX: usize = 4096;

impl Rule {
    /// Checks a definition by itself.
    pub fn of(definition: &Definition) -> Result<Self, Wrong> {
        check_name(&definition.name)?;
        check_scope(definition)?;
        check_keys(definition)?;
        let when =
            definition.when.as_deref().map(|text| expression("when", text, Wanted::Bool)).transpose()?;
        if let Some(message) = &definition.message
            && (message.len() > MESSAGE_BYTES_MAX || message.contains(char::is_control))
        {
            let problem = format!("must be at most {MESSAGE_BYTES_MAX} bytes of printable text");
            return Err(Wrong::new("message", problem, "say what the caller should do instead"));
        }
        let action = action(definition)?;
        Ok(Self { definition: definition.clone(), when, action, slot: Slot::NONE })
    }

    /// Whether it stands in the way of calls of this kind.
    pub fn applies_to(&self, side: Side, application: &str, (service, method): (&str, &str)) -> bool {
        if matches!(self.action, Action::Balance(_)) {
            return false;
        }
        let definition = &self.definition;
        let wants =
            |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| wanted == found);
        definition.side == side
            && wants(&definition.application, application)
            && wants(&definition.service, service)
            && wants(&definition.method, method)
    }

    /// Whether it is compiled for one request type.
    pub fn needs_schema(&self) -> bool {
        let fields: &[ModuleInput] =
            if let Action::Module { fields, .. } = &self.action { fields } else { &[] };
        let fields = fields.iter().map(|field| &field.expression);
        self.expressions().map(|(_, own)| own).chain(fields).any(Expression::needs_schema)
    }

    /// Every expression with its key.
    pub fn expressions(&self) -> impl Iterator<Item = (&'static str, &Expression)> {
        let own = match &self.action {
            Action::Access { condition, passes_if } => {
                Some((if *passes_if { "allow" } else { "deny" }, condition))
            }
            Action::RateLimit { key, .. } => key.as_ref().map(|key| ("key", key)),
            Action::Queue { urgent, .. } => urgent.as_ref().map(|urgent| ("urgent", urgent)),
            _ => None,
        };
        self.when.as_ref().map(|when| ("when", when)).into_iter().chain(own)
    }

    /// Whether it refuses every call in its scope.
    pub fn refuses_all(&self) -> bool {
        let always = |text: &str, value: &str| text.trim() == value;
        self.when.is_none()
            && match &self.action {
                Action::Access { condition, passes_if: true } => always(condition.text(), "false"),
                Action::Access { condition, passes_if: false } => always(condition.text(), "true"),
                _ => false,
            }
    }

    /// Whether every call in `other`'s scope is in this one's.
    pub fn covers(&self, other: &Self) -> bool {
        let wider = |own: &Option<String>, others: &Option<String>| own.is_none() || own == others;
        let (own, others) = (&self.definition, &other.definition);
        own.side == others.side
            && wider(&own.application, &others.application)
            && wider(&own.service, &others.service)
            && wider(&own.method, &others.method)
    }
}

fn check_name(name: &str) -> Result<(), Wrong> {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if name.is_empty() || name.len() > 64 || !name.bytes().all(legal) {
        let problem = format!("{name:?} is no name");
        return Err(Wrong::new("name", problem, "write 1 to 64 of a-z A-Z 0-9 - _ ."));
    }
    Ok(())
}

fn check_scope(definition: &Definition) -> Result<(), Wrong> {
    let name = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    if let Some(service) = &definition.service
        && !service.split('.').all(|part| !part.is_empty() && part.bytes().all(name))
    {
        let advice = "write it as in the .proto, with its package: \"search.v1.Search\"";
        return Err(Wrong::new("service", format!("{service:?} is not the full name of a service"), advice));
    }
    match (&definition.method, &definition.service) {
        (Some(_), None) => {
            Err(Wrong::new("method", "a method needs its service", "add service = \"package.Service\""))
        }
        (Some(method), _) if method.is_empty() || !method.bytes().all(name) => Err(Wrong::new(
            "method",
            format!("{method:?} is not the name of a method"),
            "write it without its service",
        )),
        _ => Ok(()),
    }
}

/// Keys that are set and do not belong to the kind.
fn check_keys(definition: &Definition) -> Result<(), Wrong> {
    let d = definition;
    let all: [(&'static str, bool); 34] = [
        ("allow", d.allow.is_some()),
        ("deny", d.deny.is_some()),
        ("message", d.message.is_some()),
        ("calls_per_second", d.calls_per_second.is_some()),
        ("burst", d.burst.is_some()),
        ("key", d.key.is_some()),
        ("keys_max", d.keys_max.is_some()),
        ("percent", d.percent.is_some()),
        ("delay_ms", d.delay_ms.is_some()),
        ("abort", d.abort.is_some()),
        ("target", d.target.is_some()),
        ("timeout_ms", d.timeout_ms.is_some()),
        ("calls_max", d.calls_max.is_some()),
        ("encoding", d.encoding.is_some()),
        ("class", d.class.is_some()),
        ("bytes_per_second", d.bytes_per_second.is_some()),
        ("urgent", d.urgent.is_some()),
        ("waiting_max", d.waiting_max.is_some()),
        ("target_ms", d.target_ms.is_some()),
        ("interval_ms", d.interval_ms.is_some()),
        ("pick", d.pick.is_some()),
        ("choices", d.choices.is_some()),
        ("hash_header", d.hash_header.is_some()),
        ("outstanding_max", d.outstanding_max.is_some()),
        ("pending_max", d.pending_max.is_some()),
        ("eject_after", d.eject_after.is_some()),
        ("eject_ms", d.eject_ms.is_some()),
        ("eject_percent_max", d.eject_percent_max.is_some()),
        ("worker_class", d.worker_class.is_some()),
        ("sticky", d.sticky.is_some()),
        ("workers_reserved", d.workers_reserved.is_some()),
        ("path", d.path.is_some()),
        ("config", d.config.is_some()),
        ("on_fault", d.on_fault.is_some()),
    ];
    let own: &[&str] = match d.kind {
        Kind::Access => &["allow", "deny", "message"],
        Kind::RateLimit => &["calls_per_second", "burst", "key", "keys_max", "message"],
        Kind::Fault => &["percent", "delay_ms", "abort", "message"],
        Kind::Timeout => &["timeout_ms"],
        Kind::Mirror => &["target", "percent", "calls_max", "timeout_ms"],
        Kind::AccessLog => &["percent"],
        Kind::ConcurrencyLimit => &["calls_max", "message"],
        Kind::Compress => &["encoding"],
        Kind::Module => &["path", "config", "on_fault"],
        Kind::Priority => &["class", "bytes_per_second"],
        Kind::Workers => &["worker_class", "sticky", "workers_reserved"],
        Kind::Queue => &["calls_max", "waiting_max", "target_ms", "interval_ms", "urgent", "message"],
        Kind::Balance => &[
            "pick",
            "choices",
            "hash_header",
            "outstanding_max",
            "pending_max",
            "eject_after",
            "eject_ms",
            "eject_percent_max",
        ],
    };
    match all.iter().find(|(key, set)| *set && !own.contains(key)) {
        Some((key, _)) => {
            let problem = format!("does not belong to kind {:?}", d.kind.name());
            Err(Wrong::new(key, problem, format!("its keys: {}", own.join(", "))))
        }
        None => Ok(()),
    }
}

fn action(definition: &Definition) -> Result<Action, Wrong> {
    match definition.kind {
        Kind::Balance => Ok(Action::Balance(Box::new(crate::balance::settings(definition)?))),
        Kind::Queue => queue(definition),
        Kind::Compress if definition.side == Side::Server => {
            let advice = "write \"client\": responses are compressed as grpc.response_encoding says";
            Err(Wrong::new("side", "is \"server\"", advice))
        }
        Kind::Compress => Ok(Action::Compress { encoding: needed("encoding", definition.encoding)? }),
        Kind::Module => module(definition),
        Kind::Priority => priority(definition),
        Kind::Workers => workers(definition),
        Kind::Access => access(definition),
        Kind::RateLimit => rate_limit(definition),
        Kind::Fault => fault(definition),
        Kind::Mirror => mirror(definition),
        Kind::Timeout => {
            Ok(Action::Timeout { ns: time_ns("timeout_ms", needed("timeout_ms", definition.timeout_ms)?)? })
        }
        Kind::AccessLog => Ok(Action::AccessLog { percent: percent(definition.percent.unwrap_or(100.0))? }),
        Kind::ConcurrencyLimit => match needed("calls_max", definition.calls_max)? {
            0 => Err(Wrong::new(
                "calls_max",
                "is 0",
                "write a number from 1; to refuse every call use kind \"access\"",
            )),
            calls_max => Ok(Action::ConcurrencyLimit { calls_max }),
        },
    }
}

fn workers(d: &Definition) -> Result<Action, Wrong> {
    if d.when.is_some() {
        let advice =
            "leave it out: a worker is found before anybody looks at a call; name a service or a method";
        return Err(Wrong::new("when", "does not belong to kind \"workers\"", advice));
    }
    let class = match d.worker_class {
        None => None,
        Some(number) => Some(WorkerChoice::class_of(number.into()).ok_or_else(|| {
            Wrong::new("worker_class", format!("is {number}"), "write a number from 0 to 31")
        })?),
    };
    if class.is_none() && d.sticky.is_none() {
        return Err(Wrong::new(
            "",
            "has neither worker_class nor sticky",
            "add worker_class = 1 or sticky = true",
        ));
    }
    let reserved = match d.workers_reserved {
        None => 0,
        Some(count @ 1..=RESERVED_MAX)
            if class.is_some() && d.side == Side::Server && d.service.is_some() =>
        {
            count
        }
        Some(1..=RESERVED_MAX) => {
            let advice =
                "add worker_class and service, and write side = \"server\": they are workers of this host";
            return Err(Wrong::new("workers_reserved", "says nothing by itself", advice));
        }
        Some(count) => {
            let advice = format!("write a number from 1 to {RESERVED_MAX}");
            return Err(Wrong::new("workers_reserved", format!("is {count}"), advice));
        }
    };
    Ok(Action::Workers { choice: WorkerChoice { class, sticky: d.sticky }, reserved: reserved as usize })
}

fn access(definition: &Definition) -> Result<Action, Wrong> {
    let (key, text, passes_if) = match (&definition.allow, &definition.deny) {
        (Some(allow), None) => ("allow", allow, true),
        (None, Some(deny)) => ("deny", deny, false),
        (Some(_), Some(_)) => {
            let problem = "a policy has either allow or deny";
            return Err(Wrong::new(
                "deny",
                problem,
                "write two policies; the first one that refuses decides",
            ));
        }
        (None, None) => {
            return Err(Wrong::new(
                "",
                "has neither allow nor deny",
                "add deny = 'request.field == \"value\"'",
            ));
        }
    };
    Ok(Action::Access { condition: expression(key, text, Wanted::Bool)?, passes_if })
}

fn rate_limit(definition: &Definition) -> Result<Action, Wrong> {
    let rate = needed("calls_per_second", definition.calls_per_second)?;
    if !(rate > 0.0 && rate <= RATE_MAX) {
        return Err(Wrong::new(
            "calls_per_second",
            format!("is {rate}"),
            "write a number above 0, up to 1e9",
        ));
    }
    let burst = definition.burst.unwrap_or(1.0f64.max(rate).min(1e9) as u32);
    if burst == 0 {
        return Err(Wrong::new("burst", "is 0", "write a number from 1"));
    }
    let keys_max = definition.keys_max.unwrap_or(KEYS_DEFAULT);
    if !(1..=KEYS_MAX).contains(&keys_max) {
        return Err(Wrong::new(
            "keys_max",
            format!("is {keys_max}"),
            format!("write a number from 1 to {KEYS_MAX}"),
        ));
    }
    let key = definition.key.as_deref().map(|text| expression("key", text, Wanted::Key)).transpose()?;
    let interval_ns = (1e9 / rate).round().max(1.0) as u64;
    Ok(Action::RateLimit { key, interval_ns, burst, keys_max: keys_max as usize })
}

fn fault(definition: &Definition) -> Result<Action, Wrong> {
    let delay_ns = time_ns("delay_ms", definition.delay_ms.unwrap_or(0))?;
    let abort = definition.abort.map(|code| code.0);
    if delay_ns == 0 && abort.is_none() {
        return Err(Wrong::new(
            "",
            "neither delays nor aborts",
            "add delay_ms = 50 or abort = \"UNAVAILABLE\"",
        ));
    }
    Ok(Action::Fault { percent: percent(definition.percent.unwrap_or(100.0))?, delay_ns, abort })
}

fn mirror(definition: &Definition) -> Result<Action, Wrong> {
    if definition.side != Side::Client {
        let advice = "write \"client\": who calls sends the copy, and a host that serves has none to send";
        return Err(Wrong::new("side", "is \"server\"", advice));
    }
    let target = needed("target", definition.target.as_deref())?;
    if target.is_empty() || target.len() > TARGET_BYTES_MAX || target.contains(char::is_control) {
        let advice = "write an address or a name, such as \"tcp://10.0.0.9:7878\" or \"dns:///shadow:80\"";
        return Err(Wrong::new("target", format!("is {target:?}"), advice));
    }
    let calls_max = definition.calls_max.unwrap_or(COPIES_DEFAULT);
    if !(1..=COPIES_MAX).contains(&calls_max) {
        let advice = format!("write a number from 1 to {COPIES_MAX}; to send none take the policy out");
        return Err(Wrong::new("calls_max", format!("is {calls_max}"), advice));
    }
    Ok(Action::Mirror {
        percent: percent(definition.percent.unwrap_or(100.0))?,
        target: target.into(),
        timeout_ns: time_ns("timeout_ms", definition.timeout_ms.unwrap_or(COPY_MS_DEFAULT))?,
        calls_max,
    })
}

fn queue(definition: &Definition) -> Result<Action, Wrong> {
    if definition.side != Side::Server {
        let advice = "write \"server\": calls wait for those who serve them";
        return Err(Wrong::new("side", "is \"client\"", advice));
    }
    let calls_max = needed("calls_max", definition.calls_max)?;
    let waiting_max = definition.waiting_max.unwrap_or(WAITING_DEFAULT);
    for (key, value) in [("calls_max", calls_max), ("waiting_max", waiting_max)] {
        if !(1..=WAITING_MAX).contains(&value) {
            let advice = format!("write a number from 1 to {WAITING_MAX}");
            return Err(Wrong::new(key, format!("is {value}"), advice));
        }
    }
    let interval_ms = definition.interval_ms.unwrap_or(INTERVAL_MS_DEFAULT);
    let target_ms = definition.target_ms.unwrap_or(TARGET_MS_DEFAULT.min(interval_ms));
    let (target_ns, interval_ns) = (time_ns("target_ms", target_ms)?, time_ns("interval_ms", interval_ms)?);
    if target_ns == 0 || target_ns > interval_ns {
        let advice = format!("write a number from 1 to interval_ms, which is {interval_ms}");
        return Err(Wrong::new("target_ms", format!("is {target_ms}"), advice));
    }
    let urgent =
        definition.urgent.as_deref().map(|text| expression("urgent", text, Wanted::Bool)).transpose()?;
    Ok(Action::Queue { settings: QueueSettings { calls_max, waiting_max, target_ns, interval_ns }, urgent })
}

fn module(definition: &Definition) -> Result<Action, Wrong> {
    let path = needed("path", definition.path.as_deref())?;
    if !path.starts_with('/') || path.len() > PATH_BYTES_MAX || path.contains(char::is_control) {
        let advice = "write an absolute path: the daemon has a working directory of its own";
        return Err(Wrong::new("path", format!("is {path:?}"), advice));
    }
    crate::module::source(definition)?;
    Ok(Action::Module { fields: Vec::new(), on_fault: definition.on_fault.unwrap_or_default() })
}

fn priority(definition: &Definition) -> Result<Action, Wrong> {
    let class = match (needed("class", definition.class)?, definition.bytes_per_second) {
        (ClassName::Latency, None) => Class::Latency,
        (ClassName::Latency, Some(_)) => {
            let advice = "take it out, or write class = \"batch\"";
            return Err(Wrong::new("bytes_per_second", "does not belong to class \"latency\"", advice));
        }
        (ClassName::Batch, Some(0)) => {
            let advice = "write a number from 1; to refuse every call use kind \"access\"";
            return Err(Wrong::new("bytes_per_second", "is 0", advice));
        }
        (ClassName::Batch, given) => {
            Class::Batch { bytes_per_second: given.unwrap_or(BATCH_BYTES_PER_SECOND_DEFAULT) }
        }
    };
    Ok(Action::Priority(class))
}

fn needed<T>(key: &'static str, value: Option<T>) -> Result<T, Wrong> {
    value.ok_or_else(|| Wrong::new(key, "is missing", format!("add {key} = ...")))
}

fn percent(value: f64) -> Result<f64, Wrong> {
    if (0.0..=100.0).contains(&value) {
        return Ok(value);
    }
    Err(Wrong::new("percent", format!("is {value}"), "write a number from 0 to 100"))
}

fn time_ns(key: &'static str, ms: u64) -> Result<u64, Wrong> {
    if ms > TIME_MS_MAX || (ms == 0 && key == "timeout_ms") {
        return Err(Wrong::new(key, format!("is {ms}"), format!("write a number from 1 to {TIME_MS_MAX}")));
    }
    Ok(ms * 1_000_000)
}

fn expression(key: &'static str, text: &str, wanted: Wanted) -> Result<Expression, Wrong> {
    Expression::parse(text, wanted).map_err(|error| Wrong::of_expression(key, error))
}
