//! SNDlib's native text format, for networks and for matrices.
//!
//! Sections are `NAME ( … )`; entries are words and groups in parentheses. Read are NODES (coordinates), LINKS (the
//! installed capacity, else the largest module), DEMANDS and the unit in META; other sections are skipped.

use std::collections::BTreeMap;

use te::NodeSpec;
use topologies::Problem;

use super::geo::{Place, rtt_us};
use super::{Defaults, problem, whole_bps};
use crate::network::{Network, NetworkDemand};

/// First words of every file in this format.
const MAGIC: &str = "?SNDlib native format";

/// Whether a text says that it is in this format.
pub fn is_sndlib(text: &str) -> bool {
    text.trim_start_matches('\u{feff}').trim_start().starts_with(MAGIC)
}

/// A word or a parenthesis, with its line from 1.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Token<'a> {
    text: &'a str,
    line: usize,
}

/// Words of the text; comments end with the line, and the first line is one.
fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut all = Vec::new();
    for (line, number) in text.trim_start_matches('\u{feff}').lines().zip(1..) {
        let line = line.split('#').next().unwrap_or("");
        if line.trim_start().starts_with('?') {
            continue;
        }
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next() {
            let length = if matches!(first, '(' | ')') {
                1
            } else {
                rest.find(|c: char| c.is_whitespace() || matches!(c, '(' | ')')).unwrap_or(rest.len())
            };
            let (word, tail) = rest.split_at(length);
            all.push(Token { text: word, line: number });
            rest = tail.trim_start();
        }
    }
    all
}

struct Reader<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
    file: &'a str,
    /// Bit/s of the file's unit.
    unit: f64,
    places: BTreeMap<&'a str, Option<Place>>,
    network: Network,
    guessed: [u32; 2],
}

/// Reads a network or a matrix. Numbers are in Mbit/s unless META has another `unit`.
pub fn sndlib(text: &str, file: &str, defaults: &Defaults) -> Result<Network, Problem> {
    if !is_sndlib(text) {
        let hint = "the first line must be `?SNDlib native format; type: network; version: 1.0` or the like";
        return Err(problem(file, 1, "this is not SNDlib's native format", hint));
    }
    let tokens = tokens(text);
    let unit = unit(&tokens, file)?;
    let network = Network { name: name_of(file), ..Network::default() };
    let mut reader = Reader { tokens, at: 0, file, unit, places: BTreeMap::new(), network, guessed: [0, 0] };
    while let Some(section) = reader.next() {
        reader.expect("(", section.text)?;
        match section.text {
            "NODES" => reader.entries(section, Reader::node)?,
            "LINKS" => reader.entries(section, |r, name| r.link(name, defaults))?,
            "DEMANDS" => reader.entries(section, Reader::demand)?,
            _ => reader.skip(section)?,
        }
    }
    let [capacity, rtt] = reader.guessed;
    let mut network = reader.network;
    for (n, what) in [
        (capacity, "capacity or module got the default capacity"),
        (rtt, "geographic coordinates at both ends got the default RTT"),
    ] {
        if n > 0 {
            network.notes.push(format!("{n} link(s) without {what}"));
        }
    }
    Ok(network)
}

/// `abilene` of `/some/where/abilene.txt`.
fn name_of(file: &str) -> String {
    let base = file.rsplit('/').next().unwrap_or(file);
    base.split('.').next().unwrap_or(base).to_owned()
}

/// The unit that META names.
fn unit(tokens: &[Token<'_>], file: &str) -> Result<f64, Problem> {
    let Some(at) = tokens.windows(3).find(|w| w[0].text == "unit" && w[1].text == "=") else {
        return Ok(1e6);
    };
    match at[2].text.trim_end_matches(';') {
        "BITPERSEC" => Ok(1.0),
        "KBITPERSEC" => Ok(1e3),
        "MBITPERSEC" => Ok(1e6),
        "GBITPERSEC" => Ok(1e9),
        other => {
            let hint = "units are BITPERSEC, KBITPERSEC, MBITPERSEC and GBITPERSEC";
            Err(problem(file, at[2].line, format!("unknown unit {other:?}"), hint))
        }
    }
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<Token<'a>> {
        self.tokens.get(self.at).copied()
    }

    fn next(&mut self) -> Option<Token<'a>> {
        let token = self.peek();
        self.at += usize::from(token.is_some());
        token
    }

    fn wrong(&self, line: usize, message: impl Into<String>, hint: &str) -> Problem {
        problem(self.file, line, message, hint)
    }

    /// Line of the last token read.
    fn line(&self) -> usize {
        self.tokens.get(self.at.saturating_sub(1)).map_or(1, |t| t.line)
    }

    fn expect(&mut self, text: &str, after: &str) -> Result<(), Problem> {
        match self.next() {
            Some(t) if t.text == text => Ok(()),
            Some(t) => {
                let message = format!("expected `{text}` after {after:?}, found {:?}", t.text);
                Err(self.wrong(t.line, message, "sections and groups are words between ( and )"))
            }
            None => {
                let message = format!("the file ends after {after:?}, where `{text}` is missing");
                Err(self.wrong(self.line(), message, "is the file complete?"))
            }
        }
    }

    fn word(&mut self, what: &str) -> Result<Token<'a>, Problem> {
        match self.next() {
            Some(t) if t.text != "(" && t.text != ")" => Ok(t),
            Some(t) => {
                let message = format!("expected {what}, found `{}`", t.text);
                Err(self.wrong(t.line, message, "an entry has fewer parts than its section needs"))
            }
            None => Err(self.wrong(
                self.line(),
                format!("the file ends where {what} is missing"),
                "is the file complete?",
            )),
        }
    }

    fn number(&mut self, what: &str) -> Result<f64, Problem> {
        let t = self.word(what)?;
        t.text.parse().ok().filter(|n: &f64| n.is_finite()).ok_or_else(|| {
            self.wrong(
                t.line,
                format!("{what} is {:?}, which is not a number", t.text),
                "write it like 9920.00",
            )
        })
    }

    fn bps(&self, line: usize, number: f64, what: &str) -> Result<u64, Problem> {
        whole_bps(number, self.unit).ok_or_else(|| {
            self.wrong(line, format!("{what} is {number}"), "it must lie between 0 and 10 Pbit/s")
        })
    }

    /// Entries up to the section's closing parenthesis; each begins with its name.
    fn entries(
        &mut self,
        section: Token<'a>,
        mut entry: impl FnMut(&mut Self, Token<'a>) -> Result<(), Problem>,
    ) -> Result<(), Problem> {
        loop {
            match self.next() {
                Some(t) if t.text == ")" => return Ok(()),
                Some(t) if t.text == "(" => {
                    return Err(self.wrong(
                        t.line,
                        "expected a name, found `(`",
                        "every entry begins with its name",
                    ));
                }
                Some(t) => entry(self, t)?,
                None => return Err(self.unclosed(section)),
            }
        }
    }

    fn unclosed(&self, section: Token<'_>) -> Problem {
        self.wrong(section.line, format!("section {} is not closed", section.text), "add the missing `)`")
    }

    fn skip(&mut self, section: Token<'a>) -> Result<(), Problem> {
        let mut depth = 1u32;
        while depth > 0 {
            match self.next() {
                Some(t) if t.text == "(" => depth += 1,
                Some(t) if t.text == ")" => depth -= 1,
                Some(_) => {}
                None => return Err(self.unclosed(section)),
            }
        }
        Ok(())
    }

    /// `NAME ( longitude latitude )`; the coordinates may be missing.
    fn node(&mut self, name: Token<'a>) -> Result<(), Problem> {
        let mut place = None;
        if self.peek().is_some_and(|t| t.text == "(") {
            self.expect("(", name.text)?;
            let longitude = self.number("the longitude")?;
            let latitude = self.number("the latitude")?;
            self.expect(")", name.text)?;
            place = Place::new(latitude, longitude);
        }
        if self.places.insert(name.text, place).is_some() {
            let message = format!("node {:?} is listed twice", name.text);
            return Err(self.wrong(name.line, message, "node names must be unique"));
        }
        self.network.nodes.push(NodeSpec { name: name.text.to_owned(), no_transit: false });
        Ok(())
    }

    /// `( a b )`
    fn ends(&mut self, name: Token<'a>) -> Result<[&'a str; 2], Problem> {
        self.expect("(", name.text)?;
        let ends = [self.word("the source")?, self.word("the target")?];
        self.expect(")", name.text)?;
        // a matrix may come without nodes: they are those of its demands
        for end in ends.iter().filter(|_| !self.places.is_empty()) {
            if !self.places.contains_key(end.text) {
                let message =
                    format!("{:?} names the node {:?}, which NODES does not list", name.text, end.text);
                return Err(self.wrong(end.line, message, "check the spelling, or add the node"));
            }
        }
        Ok(ends.map(|e| e.text))
    }

    /// `NAME ( a b ) installed its_cost routing_cost setup_cost ( { module its_cost } )`
    fn link(&mut self, name: Token<'a>, defaults: &Defaults) -> Result<(), Problem> {
        let [a, b] = self.ends(name)?;
        let installed = self.number("the installed capacity")?;
        for what in ["the cost of the installed capacity", "the routing cost", "the setup cost"] {
            self.number(what)?;
        }
        self.expect("(", name.text)?;
        let mut largest = 0.0f64;
        while self.peek().is_some_and(|t| t.text != ")") {
            largest = largest.max(self.number("a module's capacity")?);
            self.number("a module's cost")?;
        }
        self.expect(")", name.text)?;
        if a == b {
            return Err(self.wrong(
                name.line,
                format!("link {:?} joins {a:?} to itself", name.text),
                "remove it",
            ));
        }
        let capacity = if installed > 0.0 { installed } else { largest };
        let mut bps = self.bps(name.line, capacity, "the capacity")?;
        if bps == 0 {
            bps = defaults.capacity_bps;
            self.guessed[0] += 1;
        }
        let place = |n| self.places.get(n).copied().flatten();
        let rtt = place(a).zip(place(b)).map(|(a, b)| rtt_us(a, b));
        self.guessed[1] += u32::from(rtt.is_none());
        self.network.connect(a, b, rtt.unwrap_or(defaults.rtt_us), bps);
        Ok(())
    }

    /// `NAME ( a b ) routing_unit value max_path_length`
    fn demand(&mut self, name: Token<'a>) -> Result<(), Problem> {
        let [from, to] = self.ends(name)?;
        let units = self.number("the routing unit")?;
        let value = self.number("the demand")?;
        self.word("the longest path, or UNLIMITED,")?;
        let bps = self.bps(name.line, value * units, "the demand")?;
        if from != to {
            let (from, to) = (from.to_owned(), to.to_owned());
            self.network.demands.push(NetworkDemand { from, to, mesh: None, bps });
        }
        Ok(())
    }
}
