//! The supervisor's own start and end.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use nix::mount::{MsFlags, mount};
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{SignalKind, signal};

use super::world::World;
use crate::api::server;
use crate::carrier::{Carrier, inside};
use crate::state::StateDir;

/// Port of the API inside a guest.
pub const GUEST_PORT: u16 = 7000;

/// Runs the supervisor as process 1 of the world that the carrier has prepared; returns when asked to end.
pub fn run() -> anyhow::Result<Carrier> {
    let surroundings = inside::prepare()?;
    let state = StateDir::at(surroundings.state);
    let carrier = surroundings.carrier;
    let modules = surroundings.modules;
    prepare(carrier)?;
    let token = std::fs::read_to_string(state.token())
        .with_context(|| format!("cannot read the API token {}", state.token().display()))?;
    let token = token.trim().to_owned();
    anyhow::ensure!(!token.is_empty(), "the API token {} is empty", state.token().display());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async move {
        let world = Arc::new(World::new(state.clone(), carrier, modules)?);
        let mut terminate = signal(SignalKind::terminate())?;
        let serve = async {
            if carrier == Carrier::Vm {
                let listener = TcpListener::bind(("0.0.0.0", GUEST_PORT)).await?;
                server::serve_tcp(listener, token, Arc::clone(&world)).await
            } else {
                let path = state.api_socket();
                let _ = std::fs::remove_file(&path);
                let listener = UnixListener::bind(&path)
                    .with_context(|| format!("cannot listen on {}", path.display()))?;
                server::serve_unix(listener, token, Arc::clone(&world)).await
            }
        };
        tokio::spawn({
            let world = Arc::clone(&world);
            async move { world.keep_wires().await }
        });
        tokio::select! {
            served = serve => served.map(|()| carrier),
            _ = terminate.recv() => Ok(carrier),
        }
    })
}

/// Folders and the hosts file that programs expect.
fn prepare(carrier: Carrier) -> anyhow::Result<()> {
    for dir in ["/run/netns", "/run/testbed", "/run/bird"] {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot make {dir}"))?;
    }
    let hosts = "/run/testbed/hosts";
    if !Path::new(hosts).exists() {
        std::fs::copy("/etc/hosts", hosts).or_else(|_| std::fs::write(hosts, "").map(|()| 0))?;
    }
    // a bare system may lack the file; in a guest the root is a view of our own
    if carrier == Carrier::Vm && !Path::new("/etc/hosts").exists() {
        std::fs::write("/etc/hosts", "").context("cannot make /etc/hosts")?;
    }
    mount(Some(hosts), "/etc/hosts", None::<&str>, MsFlags::MS_BIND, None::<&str>)
        .context("cannot bind the lab's names over /etc/hosts")?;
    Ok(())
}

/// Ends the world at once: process 1 goes, and the kernel takes all the rest with it.
pub fn end_world(carrier: Carrier) -> ! {
    if carrier == Carrier::Vm {
        // a guest whose process 1 ends would panic instead
        tracing::error!("{:#}", inside::power_off());
    }
    std::process::exit(0)
}
