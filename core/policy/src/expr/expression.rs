//! An expression, as written and as compiled.

use super::ast::Expr;
use super::check::{Checker, Needs};
use super::error::{Complaint, EvalError, ExprError};
use super::eval::Frame;
use super::inputs::{FieldValue, Inputs, Wanted};
use super::node::{Constant, Node};
use super::parse::parse;
use super::types::Type;
use super::value::Value;
use regex::bytes::Regex;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use trunkline_schema::{MessageIndex, Schema};

/// An expression as written: sound as far as can be known without a schema.
#[derive(Clone, Debug)]
pub struct Expression {
    text: String,
    tree: Expr,
    wanted: Wanted,
    patterns: Patterns,
    reads_request: bool,
    needs_schema: bool,
}

/// Compiled patterns by where they stand.
#[derive(Debug, Default)]
struct Patterns(HashMap<u32, Arc<Regex>>);

/// An expression compiled for one request type.
#[derive(Clone, Debug)]
pub struct Program {
    node: Node,
    reads_facts: bool,
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
        let tree = parse(text).map_err(|complaint| complaint.placed(text))?;
        let mut patterns = HashMap::new();
        let parsed = Self {
            text: text.to_owned(),
            tree,
            wanted,
            patterns: Patterns::default(),
            reads_request: false,
            needs_schema: false,
        };
        let (_, needs) = parsed.check(None, &mut patterns).map_err(|complaint| complaint.placed(text))?;
        let patterns = Patterns(patterns);
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
        let checked = self.check(request, &mut self.patterns.0.clone());
        let (node, needs) = checked.map_err(|complaint| complaint.placed(&self.text))?;
        Ok(Program { node, reads_facts: needs.facts })
    }

    /// Whether its value depends on the message.
    pub fn reads_request(&self) -> bool {
        self.reads_request
    }

    /// Whether it is compiled for one request type: for others it is another program.
    pub fn needs_schema(&self) -> bool {
        self.needs_schema
    }

    /// As written.
    pub fn text(&self) -> &str {
        &self.text
    }

    fn check(
        &self,
        schema: Option<(&Schema, MessageIndex)>,
        patterns: &mut HashMap<u32, Arc<Regex>>,
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

/// A clone is another shard's: with patterns of its own, two threads never ask for the same scratch memory.
impl Clone for Patterns {
    fn clone(&self) -> Self {
        Self(self.0.iter().map(|(&at, pattern)| (at, Arc::new(Regex::clone(pattern)))).collect())
    }
}

impl Program {
    /// Whether its value depends on anything of the call beside the message. If not, inputs need not name it.
    pub fn reads_facts(&self) -> bool {
        self.reads_facts
    }

    /// Evaluates a condition.
    ///
    /// # Errors
    /// [`EvalError`] if it has no value for this call.
    pub fn test(&self, inputs: &Inputs<'_>) -> Result<bool, EvalError> {
        match &self.node {
            Node::Constant(Constant::Bool(value)) => Ok(*value),
            node => Frame::new(inputs).test(node),
        }
    }

    /// Evaluates to a value; none where the expression has none for this call.
    pub fn value<'a>(&'a self, inputs: &'a Inputs<'a>) -> FieldValue<'a> {
        match Frame::new(inputs).eval(&self.node) {
            Ok(Value::Bool(value)) => FieldValue::Bool(value),
            Ok(Value::Int(value)) => FieldValue::Int(value),
            Ok(Value::Uint(value)) => FieldValue::Uint(value),
            Ok(Value::Double(value)) => FieldValue::Double(value),
            Ok(Value::Str(text)) => FieldValue::Text(text),
            Ok(Value::Bytes(bytes)) => FieldValue::Bytes(bytes),
            Ok(Value::Message(_) | Value::Repeated(..) | Value::Written(_) | Value::Names(_)) | Err(_) => {
                FieldValue::None
            }
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
