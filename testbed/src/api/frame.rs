//! Frames: `u32` length (big endian, of kind and payload), one byte kind, payload.

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Largest frame accepted, bytes. A resolved lab of a thousand nodes is about 3 MB.
pub const MAX_FRAME: u32 = 64 << 20;

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A JSON document.
    Json(Vec<u8>),
    /// Raw bytes: standard input towards the lab, standard output from it.
    Data(Vec<u8>),
    /// Raw bytes of standard error.
    Error(Vec<u8>),
}

impl Frame {
    /// A JSON frame of `value`.
    pub fn json(value: &impl Serialize) -> anyhow::Result<Self> {
        Ok(Frame::Json(serde_json::to_vec(value)?))
    }

    /// The value in a JSON frame; an error for other kinds.
    pub fn parse<T: DeserializeOwned>(&self) -> anyhow::Result<T> {
        match self {
            Frame::Json(bytes) => Ok(serde_json::from_slice(bytes)?),
            _ => anyhow::bail!("expected a JSON frame, got data"),
        }
    }

    fn parts(&self) -> (u8, &[u8]) {
        match self {
            Frame::Json(b) => (0, b),
            Frame::Data(b) => (1, b),
            Frame::Error(b) => (2, b),
        }
    }
}

/// Writes one frame and flushes.
pub async fn write(out: &mut (impl AsyncWrite + Unpin), frame: &Frame) -> std::io::Result<()> {
    let (kind, payload) = frame.parts();
    let len = u32::try_from(payload.len() + 1).map_err(|_| std::io::Error::other("frame too long"))?;
    let mut buf = Vec::with_capacity(payload.len() + 5);
    buf.extend_from_slice(&len.to_be_bytes());
    buf.push(kind);
    buf.extend_from_slice(payload);
    out.write_all(&buf).await?;
    out.flush().await
}

/// Reads one frame; `None` at a clean end.
pub async fn read(input: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Option<Frame>> {
    let mut head = [0u8; 4];
    match input.read_exact(&mut head).await {
        Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    };
    let len = u32::from_be_bytes(head);
    if len == 0 || len > MAX_FRAME {
        return Err(std::io::Error::new(
            std::io::ErrorKind::InvalidData,
            format!("frame of {len} bytes refused"),
        ));
    }
    let kind = input.read_u8().await?;
    let mut payload = vec![0u8; usize::try_from(len - 1).map_err(std::io::Error::other)?];
    input.read_exact(&mut payload).await?;
    match kind {
        0 => Ok(Some(Frame::Json(payload))),
        1 => Ok(Some(Frame::Data(payload))),
        2 => Ok(Some(Frame::Error(payload))),
        other => {
            Err(std::io::Error::new(std::io::ErrorKind::InvalidData, format!("unknown frame kind {other}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn block<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    proptest! {
        /// Input: arbitrary frames. Output: the same frames, then a clean end.
        #[test]
        fn round_trip(payloads in proptest::collection::vec((0u8..3, proptest::collection::vec(any::<u8>(), 0..300)), 0..5)) {
            let frames: Vec<Frame> = payloads.into_iter().map(|(k, p)| match k {
                0 => Frame::Json(p), 1 => Frame::Data(p), _ => Frame::Error(p),
            }).collect();
            let mut wire = Vec::new();
            for f in &frames { block(write(&mut wire, f)).unwrap(); }
            let mut input = wire.as_slice();
            for f in frames { prop_assert_eq!(block(read(&mut input)).unwrap(), Some(f)); }
            prop_assert_eq!(block(read(&mut input)).unwrap(), None);
        }

        /// Input: arbitrary bytes. Output: a frame, an end or an error; never a panic or a huge allocation.
        #[test]
        fn arbitrary_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            // a length within bounds but longer than the input would allocate up to MAX_FRAME: keep the test small
            prop_assume!(bytes.len() < 4 || bytes[0] != 0 || bytes[1] < 0x10 || bytes[0] > 4);
            let _ = block(read(&mut bytes.as_slice()));
        }
    }
}
