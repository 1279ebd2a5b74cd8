//! Labels and the numbers derived from them: traffic classes, meshes, binding SIDs, static labels, kernel nexthop ids,
//! and the split of a path into segments that fit the hardware's label stack.
//!
//! In this room: pure arithmetic that controller, agents and tools share, so that a number read on any router says what
//! it belongs to. Not in this room: state, the kernel, names of sites.

pub mod split;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
pub use split::{Segment, intermediates, segment_starts, split};

/// First label value that is a binding SID (bit 19).
pub const SID_BASE: u32 = 1 << 19;
/// Largest value of a 20-bit label. The kernel cannot install it (its table ends one below), so site 255 must not be
/// both ends of a pair.
pub const LABEL_MAX: u32 = (1 << 20) - 1;
/// Labels below this one are reserved by MPLS (RFC 3032).
pub const LABEL_FIRST: u32 = 16;
/// LSPs of a bundle (EBB paper 4.1).
pub const BUNDLE_SIZE: usize = 16;
/// Most slots of a bundle that the nexthop id scheme can number.
pub const MAX_SLOTS: usize = 63;

/// A traffic class, most important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Infrastructure control plane.
    Icp,
    /// User-facing and critical.
    Gold,
    /// The default of most applications.
    Silver,
    /// Bulk.
    Bronze,
}

impl Class {
    /// All classes, most important first.
    pub const ALL: [Self; 4] = [Self::Icp, Self::Gold, Self::Silver, Self::Bronze];

    /// Lower-case name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Icp => "icp",
            Self::Gold => "gold",
            Self::Silver => "silver",
            Self::Bronze => "bronze",
        }
    }

    /// First and last DSCP of the class, both included.
    pub const fn dscp(self) -> (u8, u8) {
        match self {
            Self::Icp => (48, 63),
            Self::Gold => (32, 47),
            Self::Silver => (8, 31),
            Self::Bronze => (0, 7),
        }
    }

    /// Class of a DSCP; values above 63 do not exist in a header and count as ICP.
    pub const fn of_dscp(dscp: u8) -> Self {
        match dscp {
            0..=7 => Self::Bronze,
            8..=31 => Self::Silver,
            32..=47 => Self::Gold,
            _ => Self::Icp,
        }
    }

    /// DSCP that probes of this class carry.
    pub const fn probe_dscp(self) -> u8 {
        match self {
            Self::Icp => 48,
            Self::Gold => 32,
            Self::Silver => 16,
            Self::Bronze => 0,
        }
    }

    /// Mesh that carries the class: ICP shares gold's.
    pub const fn mesh(self) -> Mesh {
        match self {
            Self::Icp | Self::Gold => Mesh::Gold,
            Self::Silver => Mesh::Silver,
            Self::Bronze => Mesh::Bronze,
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A word that names no class.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no traffic class; there are icp, gold, silver and bronze")]
pub struct UnknownClass(String);

impl FromStr for Class {
    type Err = UnknownClass;

    fn from_str(text: &str) -> Result<Self, UnknownClass> {
        Self::ALL.into_iter().find(|c| c.name() == text).ok_or_else(|| UnknownClass(text.to_owned()))
    }
}

/// An LSP mesh: one bundle per ordered pair of DC sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mesh {
    /// Bulk, code 0 (the paper's example label decodes to it).
    Bronze,
    /// Code 1.
    Silver,
    /// Gold and ICP, code 2.
    Gold,
    /// Code 3, not in use; it exists so that every 20-bit value decodes.
    Spare,
}

impl Mesh {
    /// The meshes in use, by code.
    pub const ALL: [Self; 3] = [Self::Bronze, Self::Silver, Self::Gold];
    /// The meshes in use, most important first: the order in which they are computed and repaired.
    pub const BY_PRIORITY: [Self; 3] = [Self::Gold, Self::Silver, Self::Bronze];

    /// Two-bit code.
    pub const fn code(self) -> u8 {
        match self {
            Self::Bronze => 0,
            Self::Silver => 1,
            Self::Gold => 2,
            Self::Spare => 3,
        }
    }

    /// The mesh of a code; `None` above 3.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Bronze),
            1 => Some(Self::Silver),
            2 => Some(Self::Gold),
            3 => Some(Self::Spare),
            _ => None,
        }
    }

    /// Lower-case name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bronze => "bronze",
            Self::Silver => "silver",
            Self::Gold => "gold",
            Self::Spare => "spare",
        }
    }

    /// First and last DSCP that the mesh carries, both included.
    pub const fn dscp(self) -> (u8, u8) {
        match self {
            Self::Bronze => (0, 7),
            Self::Silver => (8, 31),
            Self::Gold => (32, 63),
            Self::Spare => (64, 0),
        }
    }

    /// Kernel table with the mesh's LSP routes.
    pub fn table(self) -> u32 {
        crate::config::MESH_TABLE + u32::from(self.code())
    }
}

impl fmt::Display for Mesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A binding SID: the label of a bundle, the same number on every router (EBB paper 5.2.4).
///
/// ```text
/// bit 19     bits 18..11     bits 10..3      bits 2..1     bit 0
/// 1          src site        dst site        mesh          version
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sid {
    /// Source site id.
    pub src: u8,
    /// Destination site id.
    pub dst: u8,
    /// Mesh.
    pub mesh: Mesh,
    /// Version bit: alternates with every re-programming of the bundle.
    pub version: bool,
}

impl Sid {
    /// The 20-bit label.
    pub fn encode(self) -> u32 {
        SID_BASE
            | u32::from(self.src) << 11
            | u32::from(self.dst) << 3
            | u32::from(self.mesh.code()) << 1
            | u32::from(self.version)
    }

    /// The SID of a label; `None` for static labels (bit 19 clear) and for values over 20 bits.
    pub fn decode(label: u32) -> Option<Self> {
        if label > LABEL_MAX || label & SID_BASE == 0 {
            return None;
        }
        let [_, b2, b1, b0] = label.to_be_bytes();
        Some(Self {
            src: (b2 & 7) << 5 | b1 >> 3,
            dst: (b1 & 7) << 5 | b0 >> 3,
            mesh: Mesh::from_code(b0 >> 1 & 3)?,
            version: b0 & 1 == 1,
        })
    }

    /// The same bundle's other version.
    #[must_use]
    pub const fn flipped(self) -> Self {
        Self { version: !self.version, ..self }
    }

    /// What stays over re-programming: the SID with version 0.
    #[must_use]
    pub const fn bundle(self) -> Self {
        Self { version: false, ..self }
    }
}

impl fmt::Display for Sid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({}>{} {} v{})", self.encode(), self.src, self.dst, self.mesh, u8::from(self.version))
    }
}

/// A label of either kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Label {
    /// Pop and send out of one interface of the router that reads it.
    Static(u32),
    /// Push the bundle's next label stack.
    Binding(Sid),
}

impl Label {
    /// Decodes a 20-bit value; `None` if it is larger.
    pub fn decode(value: u32) -> Option<Self> {
        match Sid::decode(value) {
            Some(sid) => Some(Self::Binding(sid)),
            None if value < SID_BASE => Some(Self::Static(value)),
            None => None,
        }
    }

    /// The 20-bit value.
    pub fn encode(self) -> u32 {
        match self {
            Self::Static(value) => value,
            Self::Binding(sid) => sid.encode(),
        }
    }
}

/// Static label of the `k`-th (from 1) parallel link to site `far`; `None` if it would not be a static label.
pub fn static_label(k: u32, far: u8) -> Option<u32> {
    let value = k.checked_mul(1000)?.checked_add(u32::from(far))?;
    (k > 0 && value < SID_BASE).then_some(value)
}

/// Name of a bundle's nexthop group, `lspgrp_prn-lla-gold`.
pub fn group_name(src: &str, dst: &str, mesh: Mesh) -> String {
    format!("lspgrp_{src}-{dst}-{mesh}")
}

/// What a kernel nexthop id of ours stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Nexthop {
    /// The group of a source bundle.
    Group {
        /// Destination site id.
        dst: u8,
        /// Mesh.
        mesh: Mesh,
    },
    /// One entry of it.
    Member {
        /// Destination site id.
        dst: u8,
        /// Mesh.
        mesh: Mesh,
        /// Version bit of the bundle that it belongs to.
        version: bool,
        /// Whether it follows the LSP's backup path.
        backup: bool,
        /// LSP number, from 0; below [`MAX_SLOTS`].
        slot: u8,
    },
}

const ID_BASE: u32 = 0x1000_0000;

impl Nexthop {
    /// The kernel's id: `0x1000_0000 | (dst << 2 | mesh) << 8`, members add `version << 7 | backup << 6 | slot + 1`.
    ///
    /// A slot of [`MAX_SLOTS`] or more does not fit and is cut to six bits; bundles that large are refused before.
    pub fn id(self) -> u32 {
        let base = |dst: u8, mesh: Mesh| ID_BASE | (u32::from(dst) << 2 | u32::from(mesh.code())) << 8;
        match self {
            Self::Group { dst, mesh } => base(dst, mesh),
            Self::Member { dst, mesh, version, backup, slot } => {
                let slot = (u32::from(slot) + 1) & 0x3f;
                base(dst, mesh) | u32::from(version) << 7 | u32::from(backup) << 6 | slot
            }
        }
    }

    /// The reverse of [`Nexthop::id`]; `None` for ids outside the scheme.
    pub fn decode(id: u32) -> Option<Self> {
        let [top, high, low, rest] = id.to_be_bytes();
        if top != 0x10 || high > 3 {
            return None;
        }
        let dst = high << 6 | low >> 2;
        let mesh = Mesh::from_code(low & 3)?;
        match (rest, rest & 0x3f) {
            (0, _) => Some(Self::Group { dst, mesh }),
            (_, 0) => None,
            (_, slot) => Some(Self::Member {
                dst,
                mesh,
                version: rest & 0x80 != 0,
                backup: rest & 0x40 != 0,
                slot: slot - 1,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sid(src: u8, dst: u8, mesh: u8, version: u8) -> Sid {
        Sid { src, dst, mesh: Mesh::from_code(mesh).unwrap(), version: version == 1 }
    }

    #[test]
    fn published_and_derived_labels() {
        for (label, want) in [
            (524_288, sid(0, 0, 0, 0)),
            (524_296, sid(0, 1, 0, 0)),
            (524_300, sid(0, 1, 2, 0)),
            (524_301, sid(0, 1, 2, 1)),
            (526_338, sid(1, 0, 1, 0)),
            (526_364, sid(1, 3, 2, 0)),
            (536_969, sid(6, 49, 0, 1)),
            (1_048_575, sid(255, 255, 3, 1)),
        ] {
            assert_eq!(want.encode(), label);
            assert_eq!(Label::decode(label), Some(Label::Binding(want)));
        }
        assert_eq!(Label::decode(19_999), Some(Label::Static(19_999)));
        assert_eq!(Label::decode(LABEL_MAX + 1), None);
    }

    #[test]
    fn names_and_static_labels() {
        assert_eq!(group_name("prn", "lla", Mesh::Gold), "lspgrp_prn-lla-gold");
        assert_eq!(sid(6, 49, 0, 1).to_string(), "536969(6>49 bronze v1)");
        assert_eq!(static_label(1, 4), Some(1004));
        assert_eq!(static_label(2, 255), Some(2255));
        assert_eq!(static_label(0, 4), None);
        assert_eq!(static_label(525, 4), None);
    }

    #[test]
    fn every_dscp_has_one_class_and_one_mesh() {
        for dscp in 0..=63 {
            let within = |(first, last): (u8, u8)| (first..=last).contains(&dscp);
            let classes: Vec<_> = Class::ALL.into_iter().filter(|c| within(c.dscp())).collect();
            let meshes: Vec<_> = Mesh::ALL.into_iter().filter(|m| within(m.dscp())).collect();
            assert_eq!(classes, [Class::of_dscp(dscp)]);
            assert_eq!(meshes, [Class::of_dscp(dscp).mesh()]);
        }
        assert!(Class::ALL.iter().all(|c| Class::of_dscp(c.probe_dscp()) == *c));
    }

    proptest! {
        #[test]
        fn any_20_bits_round_trip(label in 0..=LABEL_MAX) {
            prop_assert_eq!(Label::decode(label).unwrap().encode(), label);
        }

        #[test]
        fn any_nexthop_id_round_trips(dst: u8, mesh in 0..4u8, version: bool, backup: bool, slot in 0..63u8) {
            let mesh = Mesh::from_code(mesh).unwrap();
            let member = Nexthop::Member { dst, mesh, version, backup, slot };
            let group = Nexthop::Group { dst, mesh };
            prop_assert_eq!(Nexthop::decode(member.id()), Some(member));
            prop_assert_eq!(Nexthop::decode(group.id()), Some(group));
            prop_assert_eq!(member.id() & !0xff, group.id());
        }

        #[test]
        fn decoding_any_id_is_exact(id: u32) {
            if let Some(known) = Nexthop::decode(id) {
                prop_assert_eq!(known.id(), id);
            }
        }
    }
}
