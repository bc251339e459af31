//! Names that mean something to Rust, to the library, or to generated code.

use crate::dice::Dice;

/// Keywords, the prelude, primitive types, crates, what the library exports, what generated code calls its own things,
/// and spellings that become one or no word.
const WORDS: &str = "
    abstract as async await become box break const continue crate do dyn else enum extern false final fn for gen if
    impl in let loop macro macro_rules match mod move mut override priv pub raw ref return safe self Self static struct
    super trait true try type typeof union unsafe unsized use virtual where while yield auto default
    Option Some None Result Ok Err String Vec Box ToString ToOwned Clone Copy Send Sync Sized Drop Fn FnMut FnOnce
    Iterator IntoIterator Extend DoubleEndedIterator ExactSizeIterator Default PartialEq Eq PartialOrd Ord AsRef AsMut
    From Into TryFrom TryInto FromIterator Future IntoFuture Debug Hash Display Formatter Pin Arc HashMap BTreeMap
    bool char str u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64
    core std alloc trunkline codegen google protobuf rt __rt
    Message View Builder Block Extent FieldAt OneofAt List Element MessagesBuilder ServiceDescription ClientCore
    MethodDescription Pattern Channel Incoming IntoRequest Response Request Receiver Sender Status Handling Delivered
    Service Unary FILE_DESCRIPTOR_SET FULL_NAME FINGERPRINT BLOCK_BYTES BYTES AT
    new clone from into build view read write to_linear number is_known as_str_name from_str_name fmt eq ne hash next
    call description from_arc inner client server channel service request input out block entry key value values count
    list message builder context drop borrow try_from try_into to_owned to_string type_id cmp index write_part_0
    read_part_0 write_part_1 has set add insert as_ref into_iter unwrap_or_default module
    E T U a b A B x Y ab aB AB _ __ _1 _1a a_1 a1 a__1 A1B2 fooBar foo_bar FooBar FOO_BAR foo__bar _foo foo_ fooBAR
";

const BEFORE: &[&str] =
    &["_", "has_", "set_", "add_", "insert_", "get_", "HAS_", "is_", "to_", "from_", "into_", "as_"];
const AFTER: &[&str] = &[
    "_", "1", "_1", "_mut", "View", "Builder", "_view", "_AT", "_at", "Client", "Server", "_client",
    "_server", "_SERVICE", "Entry",
];

/// A name that protobuf accepts.
pub fn name(dice: &mut Dice) -> String {
    let words: Vec<&str> = WORDS.split_whitespace().collect();
    let word = *dice.pick(&words);
    let word = match dice.below(8) {
        0 => word.to_lowercase(),
        1 => word.to_uppercase(),
        2 => capital(word),
        _ => word.to_owned(),
    };
    match dice.below(8) {
        0 => format!("{}{word}", dice.pick(BEFORE)),
        1 => format!("{word}{}", dice.pick(AFTER)),
        2 => format!("{word}_{}", dice.pick(&words)),
        _ => word,
    }
}

fn capital(word: &str) -> String {
    let (first, rest) = word.split_at(1);
    first.to_uppercase() + rest
}
