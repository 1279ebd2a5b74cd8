//! The classifier: a classic-BPF program that reads the class of a packet behind zero to three MPLS labels.
//!
//! The kernel's other classifiers do not look behind labels (flower accepts the question and ignores it), and
//! every push sets the label's own traffic class to zero, so the inner DSCP is the only place to read.
//! Instructions are those of `include/uapi/linux/bpf_common.h`; offsets count from the Ethernet header.

/// Length of an Ethernet header.
const ETHERNET: u32 = 14;
/// Where its type is.
const ETHERTYPE: u32 = 12;
/// IPv6.
const TYPE_IPV6: u32 = 0x86dd;
/// MPLS, unicast.
const TYPE_MPLS: u32 = 0x8847;
/// Length of a label stack entry.
const LABEL: u32 = 4;
/// Byte of an entry that has the bottom-of-stack flag in its lowest bit.
const BOTTOM_BYTE: u32 = 2;
/// The flag.
const BOTTOM_BIT: u32 = 1;
/// Deepest stack that is looked behind.
const MAX_LABELS: u32 = 3;
/// Where an IPv6 header says what follows it.
const NEXT_HEADER: u32 = 6;
/// ICMPv6, which carries neighbour discovery.
const ICMPV6: u32 = 58;
/// Bits to the right of the DSCP in the first two bytes of an IPv6 header (ECN and the flow label's start).
const DSCP_SHIFT: u32 = 6;
/// The DSCP itself.
const DSCP_MASK: u32 = 0x3f;

/// One instruction (`struct sock_filter`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Operation.
    pub code: u16,
    /// Instructions to skip if a test holds.
    pub jump_true: u8,
    /// Instructions to skip if it does not.
    pub jump_false: u8,
    /// Operand.
    pub operand: u32,
}

impl Instruction {
    /// The eight bytes of `struct sock_filter`.
    pub fn encode(&self) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..2].copy_from_slice(&self.code.to_ne_bytes());
        bytes[2] = self.jump_true;
        bytes[3] = self.jump_false;
        bytes[4..].copy_from_slice(&self.operand.to_ne_bytes());
        bytes
    }
}

/// Operations, `BPF_CLASS | BPF_SIZE | BPF_MODE`.
mod op {
    /// `A = *(u8 *)(packet + operand)`
    pub const LOAD_BYTE: u16 = 0x30;
    /// `A = ntohs(*(u16 *)(packet + operand))`
    pub const LOAD_HALF: u16 = 0x28;
    /// `A = ntohs(*(u16 *)(packet + X + operand))`
    pub const LOAD_HALF_INDEXED: u16 = 0x48;
    /// `X = operand`
    pub const SET_X: u16 = 0x01;
    /// `A >>= operand`
    pub const SHIFT_RIGHT: u16 = 0x74;
    /// `A &= operand`
    pub const AND: u16 = 0x54;
    /// skip `operand`
    pub const JUMP: u16 = 0x05;
    /// `A == operand`
    pub const IF_EQUAL: u16 = 0x15;
    /// `A >= operand`
    pub const IF_AT_LEAST: u16 = 0x35;
    /// `A & operand`
    pub const IF_BITS: u16 = 0x45;
    /// return the operand
    pub const RETURN: u16 = 0x06;
}

/// Which class gets which code points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classes {
    /// Class id for packets below the first limit, and for whatever is neither IPv6 nor MPLS over it.
    pub default: u32,
    /// Lowest DSCP and class id, ascending.
    pub from: Vec<(u8, u32)>,
    /// Class id for ICMPv6 without labels: neighbour discovery carries DSCP 0 and must not starve.
    pub icmpv6: u32,
}

impl Classes {
    /// The four classes of the backbone on a prio queue: ICP (48 and up) band 1, gold (32) band 2, silver (8)
    /// band 3, bronze band 4; ICMPv6 to band 1.
    pub fn backbone(prio_major: u16) -> Self {
        let band = |n| super::handle(prio_major, n);
        Self { default: band(4), from: vec![(8, band(3)), (32, band(2)), (48, band(1))], icmpv6: band(1) }
    }
}

/// A place in the program that is not known yet when a jump to it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Label(usize);

/// A jump target: the next instruction, or a label.
#[derive(Clone, Copy, Debug)]
enum To {
    Next,
    Label(Label),
}

/// Writes a program with labels; all jumps go forward, as classic BPF demands.
#[derive(Default)]
struct Builder {
    code: Vec<(u16, To, To, u32)>,
    places: Vec<usize>,
}

impl Builder {
    /// A new label without a place.
    fn label(&mut self) -> Label {
        self.places.push(0);
        Label(self.places.len() - 1)
    }

    /// The label's place is the next instruction.
    fn place(&mut self, label: Label) {
        if let Some(place) = self.places.get_mut(label.0) {
            *place = self.code.len();
        }
    }

    /// An instruction that does not jump.
    fn plain(&mut self, code: u16, operand: u32) {
        self.code.push((code, To::Next, To::Next, operand));
    }

    /// A test.
    fn test(&mut self, code: u16, operand: u32, yes: To, no: To) {
        self.code.push((code, yes, no, operand));
    }

    /// An unconditional jump.
    fn jump(&mut self, to: Label) {
        self.code.push((op::JUMP, To::Label(to), To::Next, 0));
    }

    /// Fills in the distances.
    fn finish(self) -> Vec<Instruction> {
        let distance = |at: usize, to: To| match to {
            To::Next => 0,
            To::Label(label) => self.places.get(label.0).map_or(0, |place| place.saturating_sub(at + 1)),
        };
        let resolve = |(at, (code, yes, no, operand)): (usize, &(u16, To, To, u32))| {
            if *code == op::JUMP {
                let skip = u32::try_from(distance(at, *yes)).unwrap_or(u32::MAX);
                return Instruction { code: *code, jump_true: 0, jump_false: 0, operand: skip };
            }
            // A program of this shape is far shorter than the 255 instructions that a test can skip.
            let short = |to| u8::try_from(distance(at, to)).unwrap_or(u8::MAX);
            Instruction { code: *code, jump_true: short(*yes), jump_false: short(*no), operand: *operand }
        };
        self.code.iter().enumerate().map(resolve).collect()
    }
}

/// The program for these classes; it returns a class id for every packet.
pub fn program(classes: &Classes) -> Vec<Instruction> {
    let mut b = Builder::default();
    let (ipv6, dscp, default, icmp) = (b.label(), b.label(), b.label(), b.label());
    let behind: Vec<Label> = (0..MAX_LABELS).map(|_| b.label()).collect();
    let limits: Vec<Label> = classes.from.iter().map(|_| b.label()).collect();

    b.plain(op::LOAD_HALF, ETHERTYPE);
    b.test(op::IF_EQUAL, TYPE_IPV6, To::Label(ipv6), To::Next);
    b.test(op::IF_EQUAL, TYPE_MPLS, To::Next, To::Label(default));
    // Find the bottom of the stack.
    for (depth, found) in (0u32..).zip(&behind) {
        let last = depth + 1 == MAX_LABELS;
        b.plain(op::LOAD_BYTE, ETHERNET + LABEL * depth + BOTTOM_BYTE);
        b.test(op::IF_BITS, BOTTOM_BIT, To::Label(*found), if last { To::Label(default) } else { To::Next });
    }
    b.place(ipv6);
    b.plain(op::LOAD_BYTE, ETHERNET + NEXT_HEADER);
    b.test(op::IF_EQUAL, ICMPV6, To::Label(icmp), To::Next);
    b.plain(op::SET_X, ETHERNET);
    b.jump(dscp);
    // X = start of the inner header.
    for (labels, found) in (1u32..).zip(&behind) {
        b.place(*found);
        b.plain(op::SET_X, ETHERNET + LABEL * labels);
        if labels != MAX_LABELS {
            b.jump(dscp);
        }
    }
    b.place(dscp);
    b.plain(op::LOAD_HALF_INDEXED, 0);
    b.plain(op::SHIFT_RIGHT, DSCP_SHIFT);
    b.plain(op::AND, DSCP_MASK);
    for ((lowest, _), label) in classes.from.iter().zip(&limits).rev() {
        b.test(op::IF_AT_LEAST, u32::from(*lowest), To::Label(*label), To::Next);
    }
    b.place(default);
    b.plain(op::RETURN, classes.default);
    for ((_, class), label) in classes.from.iter().zip(&limits) {
        b.place(*label);
        b.plain(op::RETURN, *class);
    }
    b.place(icmp);
    b.plain(op::RETURN, classes.icmpv6);
    b.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Runs a program on a packet as the kernel would: a load beyond the packet ends it with 0.
    fn run(program: &[Instruction], packet: &[u8]) -> u32 {
        let (mut a, mut x, mut at) = (0u32, 0u32, 0usize);
        let half = |offset: u32| {
            let offset = offset as usize;
            packet.get(offset..offset + 2).map(|b| u32::from(u16::from_be_bytes([b[0], b[1]])))
        };
        loop {
            let i = program[at];
            at += 1;
            let mut jump = |holds: bool| at += usize::from(if holds { i.jump_true } else { i.jump_false });
            match i.code {
                op::LOAD_BYTE => match packet.get(i.operand as usize) {
                    Some(byte) => a = u32::from(*byte),
                    None => return 0,
                },
                op::LOAD_HALF => match half(i.operand) {
                    Some(value) => a = value,
                    None => return 0,
                },
                op::LOAD_HALF_INDEXED => match half(x + i.operand) {
                    Some(value) => a = value,
                    None => return 0,
                },
                op::SET_X => x = i.operand,
                op::SHIFT_RIGHT => a >>= i.operand,
                op::AND => a &= i.operand,
                op::JUMP => at += i.operand as usize,
                op::IF_EQUAL => jump(a == i.operand),
                op::IF_AT_LEAST => jump(a >= i.operand),
                op::IF_BITS => jump(a & i.operand != 0),
                op::RETURN => return i.operand,
                other => panic!("unknown operation {other:#x}"),
            }
        }
    }

    /// A frame: labels, then IPv6 with a traffic class and a next header.
    fn frame(labels: &[u32], dscp: u8, ecn: u8, next_header: u8) -> Vec<u8> {
        let mut bytes = vec![2; 12];
        let ethertype: u16 = if labels.is_empty() { 0x86dd } else { 0x8847 };
        bytes.extend_from_slice(&ethertype.to_be_bytes());
        bytes.extend(crate::wire::label_stack(labels));
        let class = (dscp << 2) | ecn;
        bytes.extend_from_slice(&[0x60 | (class >> 4), class << 4, 0xab, 0xcd, 0, 8, next_header, 64]);
        bytes.resize(bytes.len() + 40, 0);
        bytes
    }

    fn band(dscp: u8) -> u32 {
        match dscp {
            48.. => 0x2_0001,
            32.. => 0x2_0002,
            8.. => 0x2_0003,
            _ => 0x2_0004,
        }
    }

    #[test]
    fn the_program_stays_as_it_was_accepted_by_the_kernel() {
        let text: Vec<String> = program(&Classes::backbone(2))
            .iter()
            .map(|i| format!("{} {} {} {}", i.code, i.jump_true, i.jump_false, i.operand))
            .collect();
        insta::assert_snapshot!(text.join(","), @"40 0 0 12,21 7 0 34525,21 0 21 34887,48 0 0 16,69 8 0 1,48 0 0 20,69 8 0 1,48 0 0 24,69 8 15 1,48 0 0 20,21 17 0 58,1 0 0 14,5 0 0 5,1 0 0 18,5 0 0 3,1 0 0 22,5 0 0 1,1 0 0 26,72 0 0 0,116 0 0 6,84 0 0 63,53 5 0 48,53 3 0 32,53 1 0 8,6 0 0 131076,6 0 0 131075,6 0 0 131074,6 0 0 131073,6 0 0 131073");
    }

    #[test]
    fn icmpv6_is_first_and_foreign_protocols_last() {
        let program = program(&Classes::backbone(2));
        assert_eq!(run(&program, &frame(&[], 0, 0, 58)), 0x2_0001);
        let mut arp = frame(&[], 63, 0, 17);
        arp[12..14].copy_from_slice(&0x0806u16.to_be_bytes());
        assert_eq!(run(&program, &arp), 0x2_0004);
        assert_eq!(run(&program, &frame(&[16, 17, 18, 19], 63, 0, 17)), 0x2_0004);
    }

    proptest! {
        #[test]
        fn every_code_point_finds_its_band_behind_any_stack(
            labels in prop::collection::vec(16u32..1_048_575, 0..=3),
            dscp in 0u8..64,
            ecn in 0u8..4,
        ) {
            let program = program(&Classes::backbone(2));
            prop_assert_eq!(run(&program, &frame(&labels, dscp, ecn, 17)), band(dscp));
        }

        #[test]
        fn any_packet_gets_some_answer(packet in prop::collection::vec(any::<u8>(), 0..64)) {
            let answer = run(&program(&Classes::backbone(2)), &packet);
            prop_assert!(answer == 0 || (0x2_0001..=0x2_0004).contains(&answer));
        }
    }
}
