//! Keys made of keys.

use aes::Aes128;
use cmac::{Cmac, KeyInit as _, Mac as _};
use rtnl::macsec::{KEY_BYTES, Key, KeyId, Sci};

/// Length of a check value, bytes.
pub const ICV_BYTES: usize = 16;

/// What two ends of a circuit were given: the key and its name.
#[derive(Clone, PartialEq, Eq)]
pub struct Association {
    /// CAK, the secret of the circuit.
    pub cak: [u8; KEY_BYTES],
    /// CKN, the name of the circuit's key, 1 to 32 bytes.
    pub ckn: Vec<u8>,
}

impl Association {
    /// The key for check values: KDF(CAK, "IEEE8021 ICK", first 16 bytes of the CKN) (IEEE 802.1X, 9.3.3).
    pub fn ick(&self) -> [u8; KEY_BYTES] {
        let mut name = [0; 16];
        for (to, from) in name.iter_mut().zip(&self.ckn) {
            *to = *from;
        }
        derive(&self.cak, "IEEE8021 ICK", &name)
    }

    /// The key that `sender` calls `id`: KDF(CAK, "IEEE8021 SAK", CKN, SCI, name). Every part that makes keys differ is in
    /// the context, as IEEE 802.1X, 9.8.1 wants it of a nonce, the members and the key's number.
    pub fn sak(&self, sender: Sci, id: &KeyId) -> Key {
        let context = [&self.ckn[..], &sender.0, id].concat();
        Key { id: *id, secret: derive(&self.cak, "IEEE8021 SAK", &context) }
    }
}

/// AES-CMAC (NIST SP 800-38B, RFC 4493).
pub fn mac(key: &[u8; KEY_BYTES], message: &[u8]) -> [u8; ICV_BYTES] {
    let mut mac = <Cmac<Aes128> as cmac::KeyInit>::new(key.into());
    mac.update(message);
    mac.finalize().into_bytes().into()
}

/// Whether a check value is right, in constant time.
pub fn is_right(key: &[u8; KEY_BYTES], message: &[u8], icv: &[u8]) -> bool {
    let mut mac = Cmac::<Aes128>::new(key.into());
    mac.update(message);
    mac.verify_slice(icv).is_ok()
}

/// The key derivation function for 128 bits (IEEE 802.1X, 6.2.1; NIST SP 800-108 in counter mode): AES-CMAC of the
/// iteration, the label, a zero, the context and the length in bits.
pub fn derive(key: &[u8; KEY_BYTES], label: &str, context: &[u8]) -> [u8; KEY_BYTES] {
    let message = [&[1], label.as_bytes(), &[0], context, &128_u16.to_be_bytes()].concat();
    mac(key, &message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        super::super::keys::from_hex(hex).unwrap()
    }

    fn key(hex: &str) -> [u8; 16] {
        bytes(hex).try_into().unwrap()
    }

    #[test]
    fn check_values_are_those_of_rfc_4493() {
        let k = key("2b7e151628aed2a6abf7158809cf4f3c");
        let m = bytes(
            "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e5130c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710",
        );
        for (length, wanted) in [
            (0, "bb1d6929e95937287fa37d129b756746"),
            (16, "070a16b46b4d4144f79bdd9dd04a287c"),
            (40, "dfa66747de9ae63030ca32611497c827"),
            (64, "51f0bebf7e3b9d92fc49741779363cfe"),
        ] {
            assert_eq!(mac(&k, &m[..length]), key(wanted));
            assert!(is_right(&k, &m[..length], &bytes(wanted)));
            assert!(!is_right(&k, &m[..length], &[0; 16]));
        }
    }

    /// NIST's CAVP file `KDFCTR_gen`, CMAC_AES128, counter of 8 bits before the fixed data, length 128, first case.
    #[test]
    fn one_iteration_is_that_of_nist_sp_800_108() {
        let fixed = "c16e6e02c5a3dcc8d78b9ac1306877761310455b4e41469951d9e6c2245a064b33fd8c3b01203a7824485bf0a64060c4648b707d2607935699316ea5";
        let input = [&[1][..], &bytes(fixed)].concat();
        let wanted = "8be8f0869b3c0ba97b71863d1b9f7813";
        assert_eq!(mac(&key("dff1e50ac0b69dc40f1051d46c2b069c"), &input), key(wanted));
    }

    #[test]
    fn every_part_makes_another_key() {
        let given = Association { cak: [7; 16], ckn: b"a--b".to_vec() };
        let sak = |given: &Association, sci, id| given.sak(Sci(sci), &id).secret;
        let first = sak(&given, [1; 8], [1; 16]);
        assert_eq!(first, derive(&[7; 16], "IEEE8021 SAK", &[&b"a--b"[..], &[1; 24]].concat()));
        let other = Association { ckn: b"a--c".to_vec(), ..given.clone() };
        for differs in [
            sak(&given, [2; 8], [1; 16]),
            sak(&given, [1; 8], [2; 16]),
            sak(&other, [1; 8], [1; 16]),
            given.ick(),
        ] {
            assert_ne!(first, differs);
        }
    }
}
