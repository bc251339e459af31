//! The type checker: a tree as written becomes a tree of offsets, or a complaint.
//!
//! It runs twice. When a policy is defined, no schema may be known yet: fields of the request then have the type
//! *unknown*, and everything else is checked. When a method is bound, it runs against that method's request type, and
//! what comes out can be evaluated.

use super::ast::{Expr, ExprKind, Literal, Operator};
use super::error::{Complaint, did_you_mean};
use super::metadata::sent_key;
use super::node::{Arithmetic, Comparison, Constant, Input, Node};
use super::types::Type;
use regex::bytes::Regex;
use std::collections::HashMap;
use std::sync::Arc;
use trunkline_schema::{MessageIndex, Schema};

/// Names every expression may use.
pub(super) const NAMES: [&str; 9] =
    ["request", "metadata", "method", "service", "path", "application", "peer", "caller", "true"];

/// One check.
pub(super) struct Checker<'c> {
    pub schema: Option<(&'c Schema, MessageIndex)>,
    /// Compiled patterns by where they stand, so that the second check compiles none.
    pub patterns: &'c mut HashMap<u32, Arc<Regex>>,
    /// Names bound by quantifiers, outermost first.
    pub variables: Vec<(String, Type)>,
    /// What was met on the way.
    pub needs: Needs,
}

/// What an expression cannot be evaluated without.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Needs {
    /// The message.
    pub request: bool,
    /// The schema: for the message, or for values of enums.
    pub schema: bool,
    /// Anything of the call beside its message.
    pub facts: bool,
}

pub(super) type Checked = Result<(Type, Node), Complaint>;

impl Checker<'_> {
    pub fn check(&mut self, expr: &Expr) -> Checked {
        match &expr.kind {
            ExprKind::Literal(literal) => Ok(constant(literal)),
            ExprKind::Ident(name) => self.ident(expr.at, name),
            ExprKind::Select(of, name) => self.select(expr, of, name),
            ExprKind::Index(of, index) => self.index(expr.at, of, index),
            ExprKind::Call { target: Some(target), name, args } => self.method(expr.at, target, name, args),
            ExprKind::Call { target: None, name, args } => self.function(expr.at, name, args),
            ExprKind::Not(of) => {
                let of = self.wanted(of, &Type::Bool, "!")?;
                Ok((Type::Bool, Node::Not(of.into())))
            }
            ExprKind::Negate(of) => self.negate(of),
            ExprKind::Binary(operator, left, right) => self.binary(expr.at, *operator, left, right),
            ExprKind::And(all) => Ok((Type::Bool, Node::And(self.conditions(all, "&&")?))),
            ExprKind::Or(all) => Ok((Type::Bool, Node::Or(self.conditions(all, "||")?))),
            ExprKind::Conditional(condition, yes, no) => self.conditional(expr.at, condition, yes, no),
            ExprKind::List(all) => self.list(all),
        }
    }

    /// Checks a part that must have one type.
    pub fn wanted(&mut self, expr: &Expr, wanted: &Type, by: &str) -> Result<Node, Complaint> {
        let (found, node) = self.check(expr)?;
        if found.fits(wanted) {
            return Ok(node);
        }
        let problem = format!("{by} takes {}, and this is {}", self.name(wanted), self.name(&found));
        Err(Complaint::new(expr.at, problem, conversion(&found, wanted)))
    }

    /// A type in words.
    pub fn name(&self, of: &Type) -> String {
        of.name(self.schema.map(|(schema, _)| schema))
    }

    fn ident(&mut self, at: u32, name: &str) -> Checked {
        if let Some(index) = self.variables.iter().rposition(|(known, _)| known == name) {
            return Ok((self.variables[index].1.clone(), Node::Variable(index as u8)));
        }
        let input = |input| Ok((Type::Str, Node::Input(input)));
        self.needs.facts |= name != "request";
        match name {
            "request" => {
                (self.needs.request, self.needs.schema) = (true, true);
                Ok((self.schema.map_or(Type::Unknown, |(_, root)| Type::Message(root)), Node::Request))
            }
            "metadata" => Ok((Type::Metadata, Node::Unknown)),
            "peer" => Ok((Type::Peer, Node::Unknown)),
            "caller" => Ok((Type::Caller, Node::Unknown)),
            "method" => input(Input::Method),
            "service" => input(Input::Service),
            "path" => input(Input::Path),
            "application" => input(Input::Application),
            _ => {
                let advice = did_you_mean(name, NAMES.into_iter());
                let advice = advice.unwrap_or_else(|| {
                    "names here: request, metadata, method, service, path, application, peer, \
                     caller; text stands in quotes"
                        .into()
                });
                Err(Complaint::new(at, format!("there is no {name:?}"), advice))
            }
        }
    }

    fn negate(&mut self, of: &Expr) -> Checked {
        let (found, node) = self.check(of)?;
        match found {
            Type::Int | Type::Double | Type::Unknown => Ok((found, Node::Negate(node.into()))),
            _ => {
                let problem = format!("- takes int or double, and this is {}", self.name(&found));
                Err(Complaint::new(of.at, problem, ""))
            }
        }
    }

    fn conditions(&mut self, all: &[Expr], sign: &str) -> Result<Box<[Node]>, Complaint> {
        all.iter().map(|part| self.wanted(part, &Type::Bool, sign)).collect()
    }

    fn conditional(&mut self, at: u32, condition: &Expr, yes: &Expr, no: &Expr) -> Checked {
        let condition = self.wanted(condition, &Type::Bool, "?")?;
        let (yes_type, yes) = self.check(yes)?;
        let (no_type, no) = self.check(no)?;
        if !yes_type.fits(&no_type) {
            let problem =
                format!("the two sides of : have types {} and {}", self.name(&yes_type), self.name(&no_type));
            return Err(Complaint::new(at, problem, "give both the same type"));
        }
        let of = if yes_type == Type::Unknown { no_type } else { yes_type };
        Ok((of, Node::Conditional(Box::new([condition, yes, no]))))
    }

    fn list(&mut self, all: &[Expr]) -> Checked {
        let mut of = Type::Unknown;
        let mut nodes = Vec::with_capacity(all.len());
        for element in all {
            let (found, node) = self.check(element)?;
            if !found.fits(&of) {
                let problem =
                    format!("the list has elements of types {} and {}", self.name(&of), self.name(&found));
                return Err(Complaint::new(element.at, problem, "give all the same type"));
            }
            if of == Type::Unknown {
                of = found;
            }
            nodes.push(node);
        }
        Ok((Type::List(of.into()), Node::List(nodes.into())))
    }

    fn binary(&mut self, at: u32, operator: Operator, left: &Expr, right: &Expr) -> Checked {
        use Operator as O;
        let comparison = match operator {
            O::In => return self.among(at, left, right),
            O::Add => return self.arithmetic(at, Arithmetic::Add, operator, left, right),
            O::Subtract => return self.arithmetic(at, Arithmetic::Subtract, operator, left, right),
            O::Multiply => return self.arithmetic(at, Arithmetic::Multiply, operator, left, right),
            O::Divide => return self.arithmetic(at, Arithmetic::Divide, operator, left, right),
            O::Remainder => return self.arithmetic(at, Arithmetic::Remainder, operator, left, right),
            O::Equal => Comparison::Equal,
            O::NotEqual => Comparison::NotEqual,
            O::Less => Comparison::Less,
            O::LessOrEqual => Comparison::LessOrEqual,
            O::Greater => Comparison::Greater,
            O::GreaterOrEqual => Comparison::GreaterOrEqual,
        };
        let (left_type, left) = self.check(left)?;
        let (right_type, right) = self.check(right)?;
        if !left_type.equates(&right_type) {
            return Err(self.incomparable(at, operator, &left_type, &right_type));
        }
        Ok((Type::Bool, Node::Compare(comparison, left.into(), right.into())))
    }

    fn incomparable(&self, at: u32, operator: Operator, left: &Type, right: &Type) -> Complaint {
        let problem =
            format!("{} does not compare {} and {}", operator.sign(), self.name(left), self.name(right));
        let advice = match (left, right) {
            (Type::Null, _) | (_, Type::Null) => "ask for presence with has(request.field)".into(),
            (Type::List(_) | Type::Map(..) | Type::Message(_), _)
            | (_, Type::List(_) | Type::Map(..) | Type::Message(_)) => {
                "compare single fields or elements".into()
            }
            _ => conversion(right, left),
        };
        Complaint::new(at, problem, advice)
    }

    fn arithmetic(
        &mut self,
        at: u32,
        arithmetic: Arithmetic,
        sign: Operator,
        left: &Expr,
        right: &Expr,
    ) -> Checked {
        let (left_type, left_node) = self.check(left)?;
        let (right_type, right_node) = self.check(right)?;
        let of = if left_type == Type::Unknown { right_type.clone() } else { left_type.clone() };
        let defined = of.is_number() && !(of == Type::Double && arithmetic == Arithmetic::Remainder);
        if !left_type.fits(&right_type) || !(defined || of == Type::Unknown) {
            let (a, b) = (self.name(&left_type), self.name(&right_type));
            let problem = format!("{} is not defined for {a} and {b}", sign.sign());
            let advice = match of {
                Type::Str | Type::Bytes | Type::List(_) => "nothing is joined here: test the parts".into(),
                _ => conversion(&right_type, &left_type),
            };
            return Err(Complaint::new(at, problem, advice));
        }
        let (left, right) = (left_node.into(), right_node.into());
        Ok((of, Node::Arithmetic { operator: arithmetic, left, right }))
    }

    fn among(&mut self, at: u32, value: &Expr, range: &Expr) -> Checked {
        let (value_type, value) = self.check(value)?;
        let (range_type, range) = self.check(range)?;
        let (element, node) = match range_type {
            Type::Unknown => (Type::Unknown, Node::Unknown),
            Type::Metadata => (Type::Str, Node::HasMetadata(sent_key(at, value)?.into())),
            Type::Map(key, _) => (*key, Node::HasEntry { map: range.into(), key: value.into() }),
            Type::List(of) => (*of, Node::Among { value: value.into(), list: range.into() }),
            other => {
                let problem = format!("in takes a list or a map, and this is {}", self.name(&other));
                return Err(Complaint::new(at, problem, "write [a, b] or name a repeated field"));
            }
        };
        if !value_type.equates(&element) {
            return Err(self.incomparable(at, Operator::In, &value_type, &element));
        }
        Ok((Type::Bool, node))
    }
}

fn constant(literal: &Literal) -> (Type, Node) {
    let (of, constant) = match literal {
        Literal::Null => return (Type::Null, Node::Unknown),
        Literal::Bool(value) => (Type::Bool, Constant::Bool(*value)),
        Literal::Int(value) => (Type::Int, Constant::Int(*value)),
        Literal::Uint(value) => (Type::Uint, Constant::Uint(*value)),
        Literal::Double(value) => (Type::Double, Constant::Double(*value)),
        Literal::Str(value) => (Type::Str, Constant::Str(value.as_slice().into())),
        Literal::Bytes(value) => (Type::Bytes, Constant::Bytes(value.as_slice().into())),
    };
    (of, Node::Constant(constant))
}

/// How to get from one type to the other.
pub(super) fn conversion(found: &Type, wanted: &Type) -> String {
    match (found, wanted) {
        (Type::Int, Type::Uint) => "write a number with u (5u), or uint(...)".into(),
        (Type::Uint, Type::Int) => "write the number without u, or int(...)".into(),
        (Type::Int | Type::Uint, Type::Double) => "write a number with a point (5.0), or double(...)".into(),
        (Type::Double, Type::Int) => "write int(...)".into(),
        (Type::Str, Type::Bytes) => "write b\"...\", or bytes(...)".into(),
        (Type::Bytes, Type::Str) => "write b\"...\" on the other side, or string(...)".into(),
        (Type::Str, Type::Int | Type::Uint | Type::Double) => {
            "write the number without quotes, or int(...)".into()
        }
        (Type::Int | Type::Uint | Type::Double, Type::Str) => "write the text in quotes".into(),
        _ => String::new(),
    }
}
