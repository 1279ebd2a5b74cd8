//! What a probe packet carries. Big-endian: magic (8 bytes, one number per run), stream (4), flow (2), zero (2),
//! sequence (8), send time in `CLOCK_MONOTONIC` nanoseconds (8); then zeros up to the wanted size.

/// Bytes of the header: the smallest payload.
pub const HEADER: usize = 32;

/// The header of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Tells this run's packets from another's.
    pub magic: u64,
    /// Stream, as an index into the specification.
    pub stream: u32,
    /// Flow in the stream.
    pub flow: u16,
    /// Sequence number in the stream.
    pub sequence: u64,
    /// When it was sent.
    pub sent_ns: u64,
}

impl Packet {
    /// Writes the header to the start of `payload`, which has at least [`HEADER`] bytes.
    pub fn write(&self, payload: &mut [u8]) {
        payload[..8].copy_from_slice(&self.magic.to_be_bytes());
        payload[8..12].copy_from_slice(&self.stream.to_be_bytes());
        payload[12..14].copy_from_slice(&self.flow.to_be_bytes());
        payload[14..16].fill(0);
        payload[16..24].copy_from_slice(&self.sequence.to_be_bytes());
        payload[24..32].copy_from_slice(&self.sent_ns.to_be_bytes());
    }

    /// Reads a header; `None` if the payload is too short or not of run `magic`.
    pub fn read(payload: &[u8], magic: u64) -> Option<Self> {
        let header = payload.get(..HEADER)?;
        let u64_at = |at: usize| header[at..at + 8].try_into().ok().map(u64::from_be_bytes);
        let packet = Self {
            magic: u64_at(0)?,
            stream: u32::from_be_bytes(header[8..12].try_into().ok()?),
            flow: u16::from_be_bytes(header[12..14].try_into().ok()?),
            sequence: u64_at(16)?,
            sent_ns: u64_at(24)?,
        };
        (packet.magic == magic).then_some(packet)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn reads_back(magic: u64, stream: u32, flow: u16, sequence: u64, sent_ns: u64, extra in 0usize..100) {
            let packet = Packet { magic, stream, flow, sequence, sent_ns };
            let mut payload = vec![0xff; HEADER + extra];
            packet.write(&mut payload);
            prop_assert_eq!(Packet::read(&payload, magic), Some(packet));
            prop_assert_eq!(Packet::read(&payload, !magic), None);
            prop_assert_eq!(Packet::read(&payload[..HEADER - 1], magic), None);
        }

        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = Packet::read(&bytes, 0);
        }
    }
}
