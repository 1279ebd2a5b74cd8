//! Asynchronous client of BIRD's control socket.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout_at};

use super::reply::{Protocol, Reply, ReplyParser, parse_count};

/// How often a reconfiguration that BIRD does in the background is asked about.
const RECONFIGURE_POLL: Duration = Duration::from_millis(20);

/// What went wrong between us and one BIRD.
#[derive(Debug, Error)]
pub enum ControlError {
    /// No connection, or it broke.
    #[error("BIRD at {path}: {what}: {source}; see bird's log of the node, it may have ended")]
    Io {
        /// Socket.
        path: PathBuf,
        /// What was being done.
        what: String,
        /// Cause.
        source: io::Error,
    },
    /// BIRD did not answer in time.
    #[error("BIRD at {path}: no answer to {command:?} within {} ms; it may be stopped or overloaded", deadline.as_millis())]
    Deadline {
        /// Socket.
        path: PathBuf,
        /// What was asked.
        command: String,
        /// How long it had.
        deadline: Duration,
    },
    /// BIRD understood and refused.
    #[error("BIRD at {path} refuses {command:?}: {code:04} {text}")]
    Refused {
        /// Socket.
        path: PathBuf,
        /// What was asked.
        command: String,
        /// BIRD's number: 8xxx failed, 9xxx not understood.
        code: u16,
        /// BIRD's words.
        text: String,
    },
    /// Not BIRD's protocol.
    #[error("BIRD at {path}: answer to {command:?} makes no sense: {what}")]
    Nonsense {
        /// Socket.
        path: PathBuf,
        /// What was asked.
        command: String,
        /// What did not parse.
        what: String,
    },
}

/// How to take over a changed configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reload {
    /// Routes pass again through every filter that changed: what a drain needs.
    Full,
    /// Changed filters apply to future route changes only.
    Soft,
}

/// What BIRD did with a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reloaded {
    /// It runs on the new configuration.
    Done,
    /// The same configuration was queued behind another, which is done too by now.
    Queued,
}

/// Size of one of BIRD's tables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableCount {
    /// Table, `master6`.
    pub table: String,
    /// Routes, several for a network with several candidates.
    pub routes: u64,
    /// Networks.
    pub networks: u64,
}

/// A BIRD that can be asked. Every call makes a connection of its own, so a restarted BIRD needs nothing.
#[derive(Clone, Debug)]
pub struct Control {
    path: PathBuf,
    deadline: Duration,
}

impl Control {
    /// The BIRD whose control socket is `path`; no call takes longer than `deadline`.
    pub fn new(path: impl Into<PathBuf>, deadline: Duration) -> Self {
        Self { path: path.into(), deadline }
    }

    /// Version as BIRD greets: `2.0.12`.
    pub async fn version(&self) -> Result<String, ControlError> {
        let until = Instant::now() + self.deadline;
        let mut session = self.open(until).await?;
        let greeting = session.reply("greeting", until).await?;
        let version = greeting.text().strip_prefix("BIRD ").and_then(|t| t.strip_suffix(" ready."));
        version.map(str::to_string).ok_or_else(|| self.nonsense("greeting", greeting.text()))
    }

    /// Reads the configuration again, from the file it was started with or from `file` (which then is the one for
    /// the next time too), and returns when BIRD runs on it.
    pub async fn configure(&self, how: Reload, file: Option<&Path>) -> Result<Reloaded, ControlError> {
        let mut command = match how {
            Reload::Full => "configure".to_string(),
            Reload::Soft => "configure soft".to_string(),
        };
        if let Some(file) = file {
            let _ = write!(command, " \"{}\"", file.display());
        }
        let until = Instant::now() + self.deadline;
        let reply = self.command(&command, until).await?;
        match reply.code() {
            3 => Ok(Reloaded::Done),
            // 4: begun, protocols are still changing; 5: queued behind one that is
            code @ (4 | 5) => {
                self.settled(&command, until).await?;
                Ok(if code == 4 { Reloaded::Done } else { Reloaded::Queued })
            }
            _ => Err(self.nonsense(&command, reply.text())),
        }
    }

    /// Waits until no reconfiguration is in progress.
    async fn settled(&self, command: &str, until: Instant) -> Result<(), ControlError> {
        loop {
            let status = self.command("show status", until).await?;
            if !status.text().contains("Reconfiguration in progress") {
                return Ok(());
            }
            if Instant::now() + RECONFIGURE_POLL > until {
                return Err(self.late(command));
            }
            sleep(RECONFIGURE_POLL).await;
        }
    }

    /// All protocol instances, in the order of the configuration.
    pub async fn protocols(&self) -> Result<Vec<Protocol>, ControlError> {
        let command = "show protocols";
        let reply = self.command(command, Instant::now() + self.deadline).await?;
        reply
            .with_code(1002)
            .map(|line| Protocol::parse(line).ok_or_else(|| self.nonsense(command, line)))
            .collect()
    }

    /// Sizes of all tables.
    pub async fn route_count(&self) -> Result<Vec<TableCount>, ControlError> {
        let command = "show route table all count";
        let reply = self.command(command, Instant::now() + self.deadline).await?;
        reply
            .with_code(1007)
            .map(|line| {
                let (table, routes, networks) =
                    parse_count(line).ok_or_else(|| self.nonsense(command, line))?;
                Ok(TableCount { table, routes, networks })
            })
            .collect()
    }

    /// Any command, for people: the lines as BIRD prints them.
    pub async fn ask(&self, command: &str) -> Result<Reply, ControlError> {
        self.command(command, Instant::now() + self.deadline).await
    }

    async fn command(&self, command: &str, until: Instant) -> Result<Reply, ControlError> {
        let mut session = self.open(until).await?;
        session.reply("greeting", until).await?;
        let sent = timeout_at(until, session.stream.write_all(format!("{command}\n").as_bytes())).await;
        match sent {
            Ok(Ok(())) => {}
            Ok(Err(source)) => return Err(self.io(&format!("cannot send {command:?}"), source)),
            Err(_) => return Err(self.late(command)),
        }
        let reply = session.reply(command, until).await?;
        if reply.failed() {
            return Err(ControlError::Refused {
                path: self.path.clone(),
                command: command.to_string(),
                code: reply.code(),
                text: reply.text().to_string(),
            });
        }
        Ok(reply)
    }

    async fn open(&self, until: Instant) -> Result<Session<'_>, ControlError> {
        match timeout_at(until, UnixStream::connect(&self.path)).await {
            Ok(Ok(stream)) => Ok(Session { control: self, stream, parser: ReplyParser::default() }),
            Ok(Err(source)) => Err(self.io("cannot connect", source)),
            Err(_) => Err(self.late("connect")),
        }
    }

    fn io(&self, what: &str, source: io::Error) -> ControlError {
        ControlError::Io { path: self.path.clone(), what: what.to_string(), source }
    }

    fn late(&self, command: &str) -> ControlError {
        ControlError::Deadline {
            path: self.path.clone(),
            command: command.to_string(),
            deadline: self.deadline,
        }
    }

    fn nonsense(&self, command: &str, what: &str) -> ControlError {
        ControlError::Nonsense {
            path: self.path.clone(),
            command: command.to_string(),
            what: what.to_string(),
        }
    }
}

struct Session<'a> {
    control: &'a Control,
    stream: UnixStream,
    parser: ReplyParser,
}

impl Session<'_> {
    async fn reply(&mut self, command: &str, until: Instant) -> Result<Reply, ControlError> {
        let mut buffer = [0u8; 4096];
        let mut length = 0;
        loop {
            match self.parser.push(&buffer[..length]) {
                Ok(Some(reply)) => return Ok(reply),
                Ok(None) => {}
                Err(what) => return Err(self.control.nonsense(command, &what)),
            }
            length = match timeout_at(until, self.stream.read(&mut buffer)).await {
                Ok(Ok(0)) => {
                    let source = io::Error::from(io::ErrorKind::UnexpectedEof);
                    return Err(self.control.io(&format!("no full answer to {command:?}"), source));
                }
                Ok(Ok(length)) => length,
                Ok(Err(source)) => {
                    return Err(self.control.io(&format!("no answer to {command:?}"), source));
                }
                Err(_) => return Err(self.control.late(command)),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixListener;

    use super::*;

    /// A BIRD of three lines: greets, then answers each command with what `answers` says, in order.
    async fn fake(answers: &[&str], deadline_ms: u64) -> (tempfile::TempDir, Control) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ctl");
        let listener = UnixListener::bind(&path).unwrap();
        let answers: Vec<String> = answers.iter().map(|a| (*a).to_string()).collect();
        tokio::spawn(async move {
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.write_all(b"0001 BIRD 2.0.12 ready.\n").await.unwrap();
                let mut command = [0u8; 100];
                let _ = stream.read(&mut command).await.unwrap();
                stream.write_all(answer.as_bytes()).await.unwrap();
                if answer.is_empty() {
                    std::future::pending::<()>().await;
                }
            }
        });
        (dir, Control::new(path, Duration::from_millis(deadline_ms)))
    }

    #[tokio::test]
    async fn waits_for_a_reconfiguration_in_the_background() {
        let answers = [
            "0002-Reading configuration from x\n0004 Reconfiguration in progress\n",
            "1000-BIRD 2.0.12\n0013 Reconfiguration in progress\n",
            "1000-BIRD 2.0.12\n0013 Daemon is up and running\n",
        ];
        let (_dir, control) = fake(&answers, 5_000).await;
        assert_eq!(control.configure(Reload::Full, None).await.unwrap(), Reloaded::Done);
        // all three answers were waited for: nobody is left to give one
        assert!(matches!(control.version().await, Err(ControlError::Io { .. })));
    }

    #[tokio::test]
    async fn refusals_carry_birds_words() {
        let (dir, control) =
            fake(&["0002-Reading configuration from x\n8002 x:3:1 syntax error\n"], 5_000).await;
        let error = control.configure(Reload::Soft, Some(Path::new("x"))).await.unwrap_err();
        let path = dir.path().join("ctl");
        let want = format!(
            "BIRD at {} refuses \"configure soft \\\"x\\\"\": 8002 x:3:1 syntax error",
            path.display()
        );
        assert_eq!(error.to_string(), want);
    }

    #[tokio::test]
    async fn a_stopped_bird_does_not_hang_the_caller() {
        let (_dir, control) = fake(&[""], 50).await;
        assert!(matches!(control.protocols().await, Err(ControlError::Deadline { .. })));
        let nobody = Control::new("/nonexistent/ctl", Duration::from_millis(50));
        assert!(matches!(nobody.version().await, Err(ControlError::Io { .. })));
    }
}
