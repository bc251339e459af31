//! Expressions as written.

use super::error::Complaint;

/// A node of the tree, where it stands in the text, and how high it is.
#[derive(Clone, Debug)]
pub(super) struct Expr {
    pub at: u32,
    pub kind: ExprKind,
    height: u32,
}

/// What a node is.
#[derive(Clone, Debug)]
pub(super) enum ExprKind {
    Literal(Literal),
    Ident(String),
    Select(Box<Expr>, String),
    Index(Box<Expr>, Box<Expr>),
    Call {
        target: Option<Box<Expr>>,
        name: String,
        args: Vec<Expr>,
    },
    Not(Box<Expr>),
    Negate(Box<Expr>),
    Binary(Operator, Box<Expr>, Box<Expr>),
    /// `a && b && c`, and below `a || b || c`, are one node each: long lists of conditions do not nest.
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Conditional(Box<Expr>, Box<Expr>, Box<Expr>),
    List(Vec<Expr>),
}

/// A value as written.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Str(Vec<u8>),
    Bytes(Vec<u8>),
}

/// Two-sided operators besides the logical ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
}

/// Levels of one tree. Checker and evaluator recurse once per level, so this bounds their stack; people write less
/// than ten.
pub(super) const HEIGHT_MAX: u32 = 64;

impl Expr {
    /// A node above `parts`.
    ///
    /// # Errors
    /// If the tree would be higher than [`HEIGHT_MAX`].
    pub fn above(at: u32, kind: ExprKind) -> Result<Self, Complaint> {
        let height = 1 + kind.parts().map(|part| part.height).max().unwrap_or(0);
        if height > HEIGHT_MAX {
            let problem = format!("expression nests more than {HEIGHT_MAX} levels");
            return Err(Complaint::new(at, problem, "split it into several policies"));
        }
        Ok(Self { at, kind, height })
    }
}

impl ExprKind {
    fn parts(&self) -> Box<dyn Iterator<Item = &Expr> + '_> {
        match self {
            Self::Literal(_) | Self::Ident(_) => Box::new(std::iter::empty()),
            Self::Select(of, _) | Self::Not(of) | Self::Negate(of) => Box::new(std::iter::once(&**of)),
            Self::Index(a, b) | Self::Binary(_, a, b) => Box::new([&**a, &**b].into_iter()),
            Self::Conditional(a, b, c) => Box::new([&**a, &**b, &**c].into_iter()),
            Self::And(all) | Self::Or(all) | Self::List(all) => Box::new(all.iter()),
            Self::Call { target, args, .. } => Box::new(target.as_deref().into_iter().chain(args)),
        }
    }
}

impl Operator {
    pub fn sign(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Remainder => "%",
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
            Self::In => "in",
        }
    }
}
