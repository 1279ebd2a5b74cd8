//! BFD control packets (RFC 5880, section 4.1), without authentication.

use thiserror::Error;

/// Bytes of a control packet without authentication.
pub const LENGTH: usize = 24;
/// Protocol version.
const VERSION: u8 = 1;

const POLL: u8 = 1 << 5;
const FINAL: u8 = 1 << 4;
const INDEPENDENT: u8 = 1 << 3;
const AUTHENTICATED: u8 = 1 << 2;
const DEMAND: u8 = 1 << 1;
const MULTIPOINT: u8 = 1;

/// Why a session left a state (RFC 5880, section 4.1); five bits, more values exist than we use.
pub mod diagnostic {
    /// Nothing to say.
    pub const NONE: u8 = 0;
    /// Nothing was heard for the detection time.
    pub const TIMED_OUT: u8 = 1;
    /// The other end says that its session is down.
    pub const NEIGHBOR_DOWN: u8 = 3;
    /// Switched off by an administrator.
    pub const ADMIN_DOWN: u8 = 7;
}

/// State of a session, as in the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Switched off.
    AdminDown,
    /// Not heard.
    Down,
    /// Heard, but does not hear us yet as far as we know.
    Init,
    /// Both directions work.
    Up,
}

impl State {
    fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::AdminDown,
            1 => Self::Down,
            2 => Self::Init,
            _ => Self::Up,
        }
    }

    fn bits(self) -> u8 {
        match self {
            Self::AdminDown => 0,
            Self::Down => 1,
            Self::Init => 2,
            Self::Up => 3,
        }
    }
}

/// A control packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// Why the sender's session last changed, see [`diagnostic`]; only the low five bits travel.
    pub diagnostic: u8,
    /// The sender's state.
    pub state: State,
    /// The sender wants an answer with `fin`.
    pub poll: bool,
    /// This answers a poll.
    pub fin: bool,
    /// The sender's BFD lives on when its control plane dies (the C bit).
    pub independent: bool,
    /// The sender wants no periodic packets (the D bit).
    pub demand: bool,
    /// The sender's detection multiplier, never 0.
    pub detect_mult: u8,
    /// Number of the session at the sender, never 0.
    pub my_discriminator: u32,
    /// Number of the session at the receiver, 0 if the sender does not know it.
    pub your_discriminator: u32,
    /// How often the sender would like to send, microseconds.
    pub desired_min_tx_us: u32,
    /// How often it can receive, microseconds; 0: it wants no periodic packets.
    pub required_min_rx_us: u32,
    /// How often it can answer echoes, microseconds; 0: not at all.
    pub required_min_echo_rx_us: u32,
}

/// Why a datagram must be ignored (RFC 5880, section 6.8.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PacketError {
    /// Too short, or shorter than it says.
    #[error("{0} bytes are no BFD packet")]
    Length(usize),
    /// Another version of the protocol.
    #[error("BFD version {0}, this program speaks {VERSION}")]
    Version(u8),
    /// We use no authentication, the sender does.
    #[error("the packet is authenticated, but no keys are agreed: switch authentication off at the sender")]
    Authenticated,
    /// A reserved bit is set.
    #[error("the multipoint bit is set")]
    Multipoint,
    /// A multiplier of zero.
    #[error("the detection multiplier is zero")]
    Multiplier,
    /// The sender's session has no number.
    #[error("the sender's discriminator is zero")]
    Discriminator,
    /// It claims to have heard us, but does not say whom.
    #[error("the session is said to be Init or Up, but is not named")]
    Unnamed,
}

impl Control {
    /// The packet as it travels.
    pub fn encode(&self) -> [u8; LENGTH] {
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        let mut out = [0; LENGTH];
        let (head, numbers) = out.split_at_mut(4);
        head.copy_from_slice(&[
            VERSION << 5 | self.diagnostic & 0x1F,
            self.state.bits() << 6
                | flag(self.poll, POLL)
                | flag(self.fin, FINAL)
                | flag(self.independent, INDEPENDENT)
                | flag(self.demand, DEMAND),
            self.detect_mult,
            24,
        ]);
        let values = [
            self.my_discriminator,
            self.your_discriminator,
            self.desired_min_tx_us,
            self.required_min_rx_us,
            self.required_min_echo_rx_us,
        ];
        for (place, value) in numbers.chunks_exact_mut(4).zip(values) {
            place.copy_from_slice(&value.to_be_bytes());
        }
        out
    }

    /// Reads a datagram, with all checks that need no session. Bytes after the packet are ignored, as the RFC has it.
    pub fn decode(bytes: &[u8]) -> Result<Self, PacketError> {
        let Some((&[vers_diag, flags, detect_mult, length], numbers)) = bytes.split_first_chunk::<4>() else {
            return Err(PacketError::Length(bytes.len()));
        };
        if vers_diag >> 5 != VERSION {
            return Err(PacketError::Version(vers_diag >> 5));
        }
        let length = usize::from(length);
        if length < LENGTH || length > bytes.len() {
            return Err(PacketError::Length(bytes.len()));
        }
        if flags & MULTIPOINT != 0 {
            return Err(PacketError::Multipoint);
        }
        if flags & AUTHENTICATED != 0 {
            return Err(PacketError::Authenticated);
        }
        let mut numbers =
            numbers.chunks_exact(4).map(|c| c.iter().fold(0_u32, |sum, byte| sum << 8 | u32::from(*byte)));
        let mut number = || numbers.next().unwrap_or_default();
        let packet = Self {
            diagnostic: vers_diag & 0x1F,
            state: State::from_bits(flags >> 6),
            poll: flags & POLL != 0,
            fin: flags & FINAL != 0,
            independent: flags & INDEPENDENT != 0,
            demand: flags & DEMAND != 0,
            detect_mult,
            my_discriminator: number(),
            your_discriminator: number(),
            desired_min_tx_us: number(),
            required_min_rx_us: number(),
            required_min_echo_rx_us: number(),
        };
        packet.check().map(|()| packet)
    }

    fn check(&self) -> Result<(), PacketError> {
        if self.detect_mult == 0 {
            return Err(PacketError::Multiplier);
        }
        if self.my_discriminator == 0 {
            return Err(PacketError::Discriminator);
        }
        if self.your_discriminator == 0 && matches!(self.state, State::Init | State::Up) {
            return Err(PacketError::Unnamed);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    prop_compose! {
        fn control()(
            diagnostic in 0_u8..32, state in 0_u8..4, flags in any::<[bool; 4]>(), detect_mult in 1_u8..,
            mine in 1_u32.., yours in 1_u32.., times in any::<[u32; 3]>(),
        ) -> Control {
            Control {
                diagnostic,
                state: State::from_bits(state),
                poll: flags[0],
                fin: flags[1],
                independent: flags[2],
                demand: flags[3],
                detect_mult,
                my_discriminator: mine,
                your_discriminator: yours,
                desired_min_tx_us: times[0],
                required_min_rx_us: times[1],
                required_min_echo_rx_us: times[2],
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(packet in control(), tail in prop::collection::vec(any::<u8>(), 0..9)) {
            let mut bytes = packet.encode().to_vec();
            for end in 0..LENGTH {
                prop_assert!(Control::decode(&bytes[..end]).is_err(), "{end} bytes");
            }
            bytes.extend(tail);
            prop_assert_eq!(Control::decode(&bytes), Ok(packet));
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = Control::decode(&bytes);
            for (at, byte) in [(0, 0x20), (3, 24)] {
                if let Some(place) = bytes.get_mut(at) {
                    *place = byte;
                }
            }
            if let Ok(packet) = Control::decode(&bytes) {
                prop_assert_eq!(&packet.encode()[..], &bytes[..LENGTH]);
            }
        }
    }

    /// A packet written down by hand from the figure in the RFC.
    const EXAMPLE: [u8; LENGTH] =
        [0x21, 0xE8, 3, 24, 0, 0, 0, 7, 0, 0, 0, 9, 0, 0, 0x4E, 0x20, 0, 0, 0xC3, 0x50, 0, 0, 0, 0];

    #[test]
    fn the_fields_are_where_the_rfc_has_them() {
        let packet = Control::decode(&EXAMPLE).unwrap();
        let expected = Control {
            diagnostic: diagnostic::TIMED_OUT,
            state: State::Up,
            poll: true,
            fin: false,
            independent: true,
            demand: false,
            detect_mult: 3,
            my_discriminator: 7,
            your_discriminator: 9,
            desired_min_tx_us: 20_000,
            required_min_rx_us: 50_000,
            required_min_echo_rx_us: 0,
        };
        assert_eq!(packet, expected);
        assert_eq!(packet.encode(), EXAMPLE);
    }

    #[test]
    fn every_rule_of_reception_refuses_its_packet() {
        let with = |changes: &[(usize, u8)]| {
            let mut bytes = EXAMPLE;
            for (at, byte) in changes {
                bytes[*at] = *byte;
            }
            Control::decode(&bytes)
        };
        assert_eq!(with(&[(0, 0x41)]), Err(PacketError::Version(2)));
        assert_eq!(with(&[(3, 23)]), Err(PacketError::Length(24)), "shorter than the fields");
        assert_eq!(with(&[(3, 25)]), Err(PacketError::Length(24)), "longer than the datagram");
        assert_eq!(with(&[(1, 0xE9)]), Err(PacketError::Multipoint));
        assert_eq!(with(&[(1, 0xEC)]), Err(PacketError::Authenticated));
        assert_eq!(with(&[(2, 0)]), Err(PacketError::Multiplier));
        assert_eq!(with(&[(7, 0)]), Err(PacketError::Discriminator));
        assert_eq!(with(&[(11, 0)]), Err(PacketError::Unnamed));
        assert_eq!(with(&[(11, 0), (1, 0x80)]), Err(PacketError::Unnamed), "Init");
        assert!(with(&[(11, 0), (1, 0x40)]).is_ok(), "a session that is Down may be unnamed");
        assert!(with(&[(11, 0), (1, 0)]).is_ok(), "AdminDown, too");
    }
}
