//! Evaluation: one recursion over the tree, everything on the stack.

use super::error::EvalError;
use super::inputs::Inputs;
use super::keys::Keys;
use super::node::{
    Arithmetic, Comparison, Input, Node, Presence, Quantifier, Read, Scalar, Slot, TextTest, VARIABLES_MAX,
};
use super::steps::StepsLeft;
use super::value::Value;
use std::cmp::Ordering;
use trunkline_message::View;

/// One evaluation.
pub(super) struct Frame<'a> {
    inputs: &'a Inputs<'a>,
    variables: [Value<'a>; VARIABLES_MAX],
    steps: StepsLeft,
}

type Evaluated<'a> = Result<Value<'a>, EvalError>;

impl<'a> Frame<'a> {
    pub fn new(inputs: &'a Inputs<'a>) -> Self {
        Self { inputs, variables: [Value::Bool(false); VARIABLES_MAX], steps: StepsLeft::all() }
    }

    pub fn eval(&mut self, node: &'a Node) -> Evaluated<'a> {
        self.steps.charge(1)?;
        Ok(match node {
            Node::Constant(constant) => Value::of_constant(constant),
            Node::Input(input) => Value::Str(self.input(*input).as_bytes()),
            Node::CallerUid => Value::Int(self.uid().ok_or(EvalError::NoSuchKey)?),
            Node::HasCallerUid => Value::Bool(self.uid().is_some()),
            Node::CallerServices => Value::Names(self.inputs.caller.map_or(&[], |caller| &caller.services)),
            Node::Request => Value::Message(self.inputs.request),
            Node::Variable(index) => self.variables[usize::from(*index) % VARIABLES_MAX],
            Node::Field(of, slot) => Value::of_field(self.message(of)?, slot),
            Node::HasField(of, slot, presence) => Value::Bool(has(self.message(of)?, slot, *presence)),
            Node::Element { list, index } => return self.element(list, index),
            Node::Entry { map, key } => self.entry(map, key)?.ok_or(EvalError::NoSuchKey)?,
            Node::HasEntry { map, key } => Value::Bool(self.entry(map, key)?.is_some()),
            Node::Metadata(key) => Value::Str(self.metadata(key)?.ok_or(EvalError::NoSuchKey)?),
            Node::HasMetadata(key) => Value::Bool(self.has_metadata(key)?),
            Node::Among { value, list } => Value::Bool(self.among(value, list)?),
            Node::List(nodes) => self.written(nodes)?,
            Node::Not(of) => Value::Bool(!self.test(of)?),
            Node::Negate(of) => negated(self.eval(of)?)?,
            Node::And(parts) => Value::Bool(self.all_of(parts.iter(), false)?),
            Node::Or(parts) => Value::Bool(self.all_of(parts.iter(), true)?),
            Node::Conditional(parts) => {
                let [condition, yes, no] = &**parts;
                return if self.test(condition)? { self.eval(yes) } else { self.eval(no) };
            }
            Node::Compare(comparison, left, right) => Value::Bool(self.compare(*comparison, left, right)?),
            Node::Arithmetic { operator, left, right } => {
                arithmetic(*operator, self.eval(left)?, self.eval(right)?)?
            }
            Node::Size(of) => Value::Int(self.size(of)?),
            Node::Text(test, of, part) => Value::Bool(self.text(*test, of, part)?),
            Node::Matches(of, regex) => {
                let text = self.eval(of)?.bytes();
                self.steps.charge_bytes(text)?;
                Value::Bool(regex.is_match(text))
            }
            Node::Convert { to, of } => {
                let of = self.eval(of)?;
                match to {
                    Scalar::Int | Scalar::Uint | Scalar::Double => {
                        self.steps.charge_slow_bytes(of.bytes())?
                    }
                    Scalar::Str | Scalar::Bytes => self.steps.charge_bytes(of.bytes())?,
                }
                convert(*to, of)?
            }
            Node::Quantified { which, list, variable, body } => {
                Value::Bool(self.quantified(*which, list, *variable, body)?)
            }
            // The checker lets no such part into what is evaluated.
            Node::Unknown => return Err(EvalError::NoSuchKey),
        })
    }

    /// Evaluates a condition. Most are one comparison, of which no value is made.
    pub fn test(&mut self, node: &'a Node) -> Result<bool, EvalError> {
        if let Node::Compare(comparison, left, right) = node {
            self.steps.charge(1)?;
            return self.compare(*comparison, left, right);
        }
        match self.eval(node)? {
            Value::Bool(value) => Ok(value),
            _ => Err(EvalError::NoSuchKey),
        }
    }

    fn message(&mut self, node: &'a Node) -> Result<View<'a>, EvalError> {
        match self.eval(node)? {
            Value::Message(view) => Ok(view),
            _ => Ok(View::EMPTY),
        }
    }

    /// CEL's `&&` (`decisive` false) and `||` (true): the decisive value wins over errors, on whichever side.
    fn all_of(&mut self, parts: impl Iterator<Item = &'a Node>, decisive: bool) -> Result<bool, EvalError> {
        let mut failed = None;
        for part in parts {
            match self.test(part) {
                Ok(value) if value == decisive => return Ok(decisive),
                Ok(_) => {}
                Err(EvalError::Steps) => return Err(EvalError::Steps),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(!decisive), Err)
    }

    fn quantified(
        &mut self,
        which: Quantifier,
        list: &'a Node,
        variable: u8,
        body: &'a Node,
    ) -> Result<bool, EvalError> {
        let list = self.eval(list)?;
        let (mut failed, mut found) = (None, 0usize);
        let entries = count(list);
        let mut keys = is_map(list).then(|| Keys::of(list, entries));
        for index in 0..entries {
            let item = match &mut keys {
                Some(keys) => keys.next(&mut self.steps, index)?,
                None => Some(self.range_item(list, index)?),
            };
            let Some(item) = item else { continue };
            self.variables[usize::from(variable) % VARIABLES_MAX] = item;
            match (self.test(body), which) {
                (Ok(true), Quantifier::Exists) => return Ok(true),
                (Ok(false), Quantifier::All) => return Ok(false),
                (Ok(value), _) => found += usize::from(value),
                (Err(EvalError::Steps), _) => return Err(EvalError::Steps),
                (Err(error), Quantifier::ExistsOne) => return Err(error),
                (Err(error), _) => failed = failed.or(Some(error)),
            }
        }
        match (failed, which) {
            (Some(error), _) => Err(error),
            (None, Quantifier::All) => Ok(true),
            (None, Quantifier::Exists) => Ok(false),
            (None, Quantifier::ExistsOne) => Ok(found == 1),
        }
    }

    /// What a quantifier's variable stands for: an element of a list, a key of a map.
    fn range_item(&mut self, list: Value<'a>, index: usize) -> Evaluated<'a> {
        match list {
            Value::Repeated(view, slot) => Value::of_item(view, slot, index).ok_or(EvalError::OutOfRange),
            Value::Written(nodes) => self.eval(nodes.get(index).ok_or(EvalError::OutOfRange)?),
            Value::Names(names) => {
                names.get(index).map(|name| Value::Str(name.as_bytes())).ok_or(EvalError::OutOfRange)
            }
            _ => Err(EvalError::OutOfRange),
        }
    }

    /// In CEL a list has a value only if all its elements have.
    fn written(&mut self, nodes: &'a [Node]) -> Evaluated<'a> {
        for node in nodes.iter().filter(|node| !matches!(node, Node::Constant(_))) {
            self.eval(node)?;
        }
        Ok(Value::Written(nodes))
    }

    fn element(&mut self, list: &'a Node, index: &'a Node) -> Evaluated<'a> {
        let list = self.eval(list)?;
        let Value::Int(index) = self.eval(index)? else { return Err(EvalError::OutOfRange) };
        let index = usize::try_from(index).map_err(|_| EvalError::OutOfRange)?;
        self.range_item(list, index)
    }

    /// Of several entries with one key the last counts, as in protobuf.
    fn entry(&mut self, map: &'a Node, key: &'a Node) -> Result<Option<Value<'a>>, EvalError> {
        let (map, key) = (self.eval(map)?, self.eval(key)?);
        let Value::Repeated(view, slot @ Slot { read: Read::Map(shape), .. }) = map else { return Ok(None) };
        for index in (0..Value::count(view, slot)).rev() {
            let Some(Value::Message(entry)) = Value::of_element(view, slot, index) else { continue };
            let found = Value::of_field(entry, &shape.0);
            self.steps.charge(1)?;
            self.steps.charge_bytes(found.bytes())?;
            if found.compare(key) == Some(Ordering::Equal) {
                return Ok(Some(Value::of_field(entry, &shape.1)));
            }
        }
        Ok(None)
    }

    /// The value of a key, read off the encoded form. Some readers take the first of several values (grpc-go's users),
    /// some the last (grpc-java's `Metadata.get`), some all: no choice of one, nor their joining, would make an
    /// equality mean here what it means there, so several have no value, as an absent one has none.
    fn metadata(&mut self, key: &'a Node) -> Result<Option<&'a [u8]>, EvalError> {
        let key = self.eval(key)?.bytes();
        let mut found = None;
        for (name, value) in trunkline_call::MetadataPairs::new(self.inputs.metadata) {
            self.steps.charge(1)?;
            if name != key {
                continue;
            }
            self.steps.charge_bytes(value)?;
            if found.replace(value).is_some_and(|before| before != value) {
                return Err(EvalError::SeveralValues);
            }
        }
        Ok(found)
    }

    /// Whether a key has any value.
    fn has_metadata(&mut self, key: &'a Node) -> Result<bool, EvalError> {
        let key = self.eval(key)?.bytes();
        for (name, _) in trunkline_call::MetadataPairs::new(self.inputs.metadata) {
            self.steps.charge(1)?;
            if name == key {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn among(&mut self, value: &'a Node, list: &'a Node) -> Result<bool, EvalError> {
        let (value, list) = (self.eval(value)?, self.eval(list)?);
        let mut failed = None;
        for index in 0..count(list) {
            self.steps.charge(1)?;
            match self.range_item(list, index) {
                Ok(element) => {
                    self.steps.charge_bytes(element.bytes())?;
                    if element.compare(value) == Some(Ordering::Equal) {
                        return Ok(true);
                    }
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(false), Err)
    }

    fn compare(
        &mut self,
        comparison: Comparison,
        left: &'a Node,
        right: &'a Node,
    ) -> Result<bool, EvalError> {
        let (left, right) = (self.operand(left)?, self.operand(right)?);
        self.steps.charge_bytes(left.bytes())?;
        Ok(match comparison {
            Comparison::Equal => left.equals(right),
            Comparison::NotEqual => !left.equals(right),
            Comparison::Less => left.compare(right) == Some(Ordering::Less),
            Comparison::LessOrEqual => left.compare(right).is_some_and(Ordering::is_le),
            Comparison::Greater => left.compare(right) == Some(Ordering::Greater),
            Comparison::GreaterOrEqual => left.compare(right).is_some_and(Ordering::is_ge),
        })
    }

    /// A side of a comparison. Nearly always it is a constant or a field of the request: no recursion for those.
    #[inline]
    fn operand(&mut self, node: &'a Node) -> Evaluated<'a> {
        match node {
            Node::Constant(constant) => Ok(Value::of_constant(constant)),
            Node::Field(of, slot) if matches!(**of, Node::Request) => {
                Ok(Value::of_field(self.inputs.request, slot))
            }
            _ => self.eval(node),
        }
    }

    fn text(&mut self, test: TextTest, of: &'a Node, part: &'a Node) -> Result<bool, EvalError> {
        let (text, part) = (self.eval(of)?.bytes(), self.eval(part)?.bytes());
        if part.len() > text.len() {
            return Ok(false);
        }
        match test {
            TextTest::StartsWith | TextTest::EndsWith => self.steps.charge_bytes(part)?,
            TextTest::Contains => {
                self.steps.charge_bytes(text)?;
                self.steps.charge_slow_bytes(part)?;
            }
        }
        Ok(match test {
            TextTest::StartsWith => text.starts_with(part),
            TextTest::EndsWith => text.ends_with(part),
            TextTest::Contains => contains(text, part),
        })
    }

    fn size(&mut self, of: &'a Node) -> Result<i64, EvalError> {
        let size = match self.eval(of)? {
            Value::Str(text) => {
                self.steps.charge_bytes(text)?;
                // Characters: bytes that do not continue one.
                text.iter().filter(|byte| **byte & 0xC0 != 0x80).count()
            }
            Value::Bytes(bytes) => bytes.len(),
            map if is_map(map) => self.keys(map)?,
            list => count(list),
        };
        Ok(size as i64)
    }

    /// How many keys a map has.
    fn keys(&mut self, map: Value<'a>) -> Result<usize, EvalError> {
        let entries = count(map);
        let mut keys = Keys::of(map, entries);
        let mut distinct = 0;
        for index in 0..entries {
            distinct += usize::from(keys.next(&mut self.steps, index)?.is_some());
        }
        Ok(distinct)
    }

    fn uid(&self) -> Option<i64> {
        self.inputs.caller?.uid().map(i64::from)
    }

    fn input(&self, input: Input) -> &'a str {
        let caller = self.inputs.caller;
        match input {
            Input::CallerIdentity => caller.map_or("", |caller| &caller.identity),
            Input::CallerName => caller.map_or("", |caller| &caller.name),
            Input::CallerProgram => caller.map_or("", |caller| &caller.program),
            Input::Path => self.inputs.path,
            Input::Service => self.inputs.service(),
            Input::Method => self.inputs.method(),
            Input::Application => self.inputs.application,
            Input::PeerIdentity => self.inputs.peer_identity,
            Input::PeerAddress => self.inputs.peer_address,
        }
    }
}

fn has(view: View<'_>, slot: &Slot, presence: Presence) -> bool {
    match presence {
        Presence::Set => view.has(slot.at),
        Presence::NotZero => view.has(slot.at) && !Value::of_field(view, slot).is_zero(),
        Presence::NotEmpty => Value::count(view, slot) > 0,
    }
}

fn is_map(value: Value<'_>) -> bool {
    matches!(value, Value::Repeated(_, Slot { read: Read::Map(_), .. }))
}

fn count(list: Value<'_>) -> usize {
    match list {
        Value::Repeated(view, slot) => Value::count(view, slot),
        Value::Written(nodes) => nodes.len(),
        Value::Names(names) => names.len(),
        _ => 0,
    }
}

/// Linear: the searcher of `str` would want text, and this is only bytes.
fn contains(text: &[u8], part: &[u8]) -> bool {
    part.is_empty() || memchr::memmem::find(text, part).is_some()
}

fn negated<'a>(value: Value<'a>) -> Evaluated<'a> {
    match value {
        Value::Int(value) => value.checked_neg().map(Value::Int).ok_or(EvalError::Overflow),
        Value::Double(value) => Ok(Value::Double(-value)),
        _ => Err(EvalError::Overflow),
    }
}

fn arithmetic<'a>(operator: Arithmetic, left: Value<'a>, right: Value<'a>) -> Evaluated<'a> {
    match (left, right) {
        (Value::Int(a), Value::Int(b)) => {
            let result = match operator {
                Arithmetic::Add => a.checked_add(b),
                Arithmetic::Subtract => a.checked_sub(b),
                Arithmetic::Multiply => a.checked_mul(b),
                Arithmetic::Divide | Arithmetic::Remainder if b == 0 => return Err(EvalError::DivideByZero),
                Arithmetic::Divide => a.checked_div(b),
                Arithmetic::Remainder => a.checked_rem(b),
            };
            result.map(Value::Int).ok_or(EvalError::Overflow)
        }
        (Value::Uint(a), Value::Uint(b)) => {
            let result = match operator {
                Arithmetic::Add => a.checked_add(b),
                Arithmetic::Subtract => a.checked_sub(b),
                Arithmetic::Multiply => a.checked_mul(b),
                Arithmetic::Divide => {
                    return a.checked_div(b).map(Value::Uint).ok_or(EvalError::DivideByZero);
                }
                Arithmetic::Remainder => {
                    return a.checked_rem(b).map(Value::Uint).ok_or(EvalError::DivideByZero);
                }
            };
            result.map(Value::Uint).ok_or(EvalError::Overflow)
        }
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(match operator {
            Arithmetic::Add => a + b,
            Arithmetic::Subtract => a - b,
            Arithmetic::Multiply => a * b,
            Arithmetic::Divide => a / b,
            Arithmetic::Remainder => return Err(EvalError::Overflow),
        })),
        _ => Err(EvalError::Overflow),
    }
}

/// Conversions; what does not fit is an overflow, what is no number is none either.
fn convert<'a>(to: Scalar, value: Value<'a>) -> Evaluated<'a> {
    /// The first doubles beyond the integers of either kind.
    const INT_END: f64 = 9_223_372_036_854_775_808.0;
    const UINT_END: f64 = 18_446_744_073_709_551_616.0;
    fn parsed<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
        std::str::from_utf8(text).ok()?.parse().ok()
    }
    let converted = match (to, value) {
        (Scalar::Int, Value::Int(_))
        | (Scalar::Uint, Value::Uint(_))
        | (Scalar::Double, Value::Double(_)) => Some(value),
        (Scalar::Int, Value::Uint(v)) => i64::try_from(v).ok().map(Value::Int),
        // Strictly inside, as CEL wants it: the ends are not exact.
        (Scalar::Int, Value::Double(v)) => (v > -INT_END && v < INT_END).then_some(Value::Int(v as i64)),
        (Scalar::Int, Value::Str(text)) => parsed(text).map(Value::Int),
        (Scalar::Uint, Value::Int(v)) => u64::try_from(v).ok().map(Value::Uint),
        (Scalar::Uint, Value::Double(v)) => (v > -1.0 && v < UINT_END).then_some(Value::Uint(v as u64)),
        (Scalar::Uint, Value::Str(text)) => parsed(text).map(Value::Uint),
        (Scalar::Double, Value::Int(v)) => Some(Value::Double(v as f64)),
        (Scalar::Double, Value::Uint(v)) => Some(Value::Double(v as f64)),
        (Scalar::Double, Value::Str(text)) => parsed(text).map(Value::Double),
        (Scalar::Str, Value::Str(text)) => Some(Value::Str(text)),
        (Scalar::Str, Value::Bytes(bytes)) => {
            std::str::from_utf8(bytes).ok().map(|text| Value::Str(text.as_bytes()))
        }
        (Scalar::Bytes, Value::Str(bytes) | Value::Bytes(bytes)) => Some(Value::Bytes(bytes)),
        _ => None,
    };
    converted.ok_or(EvalError::Overflow)
}
