//! Commands inside nodes, for `exec` and `shell`.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::Context as _;
use nix::mount::{MsFlags, mount};
use nix::pty::{Winsize, openpty};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};

use super::reaper::{Child, Reaper};
use crate::api::frame::{self, Frame};
use crate::api::protocol::{Exec, Input, Reply};
use crate::api::server::{Reader, Writer};
use crate::failure::{Code, Failure};

/// Where the namespace of a node is bound.
pub fn netns_path(node: &str) -> PathBuf {
    Path::new("/run/netns").join(node)
}

/// Makes `command` start inside the node's network namespace, with the node's name as host name.
///
/// With `sysfs`, the process also gets a `/sys` that shows the node's interfaces (costs a mount namespace).
pub fn in_node(command: &mut Command, node: &str, sysfs: bool) -> anyhow::Result<()> {
    let path = netns_path(node);
    let netns =
        File::open(&path).with_context(|| format!("node {node} has no namespace at {}", path.display()))?;
    let node = node.to_owned();
    let enter = move || -> io::Result<()> {
        setns(&netns, CloneFlags::CLONE_NEWNET)?;
        unshare(CloneFlags::CLONE_NEWUTS)?;
        nix::unistd::sethostname(&node)?;
        if sysfs {
            unshare(CloneFlags::CLONE_NEWNS)?;
            mount(None::<&CStr>, c"/", None::<&CStr>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&CStr>)?;
            // a world that refuses a second sysfs still runs the command
            let _ = mount(Some(c"sysfs"), c"/sys", Some(c"sysfs"), MsFlags::empty(), None::<&CStr>);
        }
        Ok(())
    };
    // SAFETY: between fork and exec only system calls are made, on values prepared before the fork; nothing
    // allocates or takes a lock.
    // JUSTIFICATION: a network namespace can only be entered by the process itself, before it becomes the program.
    unsafe { command.pre_exec(enter) };
    Ok(())
}

fn command(exec: &Exec) -> anyhow::Result<Command> {
    let (program, arguments) =
        exec.argv.split_first().ok_or_else(|| Failure::new(Code::Usage, "exec needs a command after --"))?;
    let mut command = Command::new(program);
    command.args(arguments).env("TESTBED_NODE", &exec.node);
    if let Some(term) = &exec.term {
        command.env("TERM", term);
    }
    let cwd = exec.cwd.as_deref().map(Path::new).filter(|p| p.is_dir()).unwrap_or(Path::new("/"));
    command.current_dir(cwd);
    in_node(&mut command, &exec.node, true)?;
    Ok(command)
}

fn start_failure(exec: &Exec, error: &io::Error) -> Failure {
    let program = exec.argv.first().map_or("", String::as_str);
    // the shell's convention: 127 not found, but here nothing ran at all
    Failure::new(Code::Usage, format!("cannot run `{program}` in {}: {error}", exec.node))
        .hint("programs are those of this machine; check the name and its path")
}

/// Runs the command, moves its input and output, and reports how it ended.
pub async fn run(reaper: &Arc<Reaper>, exec: Exec, input: Reader, output: Writer) -> anyhow::Result<()> {
    match exec.tty {
        Some(size) => with_terminal(reaper, &exec, size, input, output).await,
        None => with_pipes(reaper, &exec, input, output).await,
    }
}

async fn with_pipes(reaper: &Reaper, exec: &Exec, input: Reader, output: Writer) -> anyhow::Result<()> {
    let mut command = command(exec)?;
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = reaper.spawn(&mut command).map_err(|e| start_failure(exec, &e))?;
    let stdin = child.stdin.take().map(tokio::process::ChildStdin::from_std).transpose()?;
    let stdout = child.stdout.take().map(tokio::process::ChildStdout::from_std).transpose()?;
    let stderr = child.stderr.take().map(tokio::process::ChildStderr::from_std).transpose()?;
    let out = tokio::spawn(pump(stdout, output.clone(), Frame::Data));
    let err = tokio::spawn(pump(stderr, output.clone(), Frame::Error));
    let pid = child.pid;
    let feed = tokio::spawn(feed(input, stdin, pid));
    finish(child, feed, &output, [out, err]).await
}

async fn finish(
    child: Child,
    feed: tokio::task::JoinHandle<()>,
    output: &Writer,
    pumps: [tokio::task::JoinHandle<()>; 2],
) -> anyhow::Result<()> {
    let exit = child.exit.await.context("the command's exit was not seen")?;
    feed.abort();
    for pump in pumps {
        // a background process may keep the pipe open: what is there has been read after this time
        let _ = tokio::time::timeout(std::time::Duration::from_millis(500), pump).await;
    }
    output.reply(&Reply::Exited(exit.number())).await
}

async fn pump(from: Option<impl AsyncRead + Unpin>, to: Writer, kind: fn(Vec<u8>) -> Frame) {
    let Some(mut from) = from else { return };
    let mut buf = vec![0u8; 32 << 10];
    while let Ok(n) = from.read(&mut buf).await {
        if n == 0 || to.frame(&kind(buf[..n].to_vec())).await.is_err() {
            return;
        }
    }
}

/// Moves the client's input to the command. A client that goes away takes its command with it.
async fn feed(mut input: Reader, mut stdin: Option<tokio::process::ChildStdin>, pid: Pid) {
    loop {
        match frame::read(&mut input).await {
            Ok(Some(Frame::Data(bytes))) => {
                if let Some(pipe) = &mut stdin
                    && pipe.write_all(&bytes).await.is_err()
                {
                    stdin = None;
                }
            }
            Ok(Some(other)) => match other.parse::<Input>() {
                Ok(Input::Eof) => stdin = None,
                Ok(Input::Signal(number)) => signal_group(pid, number),
                _ => {}
            },
            Ok(None) | Err(_) => break,
        }
    }
    hang_up(pid).await;
}

fn signal_group(pid: Pid, number: i32) {
    if let Ok(signal) = Signal::try_from(number) {
        let _ = kill(Pid::from_raw(-pid.as_raw()), signal);
    }
}

async fn hang_up(pid: Pid) {
    signal_group(pid, Signal::SIGHUP as i32);
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    signal_group(pid, Signal::SIGKILL as i32);
}

async fn with_terminal(
    reaper: &Reaper,
    exec: &Exec,
    (rows, cols): (u16, u16),
    mut input: Reader,
    output: Writer,
) -> anyhow::Result<()> {
    let size = Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 };
    let pty = openpty(Some(&size), None).context("no pseudo-terminal in the world")?;
    let mut command = command(exec)?;
    let side = |fd: &OwnedFd| fd.try_clone().map(Stdio::from);
    command.stdin(side(&pty.slave)?).stdout(side(&pty.slave)?).stderr(Stdio::from(pty.slave));
    // SAFETY: as in `in_node`: system calls only.
    // JUSTIFICATION: a controlling terminal can only be taken by the child itself.
    unsafe {
        command.pre_exec(|| {
            nix::unistd::setsid()?;
            if libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
        });
    }
    let child = reaper.spawn(&mut command).map_err(|e| start_failure(exec, &e))?;
    drop(command); // closes our copies of the terminal's inner side
    nix::fcntl::fcntl(&pty.master, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK))?;
    // SAFETY: the descriptor is owned by the AsyncFd and is only closed when that is dropped.
    // JUSTIFICATION: the safe constructor is deprecated, because it cannot know that.
    let master = Arc::new(unsafe { AsyncFd::register(pty.master) }?);
    let reader = Arc::clone(&master);
    let to = output.clone();
    let out = tokio::spawn(async move {
        while let Ok(bytes) = read_fd(&reader).await {
            if bytes.is_empty() || to.frame(&Frame::Data(bytes)).await.is_err() {
                return;
            }
        }
    });
    let pid = child.pid;
    let feed = tokio::spawn(async move {
        loop {
            match frame::read(&mut input).await {
                Ok(Some(Frame::Data(bytes))) => {
                    if write_fd(&master, &bytes).await.is_err() {
                        return;
                    }
                }
                Ok(Some(other)) => {
                    if let Ok(Input::Resize(rows, cols)) = other.parse() {
                        resize(&master, rows, cols);
                    }
                }
                Ok(None) | Err(_) => return hang_up(pid).await,
            }
        }
    });
    finish(child, feed, &output, [out, tokio::spawn(async {})]).await
}

fn resize(master: &AsyncFd<OwnedFd>, rows: u16, cols: u16) {
    let size = Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the descriptor is open for as long as `master` lives and `size` is a valid winsize.
    // JUSTIFICATION: neither std nor nix wraps TIOCSWINSZ.
    unsafe { libc::ioctl(master.get_ref().as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
}

async fn read_fd(fd: &AsyncFd<OwnedFd>) -> io::Result<Vec<u8>> {
    let mut buf = vec![0u8; 16 << 10];
    loop {
        let mut ready = fd.readable().await?;
        if let Ok(result) = ready.try_io(|fd| Ok(nix::unistd::read(fd.get_ref(), &mut buf)?)) {
            buf.truncate(result?);
            return Ok(buf);
        }
    }
}

async fn write_fd(fd: &AsyncFd<OwnedFd>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let mut ready = fd.writable().await?;
        if let Ok(result) = ready.try_io(|fd| Ok(nix::unistd::write(fd.get_ref(), bytes)?)) {
            bytes = &bytes[result?..];
        }
    }
    Ok(())
}
