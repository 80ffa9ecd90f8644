//! Names of devices: `cpu`, `cuda:0`.

use std::fmt;

/// A kind of devices. Kinds are rows of a table, so that one is a number.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceKind(u8);

struct Row {
    name: &'static str,
    /// DLPack's codes (`DLDeviceType`): the one that is given first, then those of memory that the device accesses as
    /// its own.
    dlpack: &'static [i32],
}

static ROWS: [Row; DeviceKind::COUNT] = [
    // Plain memory, and memory that is pinned for CUDA or ROCm.
    Row { name: "cpu", dlpack: &[1, 3, 11] },
    // Also managed memory.
    Row { name: "cuda", dlpack: &[2, 13] },
    Row { name: "hip", dlpack: &[10] },
    Row { name: "level_zero", dlpack: &[14] },
    // `kDLExtDev`, for devices outside DLPack's list: the one of tests.
    Row { name: "fake", dlpack: &[12] },
];

impl DeviceKind {
    pub const COUNT: usize = 5;
    pub const CPU: Self = Self(0);
    pub const CUDA: Self = Self(1);
    pub const HIP: Self = Self(2);
    pub const LEVEL_ZERO: Self = Self(3);
    pub const FAKE: Self = Self(4);

    pub fn all() -> impl Iterator<Item = Self> {
        (0..Self::COUNT as u8).map(Self)
    }

    /// The kind of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|kind| kind.name() == name)
    }

    /// The kind that a code of DLPack is.
    pub fn of_dlpack(code: i32) -> Option<Self> {
        Self::all().find(|kind| kind.row().dlpack.contains(&code))
    }

    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// DLPack's code for memory of the kind.
    pub fn dlpack(self) -> i32 {
        self.row().dlpack[0]
    }

    /// Its place in tables by kind.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    fn row(self) -> &'static Row {
        &ROWS[self.index()]
    }
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A device. The default is the host.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId {
    pub kind: DeviceKind,
    pub ordinal: u32,
}

impl DeviceId {
    /// The host is a device too, the only one of its kind.
    pub const HOST: Self = Self::new(DeviceKind::CPU, 0);

    pub const fn new(kind: DeviceKind, ordinal: u32) -> Self {
        Self { kind, ordinal }
    }

    pub const fn is_host(self) -> bool {
        self.kind.0 == DeviceKind::CPU.0
    }

    /// The name and the number that a user wrote: `cuda:1`, or `cuda` for the first.
    pub fn split(text: &str) -> Option<(&str, u32)> {
        match text.split_once(':') {
            None => Some((text, 0)),
            Some((name, number)) => {
                let digits = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
                digits.then(|| number.parse().ok())?.map(|number| (name, number))
            }
        }
    }

    /// As one word, for atomics and hashes.
    pub const fn bits(self) -> u64 {
        (self.kind.0 as u64) << 32 | self.ordinal as u64
    }

    /// The device of such a word; the host for words that are none.
    pub const fn from_bits(bits: u64) -> Self {
        let kind = (bits >> 32) as usize;
        if kind < DeviceKind::COUNT {
            Self::new(DeviceKind(kind as u8), bits as u32)
        } else {
            Self::HOST
        }
    }
}

impl Default for DeviceId {
    fn default() -> Self {
        Self::HOST
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_host() {
            return f.write_str(self.kind.name());
        }
        write!(f, "{}:{}", self.kind, self.ordinal)
    }
}

impl fmt::Debug for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_printed_and_packed_whole() {
        let second = DeviceId::new(DeviceKind::CUDA, 1);
        assert_eq!(
            (second.to_string(), DeviceId::HOST.to_string()),
            ("cuda:1".into(), "cpu".into())
        );
        for kind in DeviceKind::all() {
            let id = DeviceId::new(kind, u32::MAX);
            assert_eq!(DeviceId::from_bits(id.bits()), id);
            assert_eq!(DeviceKind::named(kind.name()), Some(kind));
            assert_eq!(DeviceKind::of_dlpack(kind.dlpack()), Some(kind));
        }
        assert_eq!(DeviceId::from_bits(u64::MAX), DeviceId::HOST);
    }

    #[test]
    fn a_name_has_a_number_or_none() {
        assert_eq!(DeviceId::split("cuda"), Some(("cuda", 0)));
        assert_eq!(DeviceId::split("cuda:12"), Some(("cuda", 12)));
        for text in ["cuda:", "cuda:-1", "cuda:1:2", "cuda:x", "cuda:99999999999", "cuda:+1"] {
            assert_eq!(DeviceId::split(text), None, "{text}");
        }
    }

    #[test]
    fn no_code_is_of_two_kinds() {
        let mut codes: Vec<i32> = ROWS.iter().flat_map(|row| row.dlpack.iter().copied()).collect();
        let count = codes.len();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), count);
    }
}
