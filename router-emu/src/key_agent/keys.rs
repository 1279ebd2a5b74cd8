//! The file with the keys of a router's circuits, which only its owner can read.

use std::collections::BTreeMap;
use std::path::Path;

use rtnl::macsec::KEY_BYTES;
use serde::{Deserialize, Serialize};

use super::kdf::Association;

/// What the file holds: by interface, the circuit's key.
pub type Keys = BTreeMap<String, Given>;

/// A circuit's key as it stands in the file.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Given {
    /// Its name, the same at both ends: 1 to 32 bytes of text.
    pub ckn: String,
    /// The key: 32 hexadecimal digits.
    pub cak: String,
}

impl Given {
    /// As it is used.
    ///
    /// # Errors
    /// A name or key that is none.
    pub fn read(&self) -> anyhow::Result<Association> {
        let cak = from_hex(&self.cak).and_then(|bytes| <[u8; KEY_BYTES]>::try_from(bytes).ok());
        let cak =
            cak.ok_or_else(|| anyhow::anyhow!("the key `{}` is not 32 hexadecimal digits", self.ckn))?;
        anyhow::ensure!((1..=32).contains(&self.ckn.len()), "a key's name has 1 to 32 bytes");
        Ok(Association { cak, ckn: self.ckn.clone().into_bytes() })
    }
}

/// Reads the file.
///
/// # Errors
/// It cannot be read or understood.
pub fn load(path: &Path) -> anyhow::Result<Keys> {
    let text =
        std::fs::read(path).map_err(|e| anyhow::anyhow!("cannot read the keys {}: {e}", path.display()))?;
    // what is wrong with a file of secrets is said without them
    serde_json::from_slice(&text)
        .map_err(|e| anyhow::anyhow!("{}:{}:{}: not a file of keys", path.display(), e.line(), e.column()))
}

/// Bytes as hexadecimal digits.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The reverse of [`to_hex`]; nothing if the text is something else.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let digits: Option<Vec<u32>> = text.as_bytes().iter().map(digit).collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2))?;
    digits.chunks_exact(2).map(|pair| u8::try_from(pair[0] << 4 | pair[1]).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_32_digits_with_a_name() {
        let given = |ckn: &str, cak: &str| Given { ckn: ckn.to_owned(), cak: cak.to_owned() };
        let good = given("a", "000102030405060708090A0b0c0d0e0f").read().unwrap();
        assert_eq!((good.cak[10], good.ckn), (10, b"a".to_vec()));
        assert_eq!(to_hex(&good.cak), "000102030405060708090a0b0c0d0e0f");
        for bad in
            [given("a", "0001"), given("", &"0".repeat(32)), given("a", &"x".repeat(32)), given("a", "0")]
        {
            let error = bad.read().err().unwrap().to_string();
            assert!(!error.contains(&bad.cak) || bad.cak.len() < 8, "{error}");
        }
    }
}
