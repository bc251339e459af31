//! Tokens to a tree, by recursive descent along CEL's grammar (langdef.md, "Grammar").

use super::ast::{Expr, ExprKind, HEIGHT_MAX, Literal, Operator};
use super::error::Complaint;
use super::lex::{Lexeme, Token, tokens};

/// Longest expression. The longest rule sets of public proxies are lists of a few hundred names.
pub(super) const EXPRESSION_BYTES_MAX: usize = 64 << 10;

/// Words CEL keeps for itself.
const RESERVED: [&str; 19] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "namespace",
    "package",
    "return",
    "var",
    "void",
    "while",
    "__result__",
];

/// Reads a whole expression.
pub(super) fn parse(text: &str) -> Result<Expr, Complaint> {
    if text.len() > EXPRESSION_BYTES_MAX {
        let problem = format!("expression has more than {EXPRESSION_BYTES_MAX} bytes");
        return Err(Complaint::new(0, problem, "split it into several policies"));
    }
    let mut parser = Parser { tokens: tokens(text)?, next: 0, depth: 0 };
    let expr = parser.conditional()?;
    match parser.peek() {
        Lexeme::End => Ok(expr),
        _ => Err(parser.unexpected("an operator or the end")),
    }
}

struct Parser {
    tokens: Vec<Token>,
    next: usize,
    /// Open brackets, signs and branches around the next token.
    depth: u32,
}

type Parsed = Result<Expr, Complaint>;

impl Parser {
    fn conditional(&mut self) -> Parsed {
        self.deeper(|parser| {
            let condition = parser.either()?;
            let at = parser.at();
            if !parser.take("?") {
                return Ok(condition);
            }
            let yes = parser.either()?;
            parser.expect(":")?;
            let no = parser.conditional()?;
            Expr::above(at, ExprKind::Conditional(condition.into(), yes.into(), no.into()))
        })
    }

    fn either(&mut self) -> Parsed {
        self.chained("||", Self::both, ExprKind::Or)
    }

    fn both(&mut self) -> Parsed {
        self.chained("&&", Self::relation, ExprKind::And)
    }

    fn chained(
        &mut self,
        sign: &str,
        part: fn(&mut Self) -> Parsed,
        join: fn(Vec<Expr>) -> ExprKind,
    ) -> Parsed {
        let first = part(self)?;
        let at = self.at();
        let mut all = vec![first];
        while self.take(sign) {
            all.push(part(self)?);
        }
        match all.pop() {
            Some(only) if all.is_empty() => Ok(only),
            last => Expr::above(at, join(all.into_iter().chain(last).collect())),
        }
    }

    fn relation(&mut self) -> Parsed {
        use Operator::*;
        let table = [Equal, NotEqual, LessOrEqual, GreaterOrEqual, Less, Greater, In];
        self.binary(&table, |parser| {
            parser
                .binary(&[Add, Subtract], |parser| parser.binary(&[Multiply, Divide, Remainder], Self::unary))
        })
    }

    fn binary(&mut self, operators: &[Operator], part: fn(&mut Self) -> Parsed) -> Parsed {
        let mut left = part(self)?;
        loop {
            let at = self.at();
            let Some(operator) = operators.iter().find(|operator| self.take(operator.sign())) else {
                return Ok(left);
            };
            let right = part(self)?;
            left = Expr::above(at, ExprKind::Binary(*operator, left.into(), right.into()))?;
        }
    }

    fn unary(&mut self) -> Parsed {
        let at = self.at();
        if self.take("!") {
            let of = self.deeper(Self::unary)?;
            return Expr::above(at, ExprKind::Not(of.into()));
        }
        if !self.take("-") {
            return self.member();
        }
        if let Some(value) = self.negative() {
            let first = Expr::above(at, ExprKind::Literal(value))?;
            return self.members_of(first);
        }
        let of = self.deeper(Self::unary)?;
        Expr::above(at, ExprKind::Negate(of.into()))
    }

    /// A number right behind its sign is one literal: the least integer has no positive twin.
    fn negative(&mut self) -> Option<Literal> {
        let value = match *self.peek() {
            Lexeme::Int(magnitude) => Literal::Int(0i64.wrapping_sub_unsigned(magnitude)),
            Lexeme::Double(value) => Literal::Double(-value),
            _ => return None,
        };
        self.next += 1;
        Some(value)
    }

    fn member(&mut self) -> Parsed {
        let first = self.primary()?;
        self.members_of(first)
    }

    fn members_of(&mut self, mut of: Expr) -> Parsed {
        loop {
            let at = self.at();
            if self.take(".") {
                let at = self.at();
                let name = self.name()?;
                let kind = match self.arguments("(")? {
                    Some(args) => ExprKind::Call { target: Some(of.into()), name, args },
                    None => ExprKind::Select(of.into(), name),
                };
                of = Expr::above(at, kind)?;
            } else if self.take("[") {
                let index = self.conditional()?;
                self.expect("]")?;
                of = Expr::above(at, ExprKind::Index(of.into(), index.into()))?;
            } else {
                return Ok(of);
            }
        }
    }

    fn primary(&mut self) -> Parsed {
        let at = self.at();
        if self.take("(") {
            let inner = self.conditional()?;
            self.expect(")")?;
            return Ok(inner);
        }
        if let Some(elements) = self.list()? {
            return Expr::above(at, ExprKind::List(elements));
        }
        if matches!(self.peek(), Lexeme::Sign("{")) {
            return Err(Complaint::new(
                at,
                "map literals are not supported here",
                "compare the keys one by one",
            ));
        }
        // A leading dot only says that the name is absolute.
        let absolute = self.take(".");
        match self.literal().filter(|_| !absolute) {
            Some(literal) => Expr::above(at, ExprKind::Literal(literal)),
            None => {
                let name = self.name()?;
                let kind = match self.arguments("(")? {
                    Some(args) => ExprKind::Call { target: None, name, args },
                    None => ExprKind::Ident(name),
                };
                Expr::above(at, kind)
            }
        }
    }

    fn list(&mut self) -> Result<Option<Vec<Expr>>, Complaint> {
        self.arguments("[")
    }

    /// `(a, b)` or `[a, b]`, if one begins here. A list may end in a comma.
    fn arguments(&mut self, open: &str) -> Result<Option<Vec<Expr>>, Complaint> {
        if !self.take(open) {
            return Ok(None);
        }
        let close = if open == "(" { ")" } else { "]" };
        let mut all = Vec::new();
        while !self.take(close) {
            all.push(self.conditional()?);
            if !self.take(",") {
                self.expect(close)?;
                break;
            }
        }
        Ok(Some(all))
    }

    fn literal(&mut self) -> Option<Literal> {
        let literal = match self.peek() {
            Lexeme::Ident(word) if word == "true" => Literal::Bool(true),
            Lexeme::Ident(word) if word == "false" => Literal::Bool(false),
            Lexeme::Ident(word) if word == "null" => Literal::Null,
            Lexeme::Int(value) if *value < 1 << 63 => Literal::Int(*value as i64),
            Lexeme::Uint(value) => Literal::Uint(*value),
            Lexeme::Double(value) => Literal::Double(*value),
            Lexeme::Str(value) => Literal::Str(value.clone()),
            Lexeme::Bytes(value) => Literal::Bytes(value.clone()),
            _ => return None,
        };
        self.next += 1;
        Some(literal)
    }

    fn name(&mut self) -> Result<String, Complaint> {
        match self.peek() {
            Lexeme::Ident(word) if RESERVED.contains(&word.as_str()) => {
                let problem = format!("{word:?} is a reserved word of CEL");
                Err(Complaint::new(self.at(), problem, "a field of that name cannot be named here"))
            }
            Lexeme::Ident(word) => {
                let word = word.clone();
                self.next += 1;
                Ok(word)
            }
            _ => Err(self.unexpected("a value")),
        }
    }

    /// Guards the descent itself, which brackets drive before there is any tree.
    fn deeper(&mut self, part: impl FnOnce(&mut Self) -> Parsed) -> Parsed {
        if self.depth >= HEIGHT_MAX {
            let problem = format!("expression nests more than {HEIGHT_MAX} levels");
            return Err(Complaint::new(self.at(), problem, "split it into several policies"));
        }
        self.depth += 1;
        let parsed = part(self);
        self.depth -= 1;
        parsed
    }

    fn peek(&self) -> &Lexeme {
        self.tokens.get(self.next).map_or(&Lexeme::End, |token| &token.kind)
    }

    fn at(&self) -> u32 {
        self.tokens.get(self.next).or(self.tokens.last()).map_or(0, |token| token.at)
    }

    fn take(&mut self, sign: &str) -> bool {
        let found = match self.peek() {
            Lexeme::Sign(found) => *found == sign,
            Lexeme::Ident(word) => word == "in" && sign == "in",
            _ => false,
        };
        self.next += usize::from(found);
        found
    }

    fn expect(&mut self, sign: &str) -> Result<(), Complaint> {
        if self.take(sign) { Ok(()) } else { Err(self.unexpected(&format!("{sign:?}"))) }
    }

    fn unexpected(&self, wanted: &str) -> Complaint {
        let found = match self.peek() {
            Lexeme::End => "the end of the expression".into(),
            Lexeme::Ident(word) => format!("{word:?}"),
            Lexeme::Sign(sign) => format!("{sign:?}"),
            Lexeme::Int(_) | Lexeme::Uint(_) | Lexeme::Double(_) => "a number".into(),
            Lexeme::Str(_) | Lexeme::Bytes(_) => "a literal".to_owned(),
        };
        Complaint::new(self.at(), format!("found {found}"), format!("write {wanted} here"))
    }
}
