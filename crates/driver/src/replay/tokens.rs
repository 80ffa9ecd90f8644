//! What a call looks like, as a list of words.
//!
//! Each value begins with a word that holds its [`Mark`] and how much follows, so that two lists are
//! equal only where the values are. An identity is an address: a [`Key`] that is kept holds what the
//! addresses stand for, so that none of them comes to mean something else.

use crate::args::Number;
use crate::backends::Backends;
use crate::knobs;
use std::any::Any;
use std::cell::Cell;
use std::sync::Arc;
use tessera_frontend::FuncSource;
use tessera_numerics::{DType, NumType, Profile};
use tessera_target::device::DeviceId;

/// Code may be made for addresses that are multiples of this.
pub(crate) const ALIGNMENT: u64 = 16;

/// What a word begins.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mark {
    None,
    Bool,
    Int,
    Float,
    Text,
    DType,
    /// A function of the language, by its name there.
    Builtin,
    Array,
    Tuple,
    List,
    Dict,
    /// An object that is compared by identity.
    Object,
    /// An array that begins where an earlier one does.
    Alias,
    /// Numbers whose values are a call's own.
    FreeBool,
    FreeInt,
    FreeFloat,
    FreeNumber,
}

/// Which of the numbers among the values are a call's own; the others are part of what it means.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Numbers {
    #[default]
    Fixed,
    /// Floats are free: an integer may decide how large the grid is.
    Floats,
    Free,
}

impl Numbers {
    /// Whether a number is free.
    pub(crate) fn frees(self, value: &Number) -> bool {
        match self {
            Numbers::Fixed => false,
            Numbers::Floats => matches!(value, Number::Float(_)),
            Numbers::Free => true,
        }
    }
}

/// A number that is a call's own.
#[derive(Clone, Debug, PartialEq)]
pub struct Free {
    pub value: Number,
    pub dtype: Option<DType>,
    /// How many arrays came before it.
    pub after: usize,
}

/// Calls with arrays of more axes take the full path.
pub const MAX_RANK: usize = 8;

/// An array as its library describes it.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct View {
    /// Whose class it is of.
    pub class: u8,
    pub address: u64,
    pub device: DeviceId,
    pub dtype: DType,
    pub rank: usize,
    pub dims: [i64; MAX_RANK],
    /// In bytes.
    pub strides: [i64; MAX_RANK],
    pub writable: bool,
}

impl View {
    /// The addresses of its first byte in memory and of the one after the last.
    pub fn span(&self) -> (u64, u64) {
        let (dims, strides) = (&self.dims[..self.rank], &self.strides[..self.rank]);
        let (low, high) = reach(dims, strides, self.dtype);
        (self.address.wrapping_add_signed(low), self.address.wrapping_add_signed(high))
    }
}

/// Bytes from an array's address to the first that is used, and to the one after the last.
pub(crate) fn reach(dims: &[i64], strides: &[i64], dtype: DType) -> (i64, i64) {
    let (mut low, mut high) = (0, dtype.bytes() as i64);
    for (&n, &stride) in dims.iter().zip(strides) {
        let reach = (n - 1).max(0).saturating_mul(stride);
        if reach < 0 { low += reach } else { high += reach }
    }
    (low, high)
}

/// The tokens of one call, while they are collected.
pub struct Tokens {
    words: Vec<u64>,
    /// Of the arrays, in order.
    addresses: Vec<u64>,
    free: Vec<Free>,
    kept: Vec<Held>,
}

/// Words of more memory than this are given back.
const MOST_SPARE: usize = 4096;

thread_local! {
    /// The memory of the words and addresses of an earlier call.
    static SPARE: Cell<[Vec<u64>; 2]> = const { Cell::new([Vec::new(), Vec::new()]) };
}

impl Drop for Tokens {
    fn drop(&mut self) {
        if self.words.capacity() > MOST_SPARE {
            return;
        }
        let spare = [&mut self.words, &mut self.addresses].map(std::mem::take);
        // A thread that ends has none any more.
        let _ = SPARE.try_with(|kept| kept.set(spare));
    }
}

/// What an identity stands for.
pub type Held = Arc<dyn Any + Send + Sync>;

/// The tokens of a call that is kept, with what its identities stand for.
#[derive(Clone, Debug)]
pub struct Key {
    pub(crate) hash: u64,
    pub(crate) words: Box<[u64]>,
    _kept: Vec<Held>,
}

/// What every call rests on beside its arguments: the profile, which backends are selected, and what
/// the environment sets. `None` where every call takes the full path: in checked mode, and where a
/// variable cannot be read.
pub fn guards(backends: &Backends, profile: Profile) -> Option<[u64; 3]> {
    let profile = Profile::ALL.iter().position(|&p| p == profile)?;
    knobs::of_launches(|knobs| {
        let whole = knobs.check || knobs.garbled.is_some();
        (!whole).then(|| [profile as u64, backends.changes(), knobs.number])
    })
}

impl Tokens {
    pub fn new(guards: [u64; 3]) -> Self {
        let [mut words, mut addresses] = SPARE.take();
        words.clear();
        addresses.clear();
        words.extend(guards);
        Self { words, addresses, free: Vec::new(), kept: Vec::new() }
    }

    /// A mark with a number beside it, below 2^32.
    pub fn mark(&mut self, mark: Mark, count: usize) {
        self.words.push((count as u64) << 8 | mark as u64);
    }

    pub fn none(&mut self) {
        self.mark(Mark::None, 0);
    }

    /// `None` for an integer whose value is not known here.
    pub fn number(&mut self, value: Number, dtype: Option<DType>, numbers: Numbers) -> Option<()> {
        let (fixed, free, bits) = match &value {
            Number::Bool(v) => (Mark::Bool, Mark::FreeBool, i128::from(*v)),
            Number::Int(v) => (Mark::Int, Mark::FreeInt, *v),
            Number::Float(v) => (Mark::Float, Mark::FreeFloat, i128::from(v.to_bits())),
            Number::Huge(_) => return None,
        };
        let class = dtype.map_or(0, |dtype| 1 + dtype as usize);
        if numbers.frees(&value) {
            self.mark(if class == 0 { free } else { Mark::FreeNumber }, class);
            let after = self.addresses.len();
            self.free.push(Free { value, dtype, after });
        } else {
            self.mark(fixed, class);
            self.words.extend([bits as u64, (bits >> 64) as u64]);
        }
        Some(())
    }

    pub fn text(&mut self, mark: Mark, text: &str) {
        self.mark(mark, text.len());
        self.words.extend(text.as_bytes().chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(word)
        }));
    }

    pub fn dtype(&mut self, dtype: NumType) {
        if dtype == NumType::plain(dtype.storage) {
            self.mark(Mark::DType, dtype.storage as usize);
        } else {
            // Policies are rare, and have many fields.
            self.text(Mark::DType, &format!("{dtype:?}"));
        }
    }

    /// A function of the caller's. The same text elsewhere counts as another: to compare texts would
    /// take longer than what is saved.
    pub fn func(&mut self, func: &Arc<FuncSource>) {
        self.object(Arc::as_ptr(func) as usize, func.clone());
    }

    /// An object by its address, which holds while the key does.
    pub fn object(&mut self, address: usize, held: Held) {
        self.identity(address);
        self.kept.push(held);
    }

    /// An object by its address. What it stands for is given with the key.
    pub fn identity(&mut self, address: usize) {
        self.mark(Mark::Object, 0);
        self.words.push(address as u64);
    }

    pub fn array(&mut self, view: &View) {
        let whose = (view.class, view.device, view.dtype, view.writable);
        self.lying(whose, view.address, &view.dims[..view.rank], &view.strides[..view.rank]);
    }

    /// An array by the class that it is of, its device and dtype, whether it may be written, its address, dims and strides;
    /// of at most [`MAX_RANK`] axes.
    #[inline]
    pub fn lying(
        &mut self,
        (class, device, dtype, writable): (u8, DeviceId, DType, bool),
        address: u64,
        dims: &[i64],
        strides: &[i64],
    ) {
        let low = (address % ALIGNMENT) as usize;
        let flags = (class as usize) << 12 | (dtype as usize) << 5 | low << 1;
        self.mark(Mark::Array, dims.len() << 20 | flags | usize::from(writable));
        self.words.push(device.bits());
        self.words.extend(dims.iter().chain(strides).map(|&n| n as u64));
        self.addresses.push(address);
    }

    /// Which earlier array, if any, begins where the latest one does: views of a recording are found
    /// by address.
    pub fn alias(&mut self) {
        let Some((last, before)) = self.addresses.split_last() else { return };
        let same = before.iter().position(|at| at == last).map_or(0, |place| place + 1);
        self.mark(Mark::Alias, same);
    }

    pub fn words(&self) -> &[u64] {
        &self.words
    }

    pub fn addresses(&self) -> &[u64] {
        &self.addresses
    }

    pub fn free(&self) -> &[Free] {
        &self.free
    }

    /// The key of the call; `held` is what identities stand for.
    pub fn key(&self, held: impl IntoIterator<Item = Held>) -> Key {
        let words: Box<[u64]> = self.words.as_slice().into();
        Key { hash: hash(&words), words, _kept: self.kept.iter().cloned().chain(held).collect() }
    }
}

/// A hash of words that is good for tables of one process.
pub(crate) fn hash(words: &[u64]) -> u64 {
    let mix = |h: u64, w: &u64| (h.rotate_left(5) ^ w).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let h = words.iter().fold(words.len() as u64, mix);
    h ^ h >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(fill: impl FnOnce(&mut Tokens)) -> Key {
        let mut tokens = Tokens::new([0; 3]);
        fill(&mut tokens);
        tokens.key([])
    }

    fn float(v: f64) -> impl Fn(&mut Tokens) {
        move |t| _ = t.number(Number::Float(v), None, Numbers::Fixed)
    }

    #[test]
    fn values_that_python_calls_equal_have_tokens_of_their_own() {
        let int = |t: &mut Tokens| _ = t.number(Number::Int(1), None, Numbers::Fixed);
        let flag = |t: &mut Tokens| _ = t.number(Number::Bool(true), None, Numbers::Fixed);
        let typed = |t: &mut Tokens| _ = t.number(Number::Int(1), Some(DType::I32), Numbers::Fixed);
        let all = [of(int), of(flag), of(float(1.0)), of(typed), of(float(0.0)), of(float(-0.0))];
        for (i, a) in all.iter().enumerate() {
            for b in &all[i + 1..] {
                assert_ne!(a.words, b.words);
            }
        }
        assert_eq!(of(float(f64::NAN)).words, of(float(f64::NAN)).words);
    }

    #[test]
    fn texts_end_where_they_end() {
        let two = |a: &'static str, b: &'static str| {
            of(move |t| {
                t.text(Mark::Text, a);
                t.text(Mark::Text, b);
            })
        };
        assert_ne!(two("ab", "c").words, two("a", "bc").words);
        assert_ne!(two("a\0", "").words, two("a", "\0").words);
    }

    #[test]
    fn free_numbers_count_by_their_kind_alone() {
        let free = |v| of(move |t| _ = t.number(v, None, Numbers::Free));
        assert_eq!(free(Number::Int(1)).words, free(Number::Int(2)).words);
        assert_ne!(free(Number::Int(1)).words, free(Number::Float(1.0)).words);
        let floats = |v| of(move |t| _ = t.number(v, None, Numbers::Floats));
        assert_eq!(floats(Number::Float(1.0)).words, floats(Number::Float(2.0)).words);
        assert_ne!(floats(Number::Int(1)).words, floats(Number::Int(2)).words);
    }
}
