//! Calls that are kept with their messages, on their way into a file (docs/replay.md).
//!
//! Shards put them into a queue of [`QUEUE_CALLS`] and never wait; a thread of its own writes. Where the queue is full,
//! or the disk takes nothing, samples are lost and counted, and nothing else happens. The file is its user's alone, and
//! bounded: at its limit it takes the place of the one before, and another is begun.

use crate::config::Config;
use rustix::fs::OFlags;
use std::collections::HashSet;
use std::fs::{File, OpenOptions, Permissions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use trunkline_engine::{Engine, SampleAllowance, TakenSample};
use trunkline_shm::monotonic_ns;
use trunkline_telemetry::{CallSample, SampleEntry};

/// Calls that wait for the disk: of 512 KiB at most (`sample.message_bytes_max`), mostly of a few.
const QUEUE_CALLS: usize = 64;
/// Descriptor sets in one file. Samples of further types have none.
const SCHEMAS_MAX: usize = 256;
/// Time a daemon that ends leaves the disk for what waits.
const LAST_PATIENCE: Duration = Duration::from_secs(1);

/// Where a shard puts samples.
#[derive(Clone)]
pub(crate) struct SampleSink {
    to: SyncSender<TakenSample>,
    figures: Arc<SampleFigures>,
}

/// The thread that writes, and what it has done.
pub(crate) struct SampleThread {
    figures: Arc<SampleFigures>,
    /// A mutex, because a daemon's handle is shared between threads.
    ended: Mutex<Receiver<()>>,
}

/// What became of samples behind the shards, as it is counted.
#[derive(Debug, Default)]
pub(crate) struct SampleFigures {
    written: AtomicU64,
    unqueued: AtomicU64,
    unwritten: AtomicU64,
    beyond_rate: AtomicU64,
}

/// What became of samples behind the shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleTotals {
    /// Written to the file.
    pub written: u64,
    /// Lost because the file takes them too slowly.
    pub unqueued: u64,
    /// Lost because the file did not take them.
    pub unwritten: u64,
    /// Left out because several shards together kept more than a rule says.
    pub beyond_rate: u64,
}

/// The file.
struct SampleWriter {
    path: PathBuf,
    file: File,
    bytes: u64,
    bytes_max: u64,
    host: String,
    /// The types that are declared in the file.
    schemas: HashSet<u64>,
    figures: Arc<SampleFigures>,
    is_failing: bool,
    /// Calls a second of each rule over all shards, and what is left of them.
    rates: Vec<(f64, SampleAllowance)>,
}

/// Opens the file of a configuration that keeps calls, and starts to write.
///
/// # Errors
/// The file is not to be had.
pub(crate) fn start(config: &Config) -> io::Result<Option<(SampleSink, SampleThread)>> {
    if config.sample.is_empty() {
        return Ok(None);
    }
    let figures = Arc::<SampleFigures>::default();
    let path = config.samples.file.clone();
    let (file, bytes) = open(&path)?;
    let mut writer = SampleWriter {
        path,
        file,
        bytes,
        bytes_max: config.samples.file_bytes_max.0,
        host: config.node().to_owned(),
        schemas: HashSet::new(),
        figures: Arc::clone(&figures),
        is_failing: false,
        rates: config.sample.iter().map(|table| (table.per_second, SampleAllowance::default())).collect(),
    };
    let (to, samples) = sync_channel::<TakenSample>(QUEUE_CALLS);
    let (alive, ended) = sync_channel(0);
    let write = move || {
        let _alive: SyncSender<()> = alive;
        samples.iter().for_each(|sample| writer.take(&sample));
    };
    std::thread::Builder::new().name("trunkline-samples".into()).spawn(write)?;
    Ok(Some((
        SampleSink { to, figures: Arc::clone(&figures) },
        SampleThread { figures, ended: Mutex::new(ended) },
    )))
}

impl SampleSink {
    /// Lets calls go that an engine has kept.
    pub fn take_from(&self, engine: &mut Engine) {
        while let Some(sample) = engine.take_sample() {
            self.put(sample);
        }
    }

    /// Puts a sample into the queue, or counts it as lost.
    fn put(&self, sample: TakenSample) {
        if self.to.try_send(sample).is_err() {
            self.figures.unqueued.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl SampleThread {
    /// What became of samples so far.
    pub fn totals(&self) -> SampleTotals {
        let SampleFigures { written, unqueued, unwritten, beyond_rate } = &*self.figures;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SampleTotals {
            written: read(written),
            unqueued: read(unqueued),
            unwritten: read(unwritten),
            beyond_rate: read(beyond_rate),
        }
    }

    /// Leaves it a moment for what waits, once no shard has a sink.
    pub fn end(self) {
        let ended = self.ended.into_inner().unwrap_or_else(PoisonError::into_inner);
        let _ = ended.recv_timeout(LAST_PATIENCE);
    }
}

impl SampleWriter {
    fn take(&mut self, sample: &TakenSample) {
        if !self.has_turn(sample) {
            self.figures.beyond_rate.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let outcome = self.write(sample);
        let counter = if outcome.is_ok() { &self.figures.written } else { &self.figures.unwritten };
        counter.fetch_add(1, Ordering::Relaxed);
        let was_failing = std::mem::replace(&mut self.is_failing, outcome.is_err());
        match (outcome, was_failing) {
            (Err(error), false) => {
                let path = self.path.display();
                tracing::warn!(%path, %error, "samples of calls are not written, and are lost");
            }
            (Ok(()), true) => {
                tracing::info!(path = %self.path.display(), "samples of calls are written again")
            }
            _ => {}
        }
    }

    /// Every shard keeps as many as all of them may: those beyond that are let go here. What one shard keeps is here in
    /// the order in which it ended, so twice as many may come at once.
    fn has_turn(&mut self, sample: &TakenSample) -> bool {
        let Some((per_second, left)) = self.rates.get_mut(sample.rule) else { return false };
        left.draw(sample.began, *per_second, 2.0 * per_second.max(1.0))
    }

    fn write(&mut self, sample: &TakenSample) -> io::Result<()> {
        let (mut number, mut bytes) = self.entries(sample)?;
        if self.is_full_for(&bytes) {
            self.turn_over()?;
            (number, bytes) = self.entries(sample)?;
            if self.is_full_for(&bytes) {
                let why = "the file that was begun is full; does its name and that of the one before lead to one file?";
                return Err(io::Error::other(why));
            }
        }
        if let Err(error) = self.file.write_all(&bytes) {
            // What was written of it is of no use to anybody.
            let _ = self.file.set_len(self.bytes);
            return Err(error);
        }
        self.bytes += bytes.len() as u64;
        if number != 0 && self.schemas.insert(number) {
            tell_strangers(sample);
        }
        Ok(())
    }

    /// What is written of a sample, and the number of its types.
    fn entries(&self, sample: &TakenSample) -> io::Result<(u64, Vec<u8>)> {
        let (number, mut bytes) = self.declare(sample);
        let call = SampleEntry::Call(self.call(sample, number));
        bytes.extend(call.encode().ok_or_else(|| io::Error::other("the call is too large for an entry"))?);
        Ok((number, bytes))
    }

    /// Whether these would make the file longer than it may be. One that is empty takes any.
    fn is_full_for(&self, bytes: &[u8]) -> bool {
        self.bytes + bytes.len() as u64 > self.bytes_max && self.bytes > 0
    }

    /// The number of a sample's types, and the entry that declares them if the file has none; zero for types that are
    /// not declared.
    fn declare(&self, sample: &TakenSample) -> (u64, Vec<u8>) {
        let Some(schema) = &sample.schema else { return (0, Vec::new()) };
        let descriptors = schema.schema.descriptor_set();
        let mut hasher = DefaultHasher::new();
        descriptors.hash(&mut hasher);
        let number = hasher.finish().max(1);
        if self.schemas.contains(&number) {
            return (number, Vec::new());
        }
        let entry = SampleEntry::Schema(number, descriptors.to_vec()).encode();
        let fits =
            |entry: &Vec<u8>| entry.len() as u64 <= self.bytes_max / 2 && self.schemas.len() < SCHEMAS_MAX;
        let entry = entry.filter(fits);
        entry.map_or((0, Vec::new()), |entry| (number, entry))
    }

    fn call(&self, sample: &TakenSample, schema: u64) -> CallSample {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let ago_ms = monotonic_ns().saturating_sub(sample.began.0) / 1_000_000;
        CallSample {
            host: self.host.clone(),
            path: sample.path.to_string(),
            served: sample.served,
            began_unix_ms: u64::try_from(unix.as_millis()).unwrap_or(u64::MAX).saturating_sub(ago_ms),
            duration_ns: sample.duration_ns,
            timeout_ns: sample.timeout_ns.unwrap_or(0),
            code: sample.code,
            schema,
            redacted: sample.redaction.names().to_vec(),
            emptied: sample.emptied,
            request: sample.request.clone(),
            response: sample.response.clone(),
        }
    }

    /// The file is full: it takes the place of the one before, and another is begun.
    fn turn_over(&mut self) -> io::Result<()> {
        let mut before = self.path.clone().into_os_string();
        before.push(".1");
        match std::fs::rename(&self.path, before) {
            // Somebody has moved it, or what was to follow could not be opened the last time.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            renamed => renamed?,
        }
        (self.file, self.bytes) = open(&self.path)?;
        self.schemas.clear();
        Ok(())
    }
}

/// Somebody believes a field to be emptied that is not there by that name.
fn tell_strangers(sample: &TakenSample) {
    let Some(schema) = &sample.schema else { return };
    for name in sample.redaction.strangers(&schema.schema) {
        let method = &*sample.path;
        tracing::warn!(name, method, "no field has a name that samples are to be redacted by");
    }
}

/// The file, to be appended to, and how long it is. It is a plain file of this user, and nobody else may read it.
fn open(path: &Path) -> io::Result<(File, u64)> {
    let mut options = OpenOptions::new();
    let options = options.append(true).create(true).mode(0o600);
    // Neither does a pipe in its place hold the daemon up, nor does a link lead it elsewhere.
    let file = options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("is no plain file"));
    }
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other("belongs to another user"));
    }
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok((file, metadata.len()))
}

#[cfg(test)]
mod tests {
    //! Shows that the file is its user's alone and bounded, that its entries can be read, and that a disk that takes
    //! nothing costs samples and nothing else.
    use super::*;
    use trunkline_call::{Code, Instant};
    use trunkline_engine::BoundSchema;
    use trunkline_schema::Schema;
    use trunkline_telemetry::SampleFileReader;

    fn writer(path: &Path, file: File, bytes_max: u64) -> SampleWriter {
        SampleWriter {
            path: path.to_owned(),
            file,
            bytes: 0,
            bytes_max,
            host: "alpha".into(),
            schemas: HashSet::new(),
            figures: Arc::default(),
            is_failing: false,
            rates: vec![(1e9, SampleAllowance::default())],
        }
    }

    fn sample(schema: Option<Arc<BoundSchema>>, bytes: usize) -> TakenSample {
        TakenSample {
            path: "/a.B/C".into(),
            served: true,
            began: Instant(monotonic_ns()),
            duration_ns: 5,
            timeout_ns: Some(7),
            code: Code::Ok,
            schema,
            redaction: Arc::default(),
            emptied: false,
            request: vec![7; bytes],
            response: Some(vec![8]),
            message_bytes_max: 1000,
            rule: 0,
        }
    }

    fn entries(path: &Path) -> Vec<SampleEntry> {
        let bytes = std::fs::read(path).unwrap();
        let mut reader = SampleFileReader::new(&bytes);
        let read = reader.by_ref().collect();
        assert!(reader.faults.is_empty(), "{:?}", reader.faults);
        read
    }

    #[test]
    fn files_are_bounded_and_declare_their_types() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("samples");
        let (file, _) = open(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let text = "syntax = \"proto3\"; package a; message M {}";
        let schema = Arc::new(BoundSchema::new(Schema::from_proto_source("a.proto", text).unwrap()));
        let mut writer = writer(&path, file, 5_000);
        (0..30).for_each(|_| writer.take(&sample(Some(Arc::clone(&schema)), 400)));
        assert_eq!(writer.figures.written.load(Ordering::Relaxed), 30);
        for path in [path.clone(), folder.path().join("samples.1")] {
            assert!(std::fs::metadata(&path).unwrap().len() <= 5_000);
            let read = entries(&path);
            let SampleEntry::Schema(number, descriptors) = &read[0] else { panic!("{:?}", read[0]) };
            assert_eq!(descriptors, schema.schema.descriptor_set());
            assert!(read.len() > 3);
            for entry in &read[1..] {
                let SampleEntry::Call(call) = entry else { panic!("{entry:?}") };
                assert_eq!((&*call.path, call.schema, call.request.len()), ("/a.B/C", *number, 400));
                assert_eq!((call.timeout_ns, &call.response), (7, &Some(vec![8])));
            }
        }
        // A file that others could read is theirs no more.
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let before = std::fs::metadata(&path).unwrap().len();
        assert_eq!(open(&path).unwrap().1, before);
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_file_that_somebody_moved_away_is_begun_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("samples");
        let (file, _) = open(&path).unwrap();
        let mut writer = writer(&path, file, 1_000);
        writer.take(&sample(None, 600));
        std::fs::rename(&path, folder.path().join("taken")).unwrap();
        (0..3).for_each(|_| writer.take(&sample(None, 600)));
        assert_eq!(writer.figures.unwritten.load(Ordering::Relaxed), 0);
        assert_eq!(entries(&path).len(), 1, "of the last call");
    }

    /// Renaming one of two links to a file to the other does nothing, and says that it was done.
    #[test]
    fn a_file_that_is_the_one_before_as_well_costs_samples() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("samples");
        let (file, _) = open(&path).unwrap();
        let mut writer = writer(&path, file, 1_000);
        std::fs::hard_link(&path, folder.path().join("samples.1")).unwrap();
        (0..3).for_each(|_| writer.take(&sample(None, 600)));
        assert_eq!(writer.figures.unwritten.load(Ordering::Relaxed), 2);
        assert_eq!(entries(&path).len(), 1);
    }

    /// Calls that began at these milliseconds, with two a second allowed: how many are written. The others are counted.
    fn written_of(began_ms: impl Iterator<Item = u64> + Clone) -> u64 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("samples");
        let (file, _) = open(&path).unwrap();
        let mut writer = writer(&path, file, 1 << 20);
        writer.rates = vec![(2.0, SampleAllowance::default())];
        for ms in began_ms.clone() {
            writer.take(&TakenSample { began: Instant((10_000 + ms) * 1_000_000), ..sample(None, 1) });
        }
        let SampleFigures { written, beyond_rate, .. } = &*writer.figures;
        let [written, beyond_rate] = [written, beyond_rate].map(|counter| counter.load(Ordering::Relaxed));
        assert_eq!(written + beyond_rate, began_ms.count() as u64, "what became of each is told");
        written
    }

    #[test]
    fn all_shards_together_keep_as_many_as_the_rule_says() {
        let of_four_shards = (0..100).flat_map(|half| [500 * half; 4]);
        assert_eq!(written_of(of_four_shards), 4 + 99, "four at once, and two a second");
        let swapped = (0..50).flat_map(|second| [1_000 * second + 500, 1_000 * second]);
        assert_eq!(written_of(swapped), 100, "one shard's are all there, in whatever order they ended");
    }

    #[test]
    fn what_is_no_file_of_ours_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(folder.path().join("target"), &link).unwrap();
        assert!(open(&link).is_err());
        assert!(open(folder.path()).is_err());
        assert!(open(Path::new("/dev/null")).is_err());
    }

    #[test]
    fn a_full_disk_costs_samples() {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut writer = writer(Path::new("/dev/full"), full, 5_000);
        (0..3).for_each(|_| writer.take(&sample(None, 10)));
        assert_eq!(writer.figures.unwritten.load(Ordering::Relaxed), 3);
        assert!(writer.is_failing);
    }

    #[test]
    fn a_slow_disk_holds_nobody_up() {
        let (to, taken) = sync_channel(QUEUE_CALLS);
        let sink = SampleSink { to, figures: Arc::default() };
        (0..QUEUE_CALLS + 9).for_each(|_| sink.put(sample(None, 10)));
        assert_eq!(sink.figures.unqueued.load(Ordering::Relaxed), 9);
        assert_eq!(taken.try_iter().count(), QUEUE_CALLS);
    }
}
