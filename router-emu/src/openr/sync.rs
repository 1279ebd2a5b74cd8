//! What two stores say to each other over TCP: length-delimited protobuf frames.
//!
//! Both ends send [`Open`], then [`Summary`]; each answers the other's summary with a [`Delta`] that has
//! `sync` set and holds what the other lacks. From the summary on, every change is sent as a delta.

use prost::Message;
use thiserror::Error;

/// Version of the exchange.
pub const VERSION: u32 = 1;
/// Largest frame that is accepted, bytes.
pub const MAX_FRAME: usize = 16 << 20;
const PREFIX: usize = 4;

/// A key's value on the wire.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Entry {
    /// Key.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Version.
    #[prost(uint64, tag = "2")]
    pub version: u64,
    /// Router that wrote it.
    #[prost(string, tag = "3")]
    pub originator: String,
    /// Content; absent where only the life is extended.
    #[prost(bytes = "vec", optional, tag = "4")]
    pub value: Option<Vec<u8>>,
    /// Life that is left, milliseconds.
    #[prost(uint64, tag = "5")]
    pub ttl_ms: u64,
    /// Refresh counter.
    #[prost(uint64, tag = "6")]
    pub ttl_version: u64,
}

/// A key's value in short.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Digest {
    /// Key.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Version.
    #[prost(uint64, tag = "2")]
    pub version: u64,
    /// Router that wrote it.
    #[prost(string, tag = "3")]
    pub originator: String,
    /// Of the content.
    #[prost(fixed64, tag = "4")]
    pub hash: u64,
    /// Refresh counter.
    #[prost(uint64, tag = "5")]
    pub ttl_version: u64,
}

/// First frame of a session.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Open {
    /// [`VERSION`] of the sender.
    #[prost(uint32, tag = "1")]
    pub version: u32,
    /// Router name.
    #[prost(string, tag = "2")]
    pub node: String,
    /// Plane.
    #[prost(uint32, tag = "3")]
    pub plane: u32,
}

/// Second frame: all keys in short.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Summary {
    /// By key.
    #[prost(message, repeated, tag = "1")]
    pub digests: Vec<Digest>,
}

/// Changes.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Delta {
    /// What changed.
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<Entry>,
    /// Routers that the change has passed, the sender last.
    #[prost(string, repeated, tag = "2")]
    pub path: Vec<String>,
    /// The answer to a summary.
    #[prost(bool, tag = "3")]
    pub sync: bool,
}

/// Any frame.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum Frame {
    /// See [`Open`].
    #[prost(message, tag = "1")]
    Open(Open),
    /// See [`Summary`].
    #[prost(message, tag = "2")]
    Summary(Summary),
    /// See [`Delta`].
    #[prost(message, tag = "3")]
    Delta(Delta),
}

#[derive(Clone, PartialEq, Eq, Message)]
struct Envelope {
    #[prost(oneof = "Frame", tags = "1, 2, 3")]
    frame: Option<Frame>,
}

/// Why a session's bytes make no sense; the session has to be closed.
#[derive(Debug, Error)]
pub enum FrameError {
    /// A length prefix beyond [`MAX_FRAME`].
    #[error("a frame of {0} bytes, more than {MAX_FRAME}")]
    TooLong(usize),
    /// Not protobuf, or not of these messages.
    #[error("a frame that cannot be decoded: {0}")]
    Malformed(#[from] prost::DecodeError),
    /// A kind of frame that this release does not know.
    #[error("a frame of an unknown kind")]
    Unknown,
}

/// A frame with its length in front, ready to be written.
pub fn encode(frame: Frame) -> Vec<u8> {
    let envelope = Envelope { frame: Some(frame) };
    let length = envelope.encoded_len();
    let mut out = Vec::with_capacity(PREFIX + length);
    out.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    // writing to a Vec cannot run out of room
    let _ = envelope.encode(&mut out);
    out
}

/// Cuts a byte stream into frames.
#[derive(Debug, Default)]
pub struct Splitter {
    buffer: Vec<u8>,
    start: usize,
}

impl Splitter {
    /// Adds bytes as they arrive.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 && self.start == self.buffer.len() {
            self.buffer.clear();
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame, `None` if more bytes are needed. After an error the stream is lost.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let rest = self.buffer.get(self.start..).unwrap_or(&[]);
        let Some(prefix) = rest.first_chunk::<PREFIX>() else { return Ok(None) };
        let length = usize::try_from(u32::from_be_bytes(*prefix)).unwrap_or(usize::MAX);
        if length > MAX_FRAME {
            return Err(FrameError::TooLong(length));
        }
        let Some(body) = rest.get(PREFIX..PREFIX + length) else {
            self.buffer.drain(..self.start);
            self.start = 0;
            return Ok(None);
        };
        let envelope = Envelope::decode(body)?;
        self.start += PREFIX + length;
        envelope.frame.map(Some).ok_or(FrameError::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame() -> impl Strategy<Value = Frame> {
        let entry =
            ("[a-z:]{0,9}", any::<u64>(), "[a-z]{0,5}", any::<Option<Vec<u8>>>(), any::<u64>(), any::<u64>())
                .prop_map(|(key, version, originator, value, ttl_ms, ttl_version)| Entry {
                    key,
                    version,
                    originator,
                    value,
                    ttl_ms,
                    ttl_version,
                });
        let digest = ("[a-z:]{0,9}", any::<u64>(), "[a-z]{0,5}", any::<u64>(), any::<u64>()).prop_map(
            |(key, version, originator, hash, ttl_version)| Digest {
                key,
                version,
                originator,
                hash,
                ttl_version,
            },
        );
        prop_oneof![
            ("[a-z]{0,9}", any::<u32>(), any::<u32>()).prop_map(|(node, version, plane)| Frame::Open(Open {
                version,
                node,
                plane
            })),
            prop::collection::vec(digest, 0..5).prop_map(|digests| Frame::Summary(Summary { digests })),
            (prop::collection::vec(entry, 0..5), prop::collection::vec("[a-z]{1,5}", 0..5), any::<bool>())
                .prop_map(|(entries, path, sync)| Frame::Delta(Delta { entries, path, sync })),
        ]
    }

    proptest! {
        #[test]
        fn frames_survive_any_cutting_of_the_stream(
            frames in prop::collection::vec(frame(), 1..6), cuts in prop::collection::vec(1usize..50, 1..20)
        ) {
            let bytes: Vec<u8> = frames.iter().cloned().flat_map(encode).collect();
            let (mut splitter, mut got, mut at, mut turn) = (Splitter::default(), Vec::new(), 0, 0);
            while at < bytes.len() {
                let end = (at + cuts[turn % cuts.len()]).min(bytes.len());
                splitter.push(&bytes[at..end]);
                while let Some(frame) = splitter.next_frame().unwrap() {
                    got.push(frame);
                }
                (at, turn) = (end, turn + 1);
            }
            prop_assert_eq!(got, frames);
        }

        #[test]
        fn any_bytes_are_frames_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut splitter = Splitter::default();
            splitter.push(&bytes);
            while let Ok(Some(_)) = splitter.next_frame() {}
        }
    }

    #[test]
    fn a_huge_length_is_refused_before_memory_is_taken() {
        let mut splitter = Splitter::default();
        splitter.push(&[0xFF; 8]);
        assert!(matches!(splitter.next_frame(), Err(FrameError::TooLong(_))));
    }
}
