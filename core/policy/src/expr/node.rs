//! What an expression is compiled to: a tree in which every name has become an offset.

use regex::bytes::Regex;
use std::sync::Arc;
use trunkline_message::FieldAt;

/// Quantifiers within one another.
pub(super) const VARIABLES_MAX: usize = 4;

/// A typed node. The checker vouches for the types of its parts, the evaluator relies on it.
#[derive(Clone, Debug)]
pub(super) enum Node {
    /// Part of a check without a schema; never evaluated.
    Unknown,
    Constant(Constant),
    Input(Input),
    /// The user of the application that calls; no value if it has none.
    CallerUid,
    HasCallerUid,
    /// The services that one serves.
    CallerServices,
    /// The root message.
    Request,
    /// The element a quantifier is at; counted from the outermost.
    Variable(u8),
    Field(Box<Node>, Box<Slot>),
    HasField(Box<Node>, Box<Slot>, Presence),
    Element {
        list: Box<Node>,
        index: Box<Node>,
    },
    Entry {
        map: Box<Node>,
        key: Box<Node>,
    },
    HasEntry {
        map: Box<Node>,
        key: Box<Node>,
    },
    Metadata(Box<Node>),
    HasMetadata(Box<Node>),
    /// `value in list`
    Among {
        value: Box<Node>,
        list: Box<Node>,
    },
    List(Box<[Node]>),
    Not(Box<Node>),
    Negate(Box<Node>),
    And(Box<[Node]>),
    Or(Box<[Node]>),
    Conditional(Box<[Node; 3]>),
    Compare(Comparison, Box<Node>, Box<Node>),
    Arithmetic {
        operator: Arithmetic,
        left: Box<Node>,
        right: Box<Node>,
    },
    Size(Box<Node>),
    Text(TextTest, Box<Node>, Box<Node>),
    /// The pattern is shared by all programs of its expression: each would have scratch memory of its own.
    Matches(Box<Node>, Arc<Regex>),
    Convert {
        to: Scalar,
        of: Box<Node>,
    },
    Quantified {
        which: Quantifier,
        list: Box<Node>,
        variable: u8,
        body: Box<Node>,
    },
}

/// A value that stands in the expression itself, or a field's declared default.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Constant {
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Str(Box<[u8]>),
    Bytes(Box<[u8]>),
}

/// What is known of a call besides its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    Path,
    Service,
    Method,
    Application,
    PeerIdentity,
    PeerAddress,
    CallerIdentity,
    CallerName,
    CallerProgram,
}

/// A field: where it lies and how it is read.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub at: FieldAt,
    pub read: Read,
    /// proto2's declared default.
    pub default: Option<Constant>,
}

/// How the bytes of a field, or of a repeated field's element, are read.
#[derive(Clone, Debug)]
pub(super) enum Read {
    Bool,
    I32,
    U32,
    F32,
    I64,
    U64,
    F64,
    Str,
    Bytes,
    Message,
    List(Box<Read>),
    /// Key and value of the entries.
    Map(Box<(Slot, Slot)>),
}

/// What `has()` asks of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// Its presence bit.
    Set,
    /// Fields without presence of their own: a value other than zero.
    NotZero,
    /// Repeated fields and maps: an element.
    NotEmpty,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextTest {
    StartsWith,
    EndsWith,
    Contains,
}

/// What `int()`, `uint()`, `double()`, `string()` and `bytes()` make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scalar {
    Int,
    Uint,
    Double,
    Str,
    Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quantifier {
    All,
    Exists,
    ExistsOne,
}
