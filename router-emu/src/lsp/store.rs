//! The subscription to openr's store, for as long as the agent lives.

use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::proto::openr_ctrl_client::OpenrCtrlClient;
use crate::proto::{Publication, SubscribeRequest};
use crate::rpc;

/// Prefix of the keys that hold adjacencies.
pub const PREFIX: &str = "adj:";
/// First and longest pause before openr is tried again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// Starts a task that hands on every publication about adjacencies; it connects again whenever the stream ends, and ends
/// when the receiver is dropped.
pub fn subscribe(socket: PathBuf) -> mpsc::Receiver<Publication> {
    let (sender, receiver) = mpsc::channel(256);
    tokio::spawn(async move {
        let mut pause = PAUSES.0;
        let mut client = OpenrCtrlClient::new(rpc::unix_channel(socket));
        loop {
            let request = SubscribeRequest { key_prefix: PREFIX.to_owned() };
            match client.subscribe(request).await {
                Ok(stream) => {
                    tracing::info!("subscribed to openr");
                    pause = PAUSES.0;
                    let mut stream = stream.into_inner();
                    while let Ok(Some(publication)) = stream.message().await {
                        if sender.send(publication).await.is_err() {
                            return;
                        }
                    }
                    tracing::warn!("openr's stream has ended; links are taken to be as they were");
                }
                Err(e) => tracing::debug!(error = %e, "openr does not answer"),
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(PAUSES.1),
                () = sender.closed() => return,
            }
        }
    });
    receiver
}
