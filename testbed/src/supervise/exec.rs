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
use tokio::sync::watch;

use super::reaper::{Child, Reaper};
use super::streams::{Kind, Sink, Source, Terminal, feed, pump};
use crate::api::frame::Frame;
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
    let stdin = child.stdin.take().context("no pipe to the command's input")?;
    let stdout = child.stdout.take().context("no pipe from the command's output")?;
    let stderr = child.stderr.take().context("no pipe from the command's errors")?;
    let sink = Sink::Pipe(Some(Box::new(tokio::process::ChildStdin::from_std(stdin)?)));
    let stdout = Source::Pipe(Box::new(tokio::process::ChildStdout::from_std(stdout)?));
    let stderr = Source::Pipe(Box::new(tokio::process::ChildStderr::from_std(stderr)?));
    let pid = child.pid;
    let feed = feed(input, output.clone(), sink, move |input| {
        if let Input::Signal(number) = input {
            signal_group(pid, number);
        }
    });
    finish(child, feed, &output, vec![(stdout, Frame::Data as Kind), (stderr, Frame::Error as Kind)]).await
}

/// Moves input and output until the command has ended and its output has been sent. A client that goes away takes its
/// command with it.
async fn finish(
    child: Child,
    feed: impl Future<Output = ()> + Send + 'static,
    output: &Writer,
    sources: Vec<(Source, Kind)>,
) -> anyhow::Result<()> {
    let (end, ended) = watch::channel(false);
    let pumps: Vec<_> = sources
        .into_iter()
        .map(|(source, kind)| tokio::spawn(pump(source, output.clone(), kind, ended.clone())))
        .collect();
    let pid = child.pid;
    let feed = tokio::spawn(async move {
        feed.await;
        hang_up(pid).await;
    });
    let exit = child.exit.await.context("the command's exit was not seen")?;
    feed.abort();
    let _ = end.send(true);
    for pump in pumps {
        let _ = pump.await;
    }
    output.reply(&Reply::Exited(exit.number())).await
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
    input: Reader,
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
    let master: Terminal = Arc::new(unsafe { AsyncFd::register(pty.master) }?);
    let pid = child.pid;
    let sized = Arc::clone(&master);
    let feed = feed(input, output.clone(), Sink::Terminal(Arc::clone(&master)), move |input| match input {
        Input::Resize(rows, cols) => resize(&sized, rows, cols),
        Input::Signal(number) => signal_group(pid, number),
        _ => {}
    });
    finish(child, feed, &output, vec![(Source::Terminal(master), Frame::Data as Kind)]).await
}

fn resize(master: &AsyncFd<OwnedFd>, rows: u16, cols: u16) {
    let size = Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the descriptor is open for as long as `master` lives and `size` is a valid winsize.
    // JUSTIFICATION: neither std nor nix wraps TIOCSWINSZ.
    unsafe { libc::ioctl(master.get_ref().as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
}
