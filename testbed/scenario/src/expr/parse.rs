//! From text to conditions.

use std::str::FromStr as _;

use topologies::lab::Lab;
use topologies::near::suggestion;
use topologies::select::Selector;

use super::value::Value;
use super::{BadCondition, Condition, Operator, Quantifier, Subject, Test};

const QUANTIFIERS: [(&str, Quantifier); 6] = [
    ("all", Quantifier::All),
    ("any", Quantifier::Any),
    ("no", Quantifier::No),
    ("sum", Quantifier::Sum),
    ("max", Quantifier::Max),
    ("min", Quantifier::Min),
];
const OPERATORS: [(&str, Operator); 7] = [
    ("==", Operator::Equal),
    ("!=", Operator::Unequal),
    ("<", Operator::Less),
    ("<=", Operator::AtMost),
    (">", Operator::More),
    (">=", Operator::AtLeast),
    ("contains", Operator::Contains),
];
const SUBJECTS: [&str; 9] = ["lab", "plane", "link", "node", "program", "traffic", "queue", "event", "cycle"];
const CLASSES: [&str; 4] = ["icp", "gold", "silver", "bronze"];

/// Fields of each subject; those of `status` and `compare` as their documents have them.
pub(super) fn fields(subject: &str) -> &'static [&'static str] {
    match subject {
        "lab" => &["state", "uptime_s", "carrier"],
        "plane" => &[
            "state",
            "lsps.wanted",
            "lsps.programmed",
            "lsps.on_backup",
            "bgp.wanted",
            "bgp.up",
            "routes.wanted",
            "routes.up",
            "traffic.packets",
            "traffic.bytes",
            "controllers.replicas",
            "controllers.leader",
            "reason",
        ],
        "link" => &[
            "state",
            "faults",
            "members.up",
            "members.total",
            "drained",
            "capacity",
            "capacity_left",
            "rate_bps",
            "rtt",
        ],
        "node" => &["state", "drained", "role", "site"],
        "program" => &["state", "pid", "restarts", "last_exit"],
        "traffic" => &[
            "sent",
            "received",
            "lost",
            "lost_percent",
            "refused",
            "windows",
            "longest_window_ms",
            "path_changes",
        ],
        "queue" => &["packets", "bytes", "dropped", "waiting"],
        "event" => &["count", "first_ms", "last_ms", "details"],
        "cycle" => &[
            "cycle",
            "errors",
            "leader",
            "lsps",
            "max_utilisation_permille",
            "pairs_failed",
            "pairs_ok",
            "program_us",
            "protected",
            "snapshot_us",
            "te_us",
            "unrouted",
            "restarts",
            "gold",
            "silver",
            "bronze",
            "backup",
        ],
        _ => &[],
    }
}

/// A word of the text and where it begins.
#[derive(Clone, Debug)]
struct Token {
    text: String,
    offset: usize,
    /// Whether quotes stood in it: then it is no keyword.
    quoted: bool,
}

fn bad<T>(offset: usize, message: impl Into<String>, hint: impl Into<String>) -> Result<T, BadCondition> {
    Err(BadCondition { offset, message: message.into(), hint: hint.into() })
}

fn tokens(text: &str) -> Result<Vec<Token>, BadCondition> {
    let mut found: Vec<Token> = Vec::new();
    let mut word: Option<Token> = None;
    let mut quote: Option<usize> = None;
    for (offset, c) in text.chars().enumerate() {
        if quote.is_some() {
            if c == '"' {
                quote = None;
            } else if let Some(word) = &mut word {
                word.text.push(c);
            }
            continue;
        }
        match c {
            '"' => {
                quote = Some(offset);
                word.get_or_insert(Token { text: String::new(), offset, quoted: true }).quoted = true;
            }
            '(' | ')' => {
                found.extend(word.take());
                found.push(Token { text: c.to_string(), offset, quoted: false });
            }
            c if c.is_whitespace() => found.extend(word.take()),
            c => word.get_or_insert(Token { text: String::new(), offset, quoted: false }).text.push(c),
        }
    }
    if let Some(offset) = quote {
        return bad(offset, "a quote is not closed", "add the closing `\"`");
    }
    found.extend(word);
    Ok(found)
}

/// See [`Condition::parse`].
pub fn condition(text: &str, lab: &Lab, traffic: &[String]) -> Result<Condition, BadCondition> {
    let tokens = tokens(text)?;
    let mut parser = Parser { tokens, at: 0, end: text.chars().count(), depth: 0, lab, traffic };
    let condition = parser.or()?;
    match parser.peek() {
        None => Ok(condition),
        Some(token) => bad(
            token.offset,
            format!("`{}` does not belong here", token.text),
            "join tests with `and` or `or`; a test is SUBJECT FIELD OPERATOR VALUE",
        ),
    }
}

struct Parser<'a> {
    tokens: Vec<Token>,
    at: usize,
    end: usize,
    depth: usize,
    lab: &'a Lab,
    traffic: &'a [String],
}

/// Parentheses and `not` within each other.
const MAX_DEPTH: usize = 32;

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn take(&mut self, what: &str) -> Result<Token, BadCondition> {
        let Some(token) = self.tokens.get(self.at).cloned() else {
            return bad(
                self.end,
                format!("{what} is missing at the end"),
                "a test is SUBJECT FIELD OPERATOR VALUE, as in `plane:1 state == ready`",
            );
        };
        self.at += 1;
        Ok(token)
    }

    fn eat(&mut self, word: &str) -> bool {
        let is = self.peek().is_some_and(|t| t.text == word && !t.quoted);
        self.at += usize::from(is);
        is
    }

    fn or(&mut self) -> Result<Condition, BadCondition> {
        let mut parts = vec![self.and()?];
        while self.eat("or") {
            parts.push(self.and()?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Condition::Or(parts) })
    }

    fn and(&mut self) -> Result<Condition, BadCondition> {
        let mut parts = vec![self.not()?];
        while self.eat("and") {
            parts.push(self.not()?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Condition::And(parts) })
    }

    fn not(&mut self) -> Result<Condition, BadCondition> {
        let offset = self.peek().map_or(self.end, |t| t.offset);
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return bad(offset, "too many parentheses within each other", "write it flatter");
        }
        let found = if self.eat("not") {
            Condition::Not(Box::new(self.not()?))
        } else if self.eat("(") {
            let inner = self.or()?;
            if !self.eat(")") {
                return bad(offset, "this parenthesis is not closed", "add `)`");
            }
            inner
        } else {
            Condition::Test(self.test()?)
        };
        self.depth -= 1;
        Ok(found)
    }

    fn test(&mut self) -> Result<Test, BadCondition> {
        let first = self.at;
        let named = self.peek().and_then(|t| QUANTIFIERS.iter().find(|(w, _)| *w == t.text));
        let quantifier = named.map_or(Quantifier::All, |(_, quantifier)| *quantifier);
        self.at += usize::from(named.is_some());
        let token = self.take("a subject")?;
        let (word, subject) = self.subject(&token)?;
        let token = self.take("a field")?;
        let field = Self::field(word, &token)?;
        let token = self.take("an operator")?;
        let Some((_, operator)) = OPERATORS.iter().find(|(word, _)| *word == token.text) else {
            let words = OPERATORS.iter().map(|(word, _)| *word);
            let hint = format!("operators are {}", words.collect::<Vec<_>>().join(", "));
            return bad(token.offset, format!("`{}` is not an operator", token.text), hint);
        };
        let token = self.take("a value")?;
        let value =
            if token.quoted { Ok(Value::Word(token.text.clone())) } else { Value::parse(&token.text) };
        let value = match value {
            Ok(value) => value,
            Err(hint) => return bad(token.offset, format!("`{}` is not a value", token.text), hint),
        };
        let ordered = !matches!(operator, Operator::Equal | Operator::Unequal | Operator::Contains);
        if ordered && value.number().is_none() {
            return bad(
                token.offset,
                format!("`{}` is not a number", token.text),
                "`<` and `>` compare numbers",
            );
        }
        let text = self.tokens[first..self.at].iter().map(|t| t.text.as_str()).collect::<Vec<_>>().join(" ");
        Ok(Test { text, quantifier, subject, field, operator: *operator, value })
    }

    fn field(subject: &str, token: &Token) -> Result<Vec<String>, BadCondition> {
        let known = fields(subject);
        let plain = match token.text.split_once('.') {
            Some((class, rest)) if subject == "traffic" && CLASSES.contains(&class) => rest,
            _ => token.text.as_str(),
        };
        if known.contains(&plain) {
            return Ok(token.text.split('.').map(str::to_owned).collect());
        }
        let hint = suggestion(plain, known.iter().copied());
        bad(token.offset, format!("`{}` is no field of a {subject}", token.text), hint)
    }

    /// The word of a subject, and what it stands for.
    fn subject(&self, token: &Token) -> Result<(&'static str, Subject), BadCondition> {
        let (word, rest) = token.text.split_once([':', '=']).unwrap_or((&token.text, ""));
        let Some(word) = SUBJECTS.into_iter().find(|known| *known == word) else {
            let hint = suggestion(word, SUBJECTS);
            return bad(token.offset, format!("`{word}` is nothing to test"), hint);
        };
        if rest.is_empty() && word != "lab" {
            let example = match word {
                "plane" | "cycle" => "plane:1",
                "traffic" | "queue" => "traffic:gold",
                "event" => "event:lsp.repaired",
                "program" => "program:lsp-agent@eb01.prn",
                _ => "link:plane:1",
            };
            return bad(token.offset, format!("which {word}?"), format!("write it like `{example}`"));
        }
        let found = match word {
            "plane" => self.planes(token, rest).map(Subject::Planes),
            "cycle" => self.planes(token, rest).map(Subject::Cycles),
            "link" => self.select(token, rest, true).map(Subject::Links),
            "node" => self.select(token, rest, false).map(Subject::Nodes),
            "program" => self.program(token, rest),
            "traffic" => self.traffic(token, rest),
            "queue" => self.queue(token, rest),
            "event" => {
                let (kind, subject) =
                    rest.split_once('@').map_or((rest, None), |(k, s)| (k, Some(s.to_owned())));
                Ok(Subject::Events { kind: kind.to_owned(), subject })
            }
            _ => Ok(Subject::Lab),
        };
        Ok((word, found?))
    }

    fn planes(&self, token: &Token, text: &str) -> Result<Vec<u8>, BadCondition> {
        let all: Vec<u8> = self.lab.planes.iter().map(|p| p.id).collect();
        if text == "*" {
            return Ok(all);
        }
        let one = text.parse::<u8>().ok().filter(|plane| all.contains(plane));
        let names: Vec<String> = all.iter().map(ToString::to_string).collect();
        match one {
            Some(plane) => Ok(vec![plane]),
            None => bad(
                token.offset,
                format!("lab `{}` has no plane `{text}`", self.lab.name),
                format!("planes: {}, or `*` for all", names.join(", ")),
            ),
        }
    }

    fn select(&self, token: &Token, text: &str, links: bool) -> Result<Vec<String>, BadCondition> {
        let selector = Selector::from_str(text);
        let names = selector.and_then(|selector| {
            Ok(if links {
                selector.links(self.lab)?.into_iter().map(|l| l.name.clone()).collect()
            } else {
                selector.nodes(self.lab)?.into_iter().map(|n| n.name.clone()).collect()
            })
        });
        names.or_else(|why| bad(token.offset, why.message, why.hint))
    }

    fn program(&self, token: &Token, text: &str) -> Result<Subject, BadCondition> {
        let (name, nodes) = text.split_once('@').map_or((text, None), |(name, nodes)| (name, Some(nodes)));
        let nodes = nodes.map(|nodes| self.select(token, nodes, false)).transpose()?;
        Ok(Subject::Programs { name: name.to_owned(), nodes })
    }

    fn traffic(&self, token: &Token, text: &str) -> Result<Subject, BadCondition> {
        if text == "*" {
            return Ok(Subject::Traffic(None));
        }
        if self.traffic.iter().any(|known| known == text) {
            return Ok(Subject::Traffic(Some(text.to_owned())));
        }
        let hint = suggestion(text, self.traffic.iter().map(String::as_str));
        bad(token.offset, format!("no traffic is called `{text}`"), hint)
    }

    fn queue(&self, token: &Token, text: &str) -> Result<Subject, BadCondition> {
        let (class, plane) = text.split_once('@').map_or((text, None), |(c, p)| (c, Some(p)));
        let plane = plane.map(|plane| self.planes(token, plane)).transpose()?;
        let plane = plane.filter(|planes| planes.len() == 1).and_then(|planes| planes.first().copied());
        if class == "*" {
            return Ok(Subject::Queues { class: None, plane });
        }
        if !CLASSES.contains(&class) {
            return bad(token.offset, format!("`{class}` is not a class"), suggestion(class, CLASSES));
        }
        Ok(Subject::Queues { class: Some(class.to_owned()), plane })
    }
}
