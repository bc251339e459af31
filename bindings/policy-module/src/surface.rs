//! The C surface: a table of callbacks for any type that implements [`Policy`].
//!
//! Every callback borrows what the daemon lends, calls the trait, and catches what it panics with.

use crate::lent::{bytes, text};
use crate::panics::{caught, remember};
use crate::policy::{Policy, State};
use crate::wants::Wants;
use crate::{Call, Code, Config, End};
use std::ffi::c_void;
use std::time::Duration;
use trunkline_module_abi as abi;

/// The table, as it is exported.
#[repr(transparent)]
#[derive(Debug)]
pub struct Exported(abi::Table);

// SAFETY: it is a constant: the pointers in it lead to constants and functions, and nobody writes them.
unsafe impl Sync for Exported {}

/// An instance, and what it has asked for: the daemon reads that until the instance is destroyed.
struct Boxed<P> {
    policy: P,
    /// Keeps the expressions the fields point to.
    _expressions: Vec<String>,
    fields: Vec<abi::Field>,
}

/// The table of a policy; for [`export!`](crate::export).
pub const fn table<P: Policy>() -> Exported {
    Exported(abi::Table {
        head: abi::Head {
            magic: abi::MAGIC,
            abi_version: abi::ABI_VERSION,
            table_bytes: size_of::<abi::Table>() as u32,
        },
        name: abi::Slice::of(P::NAME.as_bytes()),
        version: abi::Slice::of(P::VERSION.as_bytes()),
        state_format: P::STATE_FORMAT,
        reserved: 0,
        create: Some(create::<P>),
        destroy: Some(destroy::<P>),
        decide: Some(decide::<P>),
        finish: Some(finish::<P>),
        export_state: Some(export::<P>),
        import_state: Some(import::<P>),
    })
}

/// # Safety
/// As the ABI says of `create`.
unsafe extern "C" fn create<P: Policy>(
    config: *const abi::Config,
    out: *mut abi::Created,
    words: *mut abi::Words,
) -> i32 {
    remember();
    // SAFETY: the daemon lends it until this returns.
    let config = unsafe { &*config };
    // SAFETY: the daemon lends it until this returns, to nobody else.
    let out = unsafe { &mut *out };
    // SAFETY: as above.
    let words = unsafe { &mut *words };
    // SAFETY: the daemon vouches for its pairs.
    let pairs = unsafe { borrowed(config.pairs, config.pairs_count) };
    let config = Config { policy: text(&config.policy), pairs };
    let made = caught(|| {
        let mut wants = Wants::default();
        P::create(&config, &mut wants).map(|policy| (policy, wants))
    });
    match made {
        Ok(Ok((policy, wants))) => {
            let instance = Box::new(boxed(policy, &wants));
            out.wants = wants.bits;
            out.fields = instance.fields.as_ptr();
            out.fields_count = instance.fields.len() as u32;
            out.instance = Box::into_raw(instance).cast();
            abi::DONE
        }
        Ok(Err(why)) => refused(words, &why),
        Err(panic) => faulty(words, &panic),
    }
}

/// # Safety
/// As the ABI says of `destroy`: the instance is `create`'s, and is not used again.
unsafe extern "C" fn destroy<P: Policy>(instance: *mut c_void) {
    // SAFETY: `create` made it from a box of this type.
    let boxed = unsafe { Box::from_raw(instance.cast::<Boxed<P>>()) };
    // There is nobody left to tell.
    let _ = caught(|| drop(boxed));
}

/// # Safety
/// As the ABI says of `decide`.
unsafe extern "C" fn decide<P: Policy>(
    instance: *mut c_void,
    call: *const abi::Call,
    answer: *mut abi::Answer,
    words: *mut abi::Words,
) -> i32 {
    // SAFETY: the instance is `create`'s, and no other callback runs on it.
    let boxed = unsafe { &mut *instance.cast::<Boxed<P>>() };
    // SAFETY: the daemon lends it until this returns.
    let raw = unsafe { &*call };
    // SAFETY: the daemon lends it until this returns, to nobody else.
    let answer = unsafe { &mut *answer };
    // SAFETY: as above.
    let words = unsafe { &mut *words };
    // SAFETY: the daemon vouches for its pairs.
    let metadata = unsafe { borrowed(raw.metadata, raw.metadata_count) };
    // SAFETY: the daemon vouches for its values.
    let values = unsafe { borrowed(raw.values, raw.values_count) };
    let call = Call { raw, metadata, values };
    let verdict = match caught(|| boxed.policy.decide(&call)) {
        Ok(verdict) => verdict,
        Err(panic) => return faulty(words, &panic),
    };
    answer.token = verdict.token;
    if let Some((code, message)) = verdict.denied {
        return denied(answer, code, &message);
    }
    for (key, value) in &verdict.metadata {
        let (name, value) = (abi::Slice::of(key.as_bytes()), abi::Slice::of(value));
        // SAFETY: the daemon vouches for its function and its context; the slices lie in the verdict.
        let added = answer.add_metadata.map_or(1, |add| unsafe { add(answer.context, name, value) });
        if added != 0 {
            // With no value, which is legal with every key.
            let (name, none) = (abi::Slice::of(key.as_bytes()), abi::Slice::of(&[]));
            // SAFETY: the daemon vouches for its function and its context; the slice lies in the verdict.
            let alone = answer.add_metadata.map_or(1, |add| unsafe { add(answer.context, name, none) });
            if alone != 0 && !are_too_long(&verdict.metadata) {
                return faulty(words, &format!("the pair {key:?} cannot be added to the metadata"));
            }
            // Its value may be what a caller wrote: that call is refused, and not the module ejected.
            let why =
                format!("its policy adds the pair {key:?} to its metadata, which is not legal or too long");
            return denied(answer, Code::Internal, &why);
        }
    }
    abi::DONE
}

/// # Safety
/// As the ABI says of `finish`.
unsafe extern "C" fn finish<P: Policy>(
    instance: *mut c_void,
    end: *const abi::End,
    words: *mut abi::Words,
) -> i32 {
    // SAFETY: the instance is `create`'s, and no other callback runs on it.
    let boxed = unsafe { &mut *instance.cast::<Boxed<P>>() };
    // SAFETY: the daemon lends it until this returns.
    let end = unsafe { &*end };
    // SAFETY: the daemon lends it until this returns, to nobody else.
    let words = unsafe { &mut *words };
    let end = End {
        code: end.code,
        now_ns: end.now_ns,
        elapsed: Duration::from_nanos(end.elapsed_ns),
        token: end.token,
    };
    match caught(|| boxed.policy.finish(&end)) {
        Ok(()) => abi::DONE,
        Err(panic) => faulty(words, &panic),
    }
}

/// # Safety
/// As the ABI says of `export_state`.
unsafe extern "C" fn export<P: Policy>(
    instance: *const c_void,
    sink: *const abi::Sink,
    words: *mut abi::Words,
) -> i32 {
    // SAFETY: the instance is `create`'s, and nobody writes it meanwhile.
    let boxed = unsafe { &*instance.cast::<Boxed<P>>() };
    // SAFETY: the daemon lends it until this returns.
    let sink = unsafe { &*sink };
    // SAFETY: the daemon lends it until this returns, to nobody else.
    let words = unsafe { &mut *words };
    let state = match caught(|| boxed.policy.export()) {
        Ok(state) => state,
        Err(panic) => return faulty(words, &panic),
    };
    // SAFETY: the daemon vouches for its function and its context; the slice lies in `state`.
    let written = sink.write.map_or(1, |write| unsafe { write(sink.context, abi::Slice::of(&state)) });
    if written == 0 { abi::DONE } else { faulty(words, "there is no room for its state") }
}

/// # Safety
/// As the ABI says of `import_state`.
unsafe extern "C" fn import<P: Policy>(
    instance: *mut c_void,
    state: *const abi::State,
    words: *mut abi::Words,
) -> i32 {
    // SAFETY: the instance is `create`'s, and no other callback runs on it.
    let boxed = unsafe { &mut *instance.cast::<Boxed<P>>() };
    // SAFETY: the daemon lends it until this returns.
    let raw = unsafe { &*state };
    // SAFETY: the daemon lends it until this returns, to nobody else.
    let words = unsafe { &mut *words };
    let state = State { format: raw.format, bytes: bytes(&raw.bytes) };
    match caught(|| boxed.policy.import(state)) {
        Ok(Ok(())) => abi::DONE,
        Ok(Err(why)) => refused(words, &why),
        Err(panic) => faulty(words, &panic),
    }
}

fn boxed<P>(policy: P, wants: &Wants) -> Boxed<P> {
    let expressions: Vec<String> = wants.fields.iter().map(|(text, ..)| text.clone()).collect();
    let field = |(text, (_, kind, flags)): (&String, &(String, u32, u32))| abi::Field {
        expression: abi::Slice::of(text.as_bytes()),
        kind: *kind,
        flags: *flags,
    };
    let fields = expressions.iter().zip(&wants.fields).map(field).collect();
    Boxed { policy, _expressions: expressions, fields }
}

/// Denies a call. The words may have a caller's text in them, which must not be able to eject the module: they lose
/// their end and their control characters.
/// Whether it is their length that pairs were refused for.
fn are_too_long(pairs: &[(String, Vec<u8>)]) -> bool {
    // A pair that is refused counts, and is asked about twice.
    let bytes = |(key, value): &(String, Vec<u8>)| 2 * key.len() + value.len();
    pairs.iter().map(bytes).sum::<usize>() > abi::METADATA_ADDED_BYTES_MAX
}

fn denied(answer: &mut abi::Answer, code: Code, message: &str) -> i32 {
    answer.verdict = abi::VERDICT_DENY;
    answer.code = code as u32;
    let capacity = answer.message.capacity;
    if message.contains(char::is_control) {
        let line: String = message.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        say(&mut answer.message, shortened(&line, capacity));
    } else {
        say(&mut answer.message, shortened(message, capacity));
    }
    abi::DONE
}

fn refused(words: &mut abi::Words, why: &str) -> i32 {
    say(words, shortened(why, words.capacity));
    abi::REFUSED
}

fn faulty(words: &mut abi::Words, why: &str) -> i32 {
    say(words, shortened(why, words.capacity));
    abi::FAULT
}

/// Words may lose their end.
fn shortened(text: &str, capacity: u32) -> &str {
    let mut end = text.len().min(capacity as usize);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Says `text`, of which there is room for all.
fn say(words: &mut abi::Words, text: &str) {
    assert!(text.len() <= words.capacity as usize, "the text was shortened");
    words.bytes = text.len() as u32;
    // SAFETY: the daemon lends `capacity` bytes there, and the text has no more.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), words.data, text.len()) };
}

/// # Safety
/// The daemon lends `count` of them there, for as long as the borrow.
unsafe fn borrowed<'a, T>(at: *const T, count: u32) -> &'a [T] {
    if at.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: the caller vouches for it.
    unsafe { std::slice::from_raw_parts(at, count as usize) }
}
