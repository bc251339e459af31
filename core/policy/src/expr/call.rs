//! Checking functions, and the macros that look like them.

use super::ast::{Expr, ExprKind, Literal};
use super::check::{Checked, Checker};
use super::error::{Complaint, did_you_mean};
use super::node::{Node, Quantifier, Scalar, TextTest, VARIABLES_MAX};
use super::re2::translate;
use super::types::Type;
use regex::bytes::{Regex, RegexBuilder};
use std::sync::Arc;

/// Memory one compiled pattern may take. Time to match is linear in the text whatever the pattern.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// Functions by name, for advice.
const FUNCTIONS: [&str; 15] = [
    "has",
    "size",
    "int",
    "uint",
    "double",
    "string",
    "bytes",
    "startsWith",
    "endsWith",
    "contains",
    "matches",
    "all",
    "exists",
    "exists_one",
    "filter",
];

impl Checker<'_> {
    /// `name(args)`
    pub(super) fn function(&mut self, at: u32, name: &str, args: &[Expr]) -> Checked {
        match (name, args) {
            ("has", _) => self.has(at, args),
            ("size", [of]) => self.size(at, of),
            ("int", [of]) => self.convert(at, Scalar::Int, of),
            ("uint", [of]) => self.convert(at, Scalar::Uint, of),
            ("double", [of]) => self.convert(at, Scalar::Double, of),
            ("string", [of]) => self.convert(at, Scalar::Str, of),
            ("bytes", [of]) => self.convert(at, Scalar::Bytes, of),
            // CEL has `matches` in both forms.
            ("matches", [text, pattern]) => self.matches(text, pattern),
            _ => Err(no_function(at, name, args.len(), false)),
        }
    }

    /// `target.name(args)`
    pub(super) fn method(&mut self, at: u32, target: &Expr, name: &str, args: &[Expr]) -> Checked {
        match (name, args) {
            ("size", []) => self.size(at, target),
            ("startsWith", [part]) => self.text(TextTest::StartsWith, name, target, part),
            ("endsWith", [part]) => self.text(TextTest::EndsWith, name, target, part),
            ("contains", [part]) => self.text(TextTest::Contains, name, target, part),
            ("matches", [pattern]) => self.matches(target, pattern),
            ("all", [variable, body]) => self.quantified(Quantifier::All, target, variable, body),
            ("exists", [variable, body]) => self.quantified(Quantifier::Exists, target, variable, body),
            ("exists_one", [variable, body]) => {
                self.quantified(Quantifier::ExistsOne, target, variable, body)
            }
            _ => Err(no_function(at, name, args.len(), true)),
        }
    }

    fn size(&mut self, at: u32, of: &Expr) -> Checked {
        let (found, node) = self.check(of)?;
        match found {
            Type::Unknown | Type::Str | Type::Bytes | Type::List(_) | Type::Map(..) => {
                Ok((Type::Int, Node::Size(node.into())))
            }
            other => {
                let problem =
                    format!("size() takes a string, bytes, list or map, and this is {}", self.name(&other));
                Err(Complaint::new(at, problem, ""))
            }
        }
    }

    fn text(&mut self, test: TextTest, name: &str, of: &Expr, part: &Expr) -> Checked {
        let of = self.wanted(of, &Type::Str, name)?;
        let part = self.wanted(part, &Type::Str, name)?;
        Ok((Type::Bool, Node::Text(test, of.into(), part.into())))
    }

    fn matches(&mut self, of: &Expr, pattern: &Expr) -> Checked {
        let of = self.wanted(of, &Type::Str, "matches")?;
        let ExprKind::Literal(Literal::Str(source)) = &pattern.kind else {
            let advice = "write it as a literal: it is compiled once, when the policy is applied";
            return Err(Complaint::new(
                pattern.at,
                "the pattern of matches() must be known beforehand",
                advice,
            ));
        };
        let regex = match self.patterns.get(&pattern.at) {
            Some(regex) => Arc::clone(regex),
            None => Arc::new(compile(pattern.at, source)?),
        };
        self.patterns.insert(pattern.at, Arc::clone(&regex));
        Ok((Type::Bool, Node::Matches(of.into(), regex)))
    }

    fn convert(&mut self, at: u32, to: Scalar, of: &Expr) -> Checked {
        let (found, node) = self.check(of)?;
        let (result, defined) = match to {
            Scalar::Int => (Type::Int, found.is_number() || found == Type::Str),
            Scalar::Uint => (Type::Uint, found.is_number() || found == Type::Str),
            Scalar::Double => (Type::Double, found.is_number() || found == Type::Str),
            Scalar::Str => (Type::Str, matches!(found, Type::Str | Type::Bytes)),
            Scalar::Bytes => (Type::Bytes, matches!(found, Type::Str | Type::Bytes)),
        };
        if !defined && found != Type::Unknown {
            let problem = format!("{} cannot be made of {}", self.name(&result), self.name(&found));
            let advice =
                if to == Scalar::Str { "no text is made here: compare the value itself" } else { "" };
            return Err(Complaint::new(at, problem, advice));
        }
        Ok((result, Node::Convert { to, of: node.into() }))
    }

    fn quantified(&mut self, which: Quantifier, range: &Expr, variable: &Expr, body: &Expr) -> Checked {
        let ExprKind::Ident(name) = &variable.kind else {
            return Err(Complaint::new(
                variable.at,
                "a quantifier's first argument is a name",
                "write list.all(x, x > 0)",
            ));
        };
        let (found, list) = self.check(range)?;
        let element = match found {
            Type::Unknown => Type::Unknown,
            Type::List(of) => *of,
            Type::Map(key, _) => *key,
            other => {
                let problem =
                    format!("all() and exists() take a list or a map, and this is {}", self.name(&other));
                return Err(Complaint::new(range.at, problem, "name a repeated field or a map field"));
            }
        };
        if self.variables.len() >= VARIABLES_MAX {
            let problem = format!("quantifiers nest more than {VARIABLES_MAX} levels");
            return Err(Complaint::new(variable.at, problem, "split the expression into several policies"));
        }
        let slot = self.variables.len() as u8;
        self.variables.push((name.clone(), element));
        let body = self.wanted(body, &Type::Bool, "a quantifier");
        self.variables.pop();
        Ok((Type::Bool, Node::Quantified { which, list: list.into(), variable: slot, body: body?.into() }))
    }
}

fn compile(at: u32, source: &[u8]) -> Result<Regex, Complaint> {
    let bad = |problem: &str| {
        let advice = "patterns are those of RE2: no look-around, no back-references";
        Complaint::new(at, format!("bad pattern: {problem}"), advice)
    };
    let source = std::str::from_utf8(source).map_err(|_| bad("it is not UTF-8"))?;
    let translated = translate(source).map_err(|error| bad(&error.0))?;
    RegexBuilder::new(&translated).size_limit(PATTERN_BYTES_MAX).build().map_err(|error| match error {
        regex::Error::CompiledTooBig(bytes_max) => bad(&format!("it takes more than {bytes_max} bytes")),
        error => bad(error.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ")),
    })
}

fn no_function(at: u32, name: &str, args: usize, of_target: bool) -> Complaint {
    let form = if of_target { format!("value.{name}") } else { name.to_owned() };
    let problem = format!("there is no function {form} of {args} arguments");
    let advice = match name {
        "filter" | "map" => {
            "nothing is collected here: write list.exists(x, ...) or list.all(x, ...)".to_owned()
        }
        "timestamp" | "duration" => "compare the fields seconds and nanos".to_owned(),
        "startsWith" | "endsWith" | "contains" => format!("write text.{name}(\"part\")"),
        "all" | "exists" | "exists_one" => format!("write list.{name}(x, x > 0)"),
        _ => did_you_mean(name, FUNCTIONS.into_iter())
            .unwrap_or_else(|| format!("functions: {}", FUNCTIONS[..14].join(", "))),
    };
    Complaint::new(at, problem, advice)
}
