//! The bytes of one entry on disk, integers little-endian:
//!
//! | field | bytes |
//! |---|---|
//! | magic | 8 |
//! | version of this format | 4 |
//! | authentication code, under the user's key, of all that follows | 32 |
//! | checksum of all that follows | 16 |
//! | key | 16 |
//! | length of the compiler's version, then it | 4 + n |
//! | length of the line for people, then it | 4 + n |
//! | length of the payload, then it | 8 + n |
//!
//! The key and the compiler are part of what is authenticated, so that an entry cannot be put under the
//! name of another. The checksum tells a file that was cut or changed from one that another key sealed,
//! and is all there is where the owner of the file is trusted.

use std::fmt;
use std::io::{self, Read};
use tessera_support::{Hash128, StableHasher};
use tessera_trust::{Key, MAC_BYTES, Mac};

const MAGIC: [u8; 8] = *b"TESSOBJ\n";
/// Also in the path, so that builds with different formats have separate entries.
pub const FORMAT: u32 = 2;
/// Up to the checksum: what the code does not cover.
const SEAL: usize = 8 + 4 + MAC_BYTES;
/// Up to the key: what the checksum does not cover.
const LEAD: usize = SEAL + 16;
/// What a code is for. Another format is another purpose.
const PURPOSE: &str = "tessera compiled kernel 2";
/// The most that a line for people or a compiler's version may take.
const TEXT_BYTES: usize = 256;

/// Why an entry is not used.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    Foreign,
    Format(u32),
    Short,
    Checksum,
    Seal,
    OtherCompiler,
    OtherKey,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Damage::Foreign => f.write_str("it is not a compiled kernel"),
            Damage::Format(found) => write!(f, "expected format {FORMAT}, got {found}"),
            Damage::Short => f.write_str("it is cut short"),
            Damage::Checksum => f.write_str("its checksum does not fit"),
            Damage::Seal => f.write_str("it was not written with the user's key"),
            Damage::OtherCompiler => f.write_str("another version of the compiler wrote it"),
            Damage::OtherKey => f.write_str("it belongs under another name"),
        }
    }
}

pub fn encode(secret: &Key, compiler: &str, key: Hash128, about: &str, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(LEAD + 16 + 16 + 2 * TEXT_BYTES + payload.len());
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&FORMAT.to_le_bytes());
    out.extend_from_slice(&[0; MAC_BYTES + 16]);
    out.extend_from_slice(&key.0);
    for text in [one_line(compiler), one_line(about)] {
        out.extend_from_slice(&(text.len() as u32).to_le_bytes());
        out.extend_from_slice(text.as_bytes());
    }
    out.extend_from_slice(&(payload.len() as u64).to_le_bytes());
    out.extend_from_slice(payload);
    let checksum = StableHasher::of_bytes(&out[LEAD..]);
    out[SEAL..LEAD].copy_from_slice(&checksum.0);
    let mac = secret.mac(PURPOSE, &[&out[SEAL..]]);
    out[SEAL - MAC_BYTES..SEAL].copy_from_slice(&mac);
    out
}

/// The payload of a whole entry that `compiler` wrote for `key`. Without a secret the entry is one whose
/// file only a trusted owner could have written.
pub fn decode(
    bytes: &[u8],
    secret: Option<&Key>,
    compiler: &str,
    key: Hash128,
) -> Result<Vec<u8>, Damage> {
    let mut rest = bytes;
    let head = Head::read(&mut rest)?;
    if head.checksum != StableHasher::of_bytes(&bytes[LEAD..]) {
        // A file that was cut is the likeliest reason.
        return Err(if head.payload > rest.len() as u64 {
            Damage::Short
        } else {
            Damage::Checksum
        });
    }
    if secret.is_some_and(|secret| !secret.is_mac(&head.mac, PURPOSE, &[&bytes[SEAL..]])) {
        return Err(Damage::Seal);
    }
    if head.compiler != one_line(compiler) {
        return Err(Damage::OtherCompiler);
    }
    if head.key != key {
        return Err(Damage::OtherKey);
    }
    if head.payload != rest.len() as u64 {
        return Err(Damage::Checksum);
    }
    Ok(rest.to_vec())
}

/// All but the payload.
pub struct Head {
    mac: Mac,
    checksum: Hash128,
    pub key: Hash128,
    compiler: String,
    pub about: String,
    pub payload: u64,
}

impl Head {
    /// Reads up to the payload. The texts are as harmless to print as those that were written,
    /// also where nothing was compared with the checksum.
    pub fn read(from: &mut impl Read) -> Result<Head, Damage> {
        if array(from).map_err(|_| Damage::Foreign)? != MAGIC {
            return Err(Damage::Foreign);
        }
        match u32::from_le_bytes(array(from)?) {
            FORMAT => {}
            other => return Err(Damage::Format(other)),
        }
        Ok(Head {
            mac: array(from)?,
            checksum: Hash128(array(from)?),
            key: Hash128(array(from)?),
            compiler: text(from)?,
            about: text(from)?,
            payload: u64::from_le_bytes(array(from)?),
        })
    }
}

/// A file that ends too early, or that cannot be read to where it should end, is cut short.
impl From<io::Error> for Damage {
    fn from(_: io::Error) -> Self {
        Damage::Short
    }
}

fn array<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut out = [0; N];
    from.read_exact(&mut out)?;
    Ok(out)
}

fn text(from: &mut impl Read) -> Result<String, Damage> {
    let length = u32::from_le_bytes(array(from)?) as usize;
    if length > TEXT_BYTES {
        return Err(Damage::Checksum);
    }
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes)?;
    Ok(one_line(&String::from_utf8_lossy(&bytes)))
}

/// No control characters, and no more than fits.
fn one_line(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars().map(|c| if c.is_control() { ' ' } else { c }) {
        if out.len() + c.len_utf8() > TEXT_BYTES {
            break;
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use tessera_trust::Keeper;

    const KEY: Hash128 = Hash128([7; 16]);

    /// The key of a user, in a folder that goes with the test.
    struct User(std::path::PathBuf, Keeper);

    impl User {
        fn new(name: &str) -> Self {
            let name = format!("tessera-entry-{name}-{}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            let keeper = Keeper::new(&folder);
            Self(folder, keeper)
        }

        fn key(&self) -> &Key {
            self.1.key_or_new().unwrap()
        }
    }

    impl Drop for User {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn an_entry_reads_back_only_for_its_key_its_compiler_and_its_user() {
        let (user, other) = (User::new("a"), User::new("b"));
        let bytes = encode(user.key(), "1.0", KEY, "saxpy\nfor cpu", b"code");
        let read = |secret, compiler, key| decode(&bytes, secret, compiler, key);
        for secret in [Some(user.key()), None] {
            assert_eq!(read(secret, "1.0", KEY).as_deref(), Ok(&b"code"[..]));
            assert_eq!(read(secret, "1.1", KEY), Err(Damage::OtherCompiler));
            assert_eq!(read(secret, "1.0", Hash128([8; 16])), Err(Damage::OtherKey));
        }
        assert_eq!(read(Some(other.key()), "1.0", KEY), Err(Damage::Seal));
        assert_eq!(Head::read(&mut &bytes[..]).map(|h| h.about), Ok("saxpy for cpu".to_string()));
    }

    #[test]
    fn every_changed_byte_and_every_length_but_its_own_is_noticed() {
        let user = User::new("c");
        let good = encode(user.key(), "1.0", KEY, "saxpy", b"code");
        let read = |bytes: &[u8]| decode(bytes, Some(user.key()), "1.0", KEY);
        for place in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[place] ^= 1 << bit;
                assert!(read(&bad).is_err(), "byte {place}, bit {bit}");
            }
            assert!(read(&good[..place]).is_err(), "cut to {place}");
        }
        let longer = [&good[..], b"x"].concat();
        assert_eq!(read(&longer), Err(Damage::Checksum));
    }

    /// The checksum's key is public: a program that changes an entry can make its checksum right.
    #[test]
    fn a_changed_entry_with_a_right_checksum_is_noticed() {
        let user = User::new("d");
        let mut bad = encode(user.key(), "1.0", KEY, "saxpy", b"code");
        *bad.last_mut().unwrap() = b'E';
        let checksum = StableHasher::of_bytes(&bad[LEAD..]);
        bad[SEAL..LEAD].copy_from_slice(&checksum.0);
        assert_eq!(decode(&bad, Some(user.key()), "1.0", KEY), Err(Damage::Seal));
    }

    #[test]
    fn long_texts_are_cut_where_a_character_ends() {
        let user = User::new("e");
        let long = "é".repeat(300);
        let bytes = encode(user.key(), &long, KEY, &long, b"code");
        assert!(decode(&bytes, Some(user.key()), &long, KEY).is_ok());
    }
}
