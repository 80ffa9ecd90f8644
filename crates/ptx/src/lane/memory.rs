//! Memory of lane kernels: the caller's arrays and the group's shared buffers, by positions along
//! axes.

use super::Lanes;
use super::value::Steps;
use crate::code::ArrayClass;
use crate::inst::*;
use tessera_ir::{Dim, Type};
use tessera_numerics::DType;

/// A number that is constant in a launch.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Size {
    Known(i64),
    /// An argument word.
    Word(usize),
}

#[derive(Clone, Debug)]
pub struct Memory {
    pub space: Space,
    pub dtype: DType,
    /// The argument word of the address, or the offset in shared memory.
    pub base: usize,
    pub extents: Vec<Size>,
    /// In bytes.
    pub strides: Vec<Size>,
    /// The alignment of the address and of all strides but that of the contiguous axis.
    pub align: u32,
    pub cache: Cache,
}

/// The positions of a thread's lanes along an axis.
#[derive(Clone, Debug)]
pub enum Pos {
    One(Reg),
    Steps(Steps),
    Each(Vec<Reg>),
}

impl Memory {
    pub fn array(ty: &Type, word: usize, class: ArrayClass) -> Self {
        let Type::View { dims, elem, privilege } = ty else {
            unreachable!("parameters are scalars and arrays")
        };
        let rank = dims.len();
        let extent = |(axis, dim): (usize, &Dim)| match dim.as_static() {
            Some(n) => Size::Known(n),
            None => Size::Word(word + 1 + axis),
        };
        let stride = |axis: usize| match class.is_contiguous(axis) {
            true => Size::Known(elem.storage.bytes() as i64),
            false => Size::Word(word + 1 + rank + axis),
        };
        Self {
            space: Space::Global,
            dtype: elem.storage,
            base: word,
            extents: dims.iter().enumerate().map(extent).collect(),
            strides: (0..rank).map(stride).collect(),
            align: class.align,
            cache: if privilege.writes() { Cache::Usual } else { Cache::ReadOnly },
        }
    }

    pub fn buffer(ty: &Type, offset: usize) -> Self {
        let (dtype, shape) = (ty.dtype(), ty.static_shape().unwrap_or_default());
        let mut stride = dtype.bytes() as i64;
        let mut strides = Vec::new();
        for &n in shape.iter().rev() {
            strides.insert(0, Size::Known(stride));
            stride *= n;
        }
        Self {
            space: Space::Shared,
            dtype,
            base: offset,
            extents: shape.iter().map(|&n| Size::Known(n)).collect(),
            strides,
            align: 1,
            cache: Cache::Usual,
        }
    }

    pub fn bytes(&self) -> i64 {
        self.dtype.bytes() as i64
    }

    pub fn rank(&self) -> usize {
        self.extents.len()
    }
}

/// Constants that fit into an address offset.
const NEAR: i64 = 1 << 20;

impl Lanes<'_> {
    pub fn size(&mut self, size: Size) -> Opnd {
        match size {
            Size::Known(n) => Opnd::Int(n),
            Size::Word(w) => Opnd::Reg(self.word(w)),
        }
    }

    /// Type and class of addresses.
    fn address_type(space: Space) -> Ty {
        if space == Space::Shared { Ty::U32 } else { Ty::U64 }
    }

    /// `at * stride`, as wide as addresses are.
    fn scaled(&mut self, space: Space, at: Reg, stride: Size) -> Reg {
        let ty = Self::address_type(space);
        let at = match space {
            Space::Shared => self.asm.cvt(Ty::U32, Ty::U64, None, at),
            _ => at,
        };
        match stride {
            Size::Known(1) => at,
            Size::Known(n) if n > 0 && n.count_ones() == 1 => {
                let by = Opnd::Int(n.trailing_zeros().into());
                let bits = if ty == Ty::U32 { Ty::B32 } else { Ty::B64 };
                self.asm.int(Alu::Shl, bits, &[at.into(), by])
            }
            stride => {
                let stride = self.size(stride);
                self.asm.int(Alu::MulLo, ty, &[at.into(), stride])
            }
        }
    }

    fn plus(&mut self, space: Space, a: Reg, b: impl Into<Opnd>) -> Reg {
        self.asm.int(Alu::Add, Self::address_type(space), &[a.into(), b.into()])
    }

    /// The address of the thread's first lane, without the parts that are irregular between lanes.
    pub fn base(&mut self, mem: &Memory, at: &[Pos]) -> Reg {
        let space = mem.space;
        let mut base = match space {
            Space::Shared => {
                let start = self.shared_base();
                match mem.base {
                    0 => start,
                    offset => self.plus(space, start, Opnd::Int(offset as i64)),
                }
            }
            _ => self.word(mem.base),
        };
        for (pos, &stride) in at.iter().zip(&mem.strides) {
            if let Pos::One(p) | Pos::Steps(Steps { first: p, .. }) = pos {
                let term = self.scaled(space, *p, stride);
                base = self.plus(space, base, term);
            }
        }
        base
    }

    /// The address of lane `k` of the thread.
    pub fn lane_address(&mut self, mem: &Memory, at: &[Pos], base: Reg, k: usize) -> Addr {
        let space = mem.space;
        let (mut base, mut offset) = (base, 0i64);
        for (pos, &stride) in at.iter().zip(&mem.strides) {
            match (pos, stride) {
                (Pos::One(_), _) => {}
                (Pos::Steps(s), Size::Known(n)) => {
                    offset = offset.wrapping_add(s.step.wrapping_mul(n).wrapping_mul(k as i64));
                }
                (Pos::Steps(s), stride) if k > 0 => {
                    let stride = self.size(stride);
                    let by = Opnd::Int(s.step.wrapping_mul(k as i64));
                    let far = self.asm.int(Alu::MulLo, Ty::S64, &[stride, by]);
                    base = self.plus(space, base, far);
                }
                (Pos::Steps(_), _) => {}
                (Pos::Each(regs), stride) => {
                    let term = self.scaled(space, regs[k], stride);
                    base = self.plus(space, base, term);
                }
            }
        }
        if !(-NEAR..NEAR).contains(&offset) {
            base = self.plus(space, base, Opnd::Int(offset));
            offset = 0;
        }
        Addr::reg(base, offset)
    }

    /// Whether `0 <= at < extent`. A negative position is large as an unsigned number.
    pub fn is_inside(&mut self, at: Reg, extent: Size) -> Reg {
        let extent = self.size(extent);
        self.asm.setp(Cmp::Lt, Ty::U64, at, extent)
    }

    /// Loads `n` contiguous elements; codes are zero where the condition does not hold.
    pub fn load_run(&mut self, mem: &Memory, addr: Addr, n: usize, when: Option<Reg>) -> Vec<Reg> {
        let bytes = mem.dtype.bytes();
        let (ty, words) = word_of(bytes, n);
        let d: Vec<Reg> = (0..words).map(|_| self.asm.reg(ty.class())).collect();
        if when.is_some() {
            let bits = match ty.class() {
                Class::B16 => Ty::B16,
                _ => ty,
            };
            d.iter().for_each(|&r| self.asm.mov_to(bits, r, Opnd::Int(0)));
        }
        let (space, cache, sem, scope) = (mem.space, mem.cache, Sem::Weak, Scope::Gpu);
        let inst = Inst::Ld { space, ty, d: d.clone(), addr, cache, sem, scope };
        self.asm.maybe(when, |asm| asm.emit(inst));
        let mut scalars = self.scalars();
        if bytes * n < 4 || bytes >= 4 {
            return d.into_iter().map(|r| scalars.decode(mem.dtype, r)).collect();
        }
        d.into_iter().flat_map(|r| scalars.decode_packed(mem.dtype, r)).collect()
    }

    /// Stores contiguous elements.
    pub fn store_run(&mut self, mem: &Memory, addr: Addr, xs: &[Reg], when: Option<Reg>) {
        let (bytes, dtype) = (mem.dtype.bytes(), mem.dtype);
        let (ty, words) = word_of(bytes, xs.len());
        let mut scalars = self.scalars();
        let codes: Vec<Opnd> = if bytes * xs.len() >= 4 && bytes < 4 {
            let each = xs.len() / words;
            xs.chunks(each).map(|c| scalars.encode_packed(dtype, c).into()).collect()
        } else {
            xs.iter().map(|&x| scalars.encode(dtype, x).into()).collect()
        };
        let space = mem.space;
        self.asm.maybe(when, |asm| asm.st(space, ty, &codes, addr, Cache::Usual));
    }
}

/// How `n` contiguous elements of `bytes` bytes are moved: the type and the count.
fn word_of(bytes: usize, n: usize) -> (Ty, usize) {
    match (bytes, bytes * n) {
        (8, _) => (Ty::B64, n),
        (_, total) if total >= 4 => (Ty::B32, total / 4),
        (2, _) => (Ty::B16, n),
        (_, _) => (Ty::U8, n),
    }
}
