//! An operand of an MMA by fused multiply-adds: the address of each line for each k, and how lines
//! are loaded.

use super::super::Select;
use super::super::pipeline::KnownPlaces;
use super::super::place::Coord;
use super::super::sync::Smem;
use super::{DEEP, Lines};
use crate::inst::*;
use std::ops::Range;
use std::sync::Arc;
use tessera_layout::{Layout, Shared};
use tessera_numerics::DType;

/// One operand: a line of elements along k for each of the thread's rows or columns.
pub struct Side {
    m: Smem,
    /// The dim of the memory along the accumulator; the other one is k.
    dim: usize,
    /// Where the thread's lines are along it: the thread's part and an offset, ascending.
    places: Vec<Coord>,
    /// Elements that one load takes, along k or along the accumulator.
    along_k: bool,
    vector: u32,
    moves: Moves,
}

/// How addresses change along k.
#[derive(Copy, Clone, PartialEq, Eq)]
pub enum Moves {
    /// By `each` bytes for each k, where both k are multiples of `multiple`.
    Evenly {
        each: u32,
        multiple: u32,
    },
    /// The swizzle permutes bits of k with bits of lines: within panels of `panel` k, and by a
    /// fixed number of bytes from one panel to the next.
    Exchanged {
        panel: u32,
        bytes: u32,
    },
    No,
}

/// Where chunks begin: at the memory's start, or at a k that a register holds.
pub struct At {
    m: Smem,
    /// Bytes of k that the swizzle permutes with those of lines.
    exchanged: Option<Reg>,
    known: KnownPlaces,
}

impl At {
    pub fn start(side: &Side) -> At {
        At { m: side.m.clone(), exchanged: None, known: KnownPlaces::new() }
    }
}

impl Side {
    pub fn lines(&self) -> usize {
        self.places.len()
    }

    pub fn dtype(&self) -> DType {
        self.m.dtype
    }

    /// Lines that one load takes.
    pub fn unit(&self) -> usize {
        if self.along_k { 1 } else { self.vector as usize }
    }

    /// k that one load takes.
    pub fn deep(&self) -> u32 {
        if self.along_k { self.vector } else { 1 }
    }

    /// Whether code for some k is valid for those a multiple of `step` further on.
    pub fn can_move_by(&self, step: u32) -> bool {
        match self.moves {
            Moves::Evenly { multiple, .. } => step.is_multiple_of(multiple),
            Moves::Exchanged { panel, .. } => panel.is_multiple_of(step),
            Moves::No => false,
        }
    }
}

impl Select<'_> {
    pub fn side(&mut self, m: Smem, dim: usize, offsets: &[u32], layout: &Arc<Layout>) -> Side {
        let thread = self.thread_coord(layout, dim);
        let padded = layout.has_padding();
        let last = Opnd::Int((layout.shape()[dim] - 1).into());
        let places = offsets
            .iter()
            .map(|&offset| match thread {
                // Padding is read and not used; its address must be valid.
                Some(t) if padded => {
                    let thread = self.head(|me| {
                        let own = Opnd::Int(offset.into());
                        let c = me.asm.int(Alu::Add, Ty::U32, &[t.into(), own]);
                        me.asm.int(Alu::Min, Ty::U32, &[c.into(), last])
                    });
                    Coord { thread: Some(thread), offset: 0 }
                }
                None if padded => Coord { thread, offset: offset.min(layout.shape()[dim] - 1) },
                thread => Coord { thread, offset },
            })
            .collect();
        let along_k = m.layout.order.first() != Some(&dim);
        let most = match along_k {
            true => DEEP.min(1 << m.layout.shape[1 - dim].trailing_zeros()),
            false if padded => 1,
            false => layout.run_along(dim),
        };
        let vector = widest(&m, most);
        let moves = moves(&m.layout, 1 - dim);
        Side { m, dim, places, along_k, vector, moves }
    }

    /// A chunk's starting point `k` further on than the memory's start.
    pub fn at_iteration(&mut self, side: &Side, k: Reg) -> At {
        let mut at = At::start(side);
        let times = |me: &mut Self, a: Reg, n: u32| {
            me.asm.int(Alu::MulLo, Ty::U32, &[a.into(), Opnd::Int(n.into())])
        };
        let further = match side.moves {
            Moves::Evenly { each, .. } => Some(times(self, k, each)),
            Moves::Exchanged { panel, bytes } => {
                let elem = side.m.dtype.bytes() as u32;
                let whole = panel >= side.m.layout.shape[1 - side.dim];
                let within = match whole {
                    true => k,
                    false => {
                        let low = Opnd::Int((panel - 1).into());
                        self.asm.int(Alu::And, Ty::B32, &[k.into(), low])
                    }
                };
                at.exchanged = Some(times(self, within, elem));
                (!whole).then(|| {
                    let by = Opnd::Int(panel.ilog2().into());
                    let number = self.asm.int(Alu::Shr, Ty::U32, &[k.into(), by]);
                    times(self, number, bytes)
                })
            }
            Moves::No => unreachable!("such operands are not taken in turns"),
        };
        if let Some(further) = further {
            let base = self.smem_address(&side.m);
            let own = self.asm.int(Alu::Add, Ty::U32, &[base.into(), further.into()]);
            self.know_stage([own, own]);
            at.m.moving = Some(own);
        }
        at
    }

    /// Those of `lines` that exist, for `deep` k from `k` on, as they are stored.
    pub fn side_lines(
        &mut self,
        side: &Side,
        at: &mut At,
        k: u32,
        deep: u32,
        lines: Range<usize>,
    ) -> Lines {
        let lines = lines.start..lines.end.min(side.lines());
        let mut out: Lines = lines.clone().map(|_| Vec::new()).collect();
        for kk in (k..k + deep).step_by(side.deep() as usize) {
            for line in lines.clone().step_by(side.unit()) {
                let addr = self.line_address(side, at, line, kk);
                let (space, dtype, n) = (Space::Shared, side.m.dtype, side.vector);
                let raw = self.load_run(space, dtype, addr, n, None, Cache::Usual);
                match side.along_k {
                    true => out[line - lines.start].extend(raw),
                    false => {
                        for (line, x) in out[line - lines.start..].iter_mut().zip(raw) {
                            line.push(x);
                        }
                    }
                }
            }
        }
        out
    }

    fn line_address(&mut self, side: &Side, at: &mut At, line: usize, k: u32) -> Addr {
        let place = side.places[line];
        let mut coords = vec![None; 2];
        let mut offset = vec![0; 2];
        (coords[side.dim], offset[side.dim]) = (place.thread, place.offset);
        let known = at.known.entry(coords.clone()).or_default();
        let Some(exchanged) = at.exchanged else {
            offset[1 - side.dim] = k;
            return self.place_address(&coords, &at.m, &offset, known);
        };
        // The bits of k are added after the swizzle, which they do not change.
        let shared = side.m.layout.clone();
        let own = Shared { swizzle: None, ..(*shared).clone() }.offset(&offset);
        let s = shared.swizzle.unwrap_or_else(|| unreachable!("without it bytes move evenly"));
        let low = ((1u32 << s.bits) - 1) << s.base;
        let through = own & (low | low << s.shift);
        let more = k * side.m.dtype.bytes() as u32;
        // Neither of the two has bits of the other.
        let base = match known.get(&(through | more)) {
            Some(&r) => r,
            None => {
                let thread = self.thread_place(&coords, &shared, through);
                let x = match more {
                    0 => exchanged,
                    n => {
                        let n = Opnd::Int(n.into());
                        self.asm.int(Alu::Add, Ty::U32, &[exchanged.into(), n])
                    }
                };
                let here = self.asm.int(Alu::Xor, Ty::B32, &[thread.into(), x.into()]);
                let base = self.smem_address(&at.m);
                let r = self.asm.int(Alu::Add, Ty::U32, &[base.into(), here.into()]);
                known.insert(through | more, r);
                r
            }
        };
        Addr::reg(base, i64::from(own - through + at.m.offset))
    }
}

/// How addresses change along one of the two dims of memory.
pub fn moves(shared: &Shared, k: usize) -> Moves {
    let extent = shared.shape[k];
    let to = |n: u32| {
        let mut at = vec![0; 2];
        at[k] = n;
        shared.offset(&at)
    };
    // Bits above all that a swizzle reads go through it unchanged.
    let whole = shared.swizzle.map_or(1, |s| 1u32 << (s.base + s.shift + s.bits));
    let evenly = |step: &u32| {
        let far = to(*step);
        far.is_multiple_of(whole)
            && far.is_multiple_of(*step)
            && (1..extent / step).all(|i| to(i * step) == i * far)
    };
    let all = extent.trailing_zeros();
    if let Some(multiple) = (0..all).map(|i| 1 << i).find(evenly) {
        return Moves::Evenly { each: to(multiple) / multiple, multiple };
    }
    let (strides, panel_end) = shared.strides();
    let clean = strides.iter().chain([&panel_end]).all(|s| s.is_power_of_two());
    let panel = shared.panel.unwrap_or(extent);
    match shared.swizzle {
        // All k of a panel are below the bits that the swizzle reads, and within those it changes.
        Some(s)
            if clean
                && shared.order.first() == Some(&k)
                && panel.is_power_of_two()
                && panel * shared.elem_bytes <= 1 << (s.base + s.bits)
                && s.bits <= s.shift =>
        {
            Moves::Exchanged { panel, bytes: panel_end * shared.elem_bytes }
        }
        _ => Moves::No,
    }
}

/// The widest load of contiguous elements, at most `most` of them, that is always aligned.
fn widest(m: &Smem, most: u32) -> u32 {
    let bytes = m.dtype.bytes() as u32;
    let (strides, panel) = m.layout.strides();
    let slower = strides.iter().skip(1).chain(m.layout.panel.map(|_| &panel));
    let slower: Vec<u32> = slower.map(|s| s * bytes).collect();
    let mut n = (16 / bytes).min(1 << most.ilog2());
    while n > 1 && !slower.iter().all(|s| s.is_multiple_of(n * bytes)) {
        n /= 2;
    }
    // Two narrow elements do not fill a word.
    if n * bytes < 4 { 1 } else { n }
}
