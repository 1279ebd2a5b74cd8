//! Tells openr that another version runs, until it has taken it over.

use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::watch;

use crate::proto::ReloadConfigRequest;
use crate::proto::openr_ctrl_client::OpenrCtrlClient;
use crate::rpc::{self, RPC_TIMEOUT};

/// First and longest pause before openr is told again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// Starts a task that makes openr read its configuration again whenever the wanted hash changes; the hash that openr has
/// answered with. Ends with the sender.
///
/// The file is what openr goes by, also when it starts: an openr that does not run needs not be told.
pub fn start(socket: PathBuf, mut wanted: watch::Receiver<String>) -> watch::Receiver<String> {
    let (done, taken_over) = watch::channel(String::new());
    tokio::spawn(async move {
        let mut openr = OpenrCtrlClient::new(rpc::unix_channel(socket));
        let mut pause = PAUSES.0;
        loop {
            let hash = wanted.borrow_and_update().clone();
            let answer = tokio::time::timeout(RPC_TIMEOUT, openr.reload_config(ReloadConfigRequest {})).await;
            let has = match answer {
                Ok(Ok(reply)) => reply.into_inner().hash,
                Ok(Err(e)) => {
                    tracing::debug!(error = %e, "openr does not answer");
                    String::new()
                }
                Err(_) => String::new(),
            };
            if has == hash {
                tracing::info!(hash, "openr has taken the configuration over");
                done.send_replace(has);
                pause = PAUSES.0;
                if wanted.changed().await.is_err() {
                    return;
                }
                continue;
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(PAUSES.1),
                changed = wanted.changed() => if changed.is_err() { return },
            }
        }
    });
    taken_over
}
