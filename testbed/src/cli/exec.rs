//! `exec` and `shell`.

use std::io::{IsTerminal as _, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::sync::Arc;

use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, mpsc};

use super::args::{Exec as Args, Format, Global};
use super::target::Running;
use crate::api::client::{self, Connection, lost};
use crate::api::frame::{self, Frame};
use crate::api::protocol::{Exec, Input, Reply, Request, WINDOW};
use crate::failure::{Code, Failure};

/// Runs a command in one node or in several; the worst exit code is returned.
pub async fn exec(global: &Global, args: Args) -> anyhow::Result<u8> {
    let running = Running::find_answering(global).await?;
    let lab = running.lab().await?;
    let nodes = crate::selection::nodes(&lab, &args.nodes)?;
    if let [node] = nodes.as_slice()
        && global.format == Format::Text
    {
        return in_node(&running, request(node, &args.argv, terminal_size())).await;
    }
    let mut worst = 0;
    let mut results = Vec::new();
    for node in &nodes {
        let result = captured(&running, request(node, &args.argv, None)).await?;
        worst = worst.max(result.code);
        if global.format == Format::Text {
            print_prefixed(node, &result)?;
        }
        results.push(serde_json::json!({
            "node": node, "code": result.code,
            "stdout": String::from_utf8_lossy(&result.stdout), "stderr": String::from_utf8_lossy(&result.stderr),
        }));
    }
    if global.format == Format::Json {
        super::show::line(serde_json::json!({"version": 1, "lab": running.name, "results": results}))?;
    }
    Ok(u8::try_from(worst).unwrap_or(u8::MAX))
}

/// A login shell in a node.
pub async fn shell(global: &Global, node: String) -> anyhow::Result<u8> {
    let running = Running::find_answering(global).await?;
    let lab = running.lab().await?;
    let nodes = crate::selection::nodes(&lab, &node)?;
    let [node] = nodes.as_slice() else {
        return Err(Failure::new(
            Code::Usage,
            format!("`{node}` means {} nodes; a shell runs in one", nodes.len()),
        )
        .hint(format!("name one of them: {}", nodes.join(", ")))
        .into());
    };
    let shell = std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".to_owned());
    in_node(&running, request(node, &[shell], terminal_size())).await
}

fn request(node: &str, argv: &[String], tty: Option<(u16, u16)>) -> Exec {
    Exec {
        node: node.to_owned(),
        argv: argv.to_vec(),
        cwd: std::env::current_dir().ok().map(|d| d.to_string_lossy().into_owned()),
        tty,
        term: std::env::var("TERM").ok(),
    }
}

/// Rows and columns if both input and output are a terminal. A shell without one reads commands from its input to the end.
fn terminal_size() -> Option<(u16, u16)> {
    if !(std::io::stdin().is_terminal() && std::io::stdout().is_terminal()) {
        return None;
    }
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: descriptor 1 is open and `size` is a valid winsize to write to.
    // JUSTIFICATION: neither std nor nix wraps TIOCGWINSZ.
    let got = unsafe { libc::ioctl(1, libc::TIOCGWINSZ, &raw mut size) };
    Some(if got == 0 && size.ws_row > 0 { (size.ws_row, size.ws_col) } else { (24, 80) })
}

/// Puts the terminal into raw mode and back again.
struct Raw(Termios);

impl Raw {
    fn enter() -> Option<Self> {
        let stdin = std::io::stdin();
        let before = tcgetattr(stdin.as_fd()).ok()?;
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        tcsetattr(stdin.as_fd(), SetArg::TCSANOW, &raw).ok()?;
        Some(Self(before))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin().as_fd(), SetArg::TCSANOW, &self.0);
    }
}

async fn in_node(running: &Running, exec: Exec) -> anyhow::Result<u8> {
    let tty = exec.tty.is_some();
    let connection = Connection::open(&running.endpoint, &running.token, Request::Exec(exec)).await?;
    let _raw = if tty { Raw::enter() } else { None };
    let (mut reader, writer) = connection.split();
    let window = Arc::new(Semaphore::new(WINDOW));
    let sender = tokio::spawn(send_input(writer, tty, Arc::clone(&window)));
    let code = loop {
        match frame::read(&mut reader).await.map_err(|e| client::broken(&e))? {
            Some(Frame::Data(bytes)) => show(&mut std::io::stdout(), &bytes)?,
            Some(Frame::Error(bytes)) => show(&mut std::io::stderr(), &bytes)?,
            Some(other) => match other.parse()? {
                Reply::Exited(code) => break code,
                Reply::Taken => window.add_permits(1),
                Reply::Failed(failure) => return Err(failure.into()),
                _ => {}
            },
            None => return Err(lost().into()),
        }
    };
    sender.abort();
    Ok(u8::try_from(code).unwrap_or(u8::MAX))
}

fn show(out: &mut impl std::io::Write, bytes: &[u8]) -> anyhow::Result<()> {
    match out.write_all(bytes).and_then(|()| out.flush()) {
        // `testbed exec … | head` is fine
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => {
            Err(Failure::new(Code::Failed, "standard output was closed").into())
        }
        Err(e) => Err(Failure::new(Code::Failed, format!("cannot write the command's output: {e}")).into()),
        Ok(()) => Ok(()),
    }
}

async fn send_input(
    mut writer: Box<dyn tokio::io::AsyncWrite + Unpin + Send>,
    tty: bool,
    window: Arc<Semaphore>,
) -> anyhow::Result<()> {
    let mut bytes = stdin_chunks();
    let mut resized = signal(SignalKind::window_change())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    let mut open = true;
    loop {
        let input = tokio::select! {
            chunk = within(&window, &mut bytes), if open => match chunk {
                Some(chunk) => Frame::Data(chunk),
                None => { open = false; Frame::json(&Input::Eof)? }
            },
            _ = resized.recv() => match terminal_size() {
                Some((rows, cols)) if tty => Frame::json(&Input::Resize(rows, cols))?,
                _ => continue,
            },
            _ = interrupted.recv() => Frame::json(&Input::Signal(libc::SIGINT))?,
            _ = terminated.recv() => Frame::json(&Input::Signal(libc::SIGTERM))?,
        };
        frame::write(&mut writer, &input).await?;
    }
}

/// The next chunk of input once there is room for it: what the command does not take must not delay its signals.
async fn within(window: &Semaphore, bytes: &mut mpsc::Receiver<Vec<u8>>) -> Option<Vec<u8>> {
    let room = window.acquire().await.ok()?;
    let chunk = bytes.recv().await?;
    room.forget();
    Some(chunk)
}

/// Standard input from a thread of its own: a read that nobody ends must not hold up the exit.
fn stdin_chunks() -> mpsc::Receiver<Vec<u8>> {
    let (tx, rx) = mpsc::channel(4);
    std::thread::spawn(move || {
        let mut buf = [0u8; 8192];
        let mut stdin = std::io::stdin().lock();
        while let Ok(n) = stdin.read(&mut buf) {
            if n == 0 || tx.blocking_send(buf[..n].to_vec()).is_err() {
                return;
            }
        }
    });
    rx
}

/// What a command left.
struct Captured {
    code: i32,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

async fn captured(running: &Running, exec: Exec) -> anyhow::Result<Captured> {
    let mut connection = Connection::open(&running.endpoint, &running.token, Request::Exec(exec)).await?;
    connection.send(&Input::Eof).await?;
    let mut result = Captured { code: 0, stdout: Vec::new(), stderr: Vec::new() };
    loop {
        match connection.next().await? {
            Some(Frame::Data(bytes)) => result.stdout.extend(bytes),
            Some(Frame::Error(bytes)) => result.stderr.extend(bytes),
            Some(other) => match other.parse()? {
                Reply::Exited(code) => {
                    result.code = code;
                    return Ok(result);
                }
                Reply::Failed(failure) => return Err(failure.into()),
                _ => {}
            },
            None => return Err(lost().into()),
        }
    }
}

fn print_prefixed(node: &str, result: &Captured) -> anyhow::Result<()> {
    let prefixed = |bytes: &[u8]| -> String {
        String::from_utf8_lossy(bytes).lines().map(|line| format!("{node}: {line}\n")).collect()
    };
    super::show::print(prefixed(&result.stdout))?;
    let mut errors = prefixed(&result.stderr);
    if result.code != 0 {
        errors += &format!("{node}: exit code {}\n", result.code);
    }
    // a closed standard error must not end the work
    let _ = std::io::stderr().write_all(errors.as_bytes());
    Ok(())
}
