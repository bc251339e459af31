//! Expressions over a call, in the syntax of the Common Expression Language (github.com/google/cel-spec).
//!
//! An expression is cut (`lex`, `text`), parsed (`parse` to `ast`), type-checked (`check`, `member`, `call`) into a
//! tree of field offsets (`node`), and evaluated over linear messages (`eval`, `value`). That allocates nothing, unless
//! it asks how many keys a large map has. `re2` reads patterns.
//!
//! The language is CEL's, less what would have to make new values: no joined strings, no map or message literals, no
//! `filter` and `map`, no timestamps. Patterns of `matches` are literals, so that they are compiled beforehand.

mod ast;
mod call;
mod check;
mod error;
mod eval;
mod keys;
mod lex;
mod member;
mod node;
mod parse;
mod re2;
mod text;
mod types;
mod value;

pub(crate) use error::did_you_mean;
pub use error::{EvalError, ExprError};

use ast::Expr;
use check::{Checker, Needs};
use error::Complaint;
use eval::Frame;
use node::Node;
use regex::bytes::Regex;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use trunkline_call::Deadline;
use trunkline_message::View;
use trunkline_schema::{MessageIndex, Schema};
use types::Type;
use value::Value;

/// Work one evaluation may do: nodes visited, list elements and metadata pairs looked at, and each 64 bytes compared.
/// About a millisecond; a message cannot make an expression cost its host more.
pub const STEPS_MAX: u32 = 100_000;

/// What an expression is to result in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// True or false.
    Bool,
    /// A value calls can be told apart by: string, bytes, bool or an integer.
    Key,
    /// A value of one kind.
    Value(ValueKind),
}

/// The kinds of values an expression may be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the types say all there is to say")]
pub enum ValueKind {
    Bool,
    /// Enums, too.
    Int,
    Uint,
    Double,
    Text,
    Bytes,
}

/// A value an expression has for a call; it lies in the call's message.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[allow(missing_docs, reason = "as above")]
pub enum FieldValue<'a> {
    /// None: a key that is not there, an overflow.
    #[default]
    None,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    /// UTF-8.
    Text(&'a [u8]),
    Bytes(&'a [u8]),
}

/// An expression as written: sound as far as can be known without a schema.
#[derive(Clone, Debug)]
pub struct Expression {
    text: String,
    tree: Expr,
    wanted: Wanted,
    patterns: HashMap<u32, Regex>,
    reads_request: bool,
    needs_schema: bool,
}

/// An expression compiled for one request type.
#[derive(Clone, Debug)]
pub struct Program {
    node: Node,
}

/// What an expression may ask about a call.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// The message, of the type the program was compiled for. [`View::EMPTY`] where there is none.
    pub request: View<'a>,
    /// Metadata in its encoded form.
    pub metadata: &'a [u8],
    /// `/package.Service/Method`
    pub path: &'a str,
    /// Name of the application that calls, or of the one that serves, whichever side this is.
    pub application: &'a str,
    /// Who calls, as far as it is proven: `uid:1000` for a process of this host, the name in the certificate for a
    /// peer over TLS, empty for anybody else.
    pub peer_identity: &'a str,
    /// Where the call comes from: a peer's address, empty for this host.
    pub peer_address: &'a str,
    /// When the call must have ended.
    pub deadline: Deadline,
    /// Size of the message as its sender encoded it; 0 if there is none yet.
    pub request_bytes: u64,
}

impl Expression {
    /// Reads and checks an expression, as far as it can be checked without the request's schema.
    ///
    /// # Errors
    /// [`ExprError`] with the place, the problem and what to write instead.
    ///
    /// ```
    /// use trunkline_policy::{Expression, Wanted};
    /// assert!(Expression::parse("request.name.startsWith('test-')", Wanted::Bool).is_ok());
    /// let error = Expression::parse("request.count = 3", Wanted::Bool).unwrap_err();
    /// assert_eq!(error.to_string(), "1:15: unexpected character '='; write == to compare");
    /// ```
    pub fn parse(text: &str, wanted: Wanted) -> Result<Self, ExprError> {
        let tree = parse::parse(text).map_err(|complaint| complaint.placed(text))?;
        let mut patterns = HashMap::new();
        let parsed = Self {
            text: text.to_owned(),
            tree,
            wanted,
            patterns: HashMap::new(),
            reads_request: false,
            needs_schema: false,
        };
        let (_, needs) = parsed.check(None, &mut patterns).map_err(|complaint| complaint.placed(text))?;
        Ok(Self { patterns, reads_request: needs.request, needs_schema: needs.schema, ..parsed })
    }

    /// Compiles it for requests of one type; `None` if nobody knows which.
    ///
    /// # Errors
    /// As [`Expression::parse`], with what the schema tells.
    pub fn compile(&self, request: Option<(&Schema, MessageIndex)>) -> Result<Program, ExprError> {
        if request.is_none() && self.needs_schema {
            let advice = "have the application bring its descriptors, or decide by metadata";
            let complaint = Complaint::new(0, "the message cannot be read: its type is not known", advice);
            return Err(complaint.placed(&self.text));
        }
        let checked = self.check(request, &mut self.patterns.clone());
        let (node, _) = checked.map_err(|complaint| complaint.placed(&self.text))?;
        Ok(Program { node })
    }

    /// Whether its value depends on the message.
    pub fn reads_request(&self) -> bool {
        self.reads_request
    }

    /// As written.
    pub fn text(&self) -> &str {
        &self.text
    }

    fn check(
        &self,
        schema: Option<(&Schema, MessageIndex)>,
        patterns: &mut HashMap<u32, Regex>,
    ) -> Result<(Node, Needs), Complaint> {
        let mut checker = Checker { schema, patterns, variables: Vec::new(), needs: Needs::default() };
        let (found, node) = checker.check(&self.tree)?;
        let (fits, wanted) = match self.wanted {
            Wanted::Bool => (found.fits(&Type::Bool), "true or false"),
            Wanted::Key => (
                matches!(
                    found,
                    Type::Unknown | Type::Str | Type::Bytes | Type::Bool | Type::Int | Type::Uint
                ),
                "a string, bytes, bool or integer",
            ),
            Wanted::Value(kind) => (found.fits(&kind.of_type()), kind.name()),
        };
        if !fits {
            let problem = format!("the expression must be {wanted}, and this is {}", checker.name(&found));
            return Err(Complaint::new(0, problem, "compare it with something"));
        }
        Ok((node, checker.needs))
    }
}

impl Program {
    /// Evaluates a condition.
    ///
    /// # Errors
    /// [`EvalError`] if it has no value for this call.
    pub fn test(&self, inputs: &Inputs<'_>) -> Result<bool, EvalError> {
        Frame::new(inputs).test(&self.node)
    }

    /// Evaluates to a value that may leave the room; none where the expression has none for this call.
    pub fn value<'a>(&'a self, inputs: &'a Inputs<'a>) -> FieldValue<'a> {
        match Frame::new(inputs).eval(&self.node) {
            Ok(Value::Bool(value)) => FieldValue::Bool(value),
            Ok(Value::Int(value)) => FieldValue::Int(value),
            Ok(Value::Uint(value)) => FieldValue::Uint(value),
            Ok(Value::Double(value)) => FieldValue::Double(value),
            Ok(Value::Str(text)) => FieldValue::Text(text),
            Ok(Value::Bytes(bytes)) => FieldValue::Bytes(bytes),
            Ok(Value::Message(_) | Value::Repeated(..) | Value::Written(_)) | Err(_) => FieldValue::None,
        }
    }

    /// Evaluates a key and returns its hash under `seed`, which keeps others from choosing colliding keys.
    ///
    /// # Errors
    /// [`EvalError`] if it has no value for this call.
    pub fn key(&self, inputs: &Inputs<'_>, seed: u64) -> Result<u64, EvalError> {
        let mut hasher = DefaultHasher::new();
        seed.hash(&mut hasher);
        match Frame::new(inputs).eval(&self.node)? {
            Value::Bool(value) => value.hash(&mut hasher),
            Value::Int(value) => value.hash(&mut hasher),
            Value::Uint(value) => value.hash(&mut hasher),
            value => value.bytes().hash(&mut hasher),
        }
        Ok(hasher.finish())
    }
}

impl ValueKind {
    fn of_type(self) -> Type {
        match self {
            Self::Bool => Type::Bool,
            Self::Int => Type::Int,
            Self::Uint => Type::Uint,
            Self::Double => Type::Double,
            Self::Text => Type::Str,
            Self::Bytes => Type::Bytes,
        }
    }

    /// As expressions call it.
    fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::Text => "string",
            Self::Bytes => "bytes",
        }
    }
}

impl<'a> Inputs<'a> {
    /// `package.Service`
    pub fn service(&self) -> &'a str {
        self.split().0
    }

    /// `Method`
    pub fn method(&self) -> &'a str {
        self.split().1
    }

    fn split(&self) -> (&'a str, &'a str) {
        self.path.strip_prefix('/').unwrap_or(self.path).split_once('/').unwrap_or_default()
    }
}
