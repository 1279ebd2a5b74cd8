//! BIRD's replies, as they stand on the control socket.
//!
//! A line is `NNNN-text` (more follows) or `NNNN text` (last of the reply); a line that begins with a space
//! continues with the number of the line before; one that begins with `+` is an asynchronous message and no
//! part of a reply. Numbers from 8000 are failures at run time, from 9000 failures to parse the command.
//! Source: the remote control section of BIRD's manual, and what 2.0.12 and 2.17 print.

use std::str::FromStr as _;

use serde::{Deserialize, Serialize};

/// Longest line that is taken for BIRD's.
const MAX_LINE: usize = 64 * 1024;

/// One line of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyLine {
    /// Number of the line, or of the one that it continues.
    pub code: u16,
    /// What follows the number.
    pub text: String,
}

/// A whole reply; the last line ends it and is part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// Lines in order, never empty in a reply that the parser gave out.
    pub lines: Vec<ReplyLine>,
}

impl Reply {
    /// Number of the last line.
    pub fn code(&self) -> u16 {
        self.lines.last().map_or(0, |l| l.code)
    }

    /// Text of the last line.
    pub fn text(&self) -> &str {
        self.lines.last().map_or("", |l| l.text.as_str())
    }

    /// Whether BIRD refused or failed.
    pub fn failed(&self) -> bool {
        self.code() >= 8000
    }

    /// Texts of the lines with number `code`.
    pub fn with_code(&self, code: u16) -> impl Iterator<Item = &str> {
        self.lines.iter().filter(move |l| l.code == code).map(|l| l.text.as_str())
    }
}

/// Turns bytes into replies.
#[derive(Debug, Default)]
pub struct ReplyParser {
    bytes: Vec<u8>,
    reply: Reply,
}

impl ReplyParser {
    /// Takes bytes as they came. Returns the first reply that they complete; call again with no bytes for the
    /// next one.
    ///
    /// # Errors
    /// Says which line does not look like BIRD's. The parser is of no use after that.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Option<Reply>, String> {
        self.bytes.extend_from_slice(bytes);
        while let Some(end) = self.bytes.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = self.bytes.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line[..end]);
            if self.line(line.trim_end_matches('\r'))? {
                return Ok(Some(std::mem::take(&mut self.reply)));
            }
        }
        if self.bytes.len() > MAX_LINE {
            return Err(format!("a line of more than {MAX_LINE} bytes"));
        }
        Ok(None)
    }

    /// Takes one line; true if it ends the reply.
    fn line(&mut self, line: &str) -> Result<bool, String> {
        if line.starts_with('+') {
            return Ok(false);
        }
        if let Some(text) = line.strip_prefix(' ') {
            let Some(last) = self.reply.lines.last() else {
                return Err(format!("{line:?} continues a line that was never begun"));
            };
            self.reply.lines.push(ReplyLine { code: last.code, text: text.to_string() });
            return Ok(false);
        }
        let unknown = || format!("{line:?} is not a line of BIRD's control protocol");
        let digits = line.get(..4).ok_or_else(unknown)?;
        if !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(unknown());
        }
        let code = u16::from_str(digits).map_err(|_| unknown())?;
        let (last, text) = match line.as_bytes().get(4) {
            Some(b'-') => (false, &line[5..]),
            Some(b' ') => (true, &line[5..]),
            None => (true, ""),
            Some(_) => return Err(unknown()),
        };
        self.reply.lines.push(ReplyLine { code, text: text.to_string() });
        Ok(last)
    }
}

/// A protocol instance as `show protocols` tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protocol {
    /// Name in the configuration: `fa`, `ib.prn`, `kmain`.
    pub name: String,
    /// Kind: `BGP`, `Kernel`, `Pipe`.
    pub proto: String,
    /// BIRD's table; empty where it has none or several.
    pub table: String,
    /// `up`, `start`, `feed`, `stop`, `down`.
    pub state: String,
    /// When it got there, as BIRD prints it.
    pub since: String,
    /// What the protocol says of itself: `Established`, `Active        Socket: Connection refused`.
    pub info: String,
}

impl Protocol {
    /// Whether it does its work; for BGP, whether the session stands.
    pub fn up(&self) -> bool {
        self.state == "up"
    }

    /// Reads one line of the table that `show protocols` prints.
    pub fn parse(line: &str) -> Option<Self> {
        let mut rest = line;
        let name = word(&mut rest)?;
        let proto = word(&mut rest)?;
        let table = word(&mut rest)?;
        let state = word(&mut rest)?;
        let mut since = word(&mut rest)?.to_string();
        // a long time stamp is a date and a time of day
        let time = rest.trim_start();
        let is_date = since.len() == 10 && since.matches('-').count() == 2;
        if is_date && time.get(2..3) == Some(":") {
            let mut after = time;
            since = format!("{since} {}", word(&mut after)?);
            rest = after;
        }
        let table = if table == "---" { "" } else { table };
        Some(Self {
            name: name.to_string(),
            proto: proto.to_string(),
            table: table.to_string(),
            state: state.to_string(),
            since,
            info: rest.trim().to_string(),
        })
    }
}

fn word<'a>(rest: &mut &'a str) -> Option<&'a str> {
    let text = rest.trim_start();
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    let (word, tail) = text.split_at(end);
    *rest = tail;
    (!word.is_empty()).then_some(word)
}

/// Reads `N of M routes for K networks in table T`: (table, N routes, K networks).
pub fn parse_count(line: &str) -> Option<(String, u64, u64)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        [routes, "of", _, "routes", "for", networks, "networks", "in", "table", table] => {
            Some(((*table).to_string(), routes.parse().ok()?, networks.parse().ok()?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one(text: &str) -> Reply {
        ReplyParser::default().push(text.as_bytes()).unwrap().unwrap()
    }

    #[test]
    fn protocols_of_both_time_formats() {
        let reply = one("2002-Name       Proto      Table      State  Since         Info\n\
                         1002-device1    Device     ---        up     2026-11-30 04:44:47.060  \n \
                              pipe.x     Pipe       ---        up     2026-11-30 04:44:47.060  master6 <=> remote6\n \
                              ib.prn     BGP        ---        start  04:44:47.060  Active        Socket: No route to host\n\
                         0000 \n");
        let all: Vec<Protocol> = reply.with_code(1002).filter_map(Protocol::parse).collect();
        assert_eq!(all.len(), 3);
        assert_eq!((all[0].name.as_str(), all[0].up(), all[0].info.as_str()), ("device1", true, ""));
        assert_eq!(all[1].since, "2026-11-30 04:44:47.060");
        assert_eq!(all[1].info, "master6 <=> remote6");
        assert_eq!((all[2].up(), all[2].since.as_str()), (false, "04:44:47.060"));
        assert_eq!(all[2].info, "Active        Socket: No route to host");
    }

    #[test]
    fn counts_and_failures() {
        let reply = one("1007-1 of 2 routes for 3 networks in table master6\n\
                         0014 Total: 1 of 1 routes for 1 networks in 2 tables\n");
        let counts: Vec<_> = reply.with_code(1007).filter_map(parse_count).collect();
        assert_eq!(counts, [("master6".to_string(), 1, 3)]);
        let reply = one("0002-Reading configuration from x\n8002 x:3:1 syntax error\n");
        assert!(reply.failed());
        assert_eq!(reply.text(), "x:3:1 syntax error");
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [" lost\n", "HTTP/1.1 200 OK\n", "00\n", "12é4 x\n", "0000!\n"] {
            assert!(ReplyParser::default().push(text.as_bytes()).is_err(), "{text:?}");
        }
    }

    fn line() -> impl Strategy<Value = (u16, String)> {
        (0u16..=9999, "[ -~]{0,40}")
    }

    proptest! {
        /// Whatever the pieces in which the bytes arrive, the reply is the same.
        #[test]
        fn pieces_do_not_matter(lines in prop::collection::vec(line(), 1..8), cuts in prop::collection::vec(0usize..400, 0..6)) {
            let mut text = String::new();
            let mut want = Vec::new();
            let mut code = None;
            for (i, (number, body)) in lines.iter().enumerate() {
                let last = i + 1 == lines.len();
                if code == Some(*number) && !last {
                    text += &format!(" {body}\n");
                } else {
                    text += &format!("{number:04}{}{body}\n", if last { ' ' } else { '-' });
                }
                code = Some(*number);
                want.push(ReplyLine { code: *number, text: body.clone() });
            }
            let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c % text.len()).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let mut parser = ReplyParser::default();
            let mut got = None;
            for pair in cuts.windows(2) {
                if let Some(reply) = parser.push(&text.as_bytes()[pair[0]..pair[1]]).unwrap() {
                    prop_assert!(got.is_none());
                    got = Some(reply);
                }
            }
            prop_assert_eq!(got, Some(Reply { lines: want }));
        }

        /// No bytes make the parser panic, and none of the line readers either.
        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300), text in "\\PC{0,80}") {
            let mut parser = ReplyParser::default();
            let mut more = parser.push(&bytes);
            while let Ok(Some(_)) = more {
                more = parser.push(&[]);
            }
            let _ = Protocol::parse(&text);
            let _ = parse_count(&text);
        }

        /// A protocol line reads back.
        #[test]
        fn protocol_line(name in "[a-z.0-9]{1,20}", state in "up|start|down|feed|stop", info in "[A-Z][a-z ]{0,20}[a-z]") {
            let line = format!("{name:<10} BGP        ---        {state:<6} 2026-11-30 04:44:47.060  {info}");
            let protocol = Protocol::parse(&line).unwrap();
            prop_assert_eq!(&protocol.name, &name);
            prop_assert_eq!(protocol.up(), state == "up");
            prop_assert_eq!(protocol.info, info);
        }
    }
}
