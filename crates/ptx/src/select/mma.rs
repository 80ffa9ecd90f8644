//! Warp-level MMAs (`mma.sync`) on fragments in registers. Fragments that are still in shared
//! memory are loaded (`ldmatrix`) step by step along k, each while the step before is multiplied.

use super::pipeline::KnownPlaces;
use super::sync::Smem;
use super::{Repr, Select};
use crate::caps::Feature;
use crate::inst::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tessera_diag::Diagnostics;
use tessera_ir::{OpId, Value};
use tessera_layout::{In, Layout, Shared};
use tessera_numerics::DType;
use tessera_staged::StagedOp;
use tessera_tile::TileOp;

/// The type name of a dtype in MMA instructions.
#[deny(clippy::wildcard_enum_match_arm)]
pub fn matrix_type(dtype: DType) -> Option<Ty> {
    use DType::*;
    Some(match dtype {
        F16 => Ty::F16,
        BF16 => Ty::BF16,
        Tf32 => Ty::Tf32,
        F64 => Ty::F64,
        F32 => Ty::F32,
        I8 => Ty::S8,
        U8 => Ty::U8,
        I32 => Ty::S32,
        Fp8E4M3 => Ty::E4M3,
        Fp8E5M2 => Ty::E5M2,
        Bool | I4 | I16 | I64 | U16 | U32 | U64 | Fp6E3M2 | Fp6E2M3 | Fp4E2M1 | E8M0 => {
            return None;
        }
    })
}

/// How `ldmatrix` and `stmatrix` address a tile.
#[derive(Clone, Debug)]
pub struct MatrixForm {
    /// Transposed (`.trans`).
    pub trans: bool,
    /// The dim along which rows of 16 bytes follow each other.
    slow: usize,
    /// Elements of a word.
    pub packed: u32,
}

/// An operand of an MMA, in atoms.
pub struct Operand {
    layout: Arc<Layout>,
    atoms: Atoms,
    /// Words of an atom, and elements of a word.
    words: usize,
    per_word: u32,
    from: From,
}

impl Operand {
    /// The starts of the steps along k, of a left operand.
    fn depth(&self) -> Vec<u32> {
        let all: BTreeSet<u32> = self.atoms.keys().map(|&(_, k)| k).collect();
        all.into_iter().collect()
    }
}

enum From {
    Words(Vec<Reg>),
    Memory { m: Smem, form: MatrixForm, known: KnownPlaces },
}

/// The atoms of a fragment: position to first register.
type Atoms = BTreeMap<(u32, u32), u32>;

/// The atoms of a layout by row and column: `each` registers per atom.
fn atoms(layout: &Layout, each: u32) -> Atoms {
    (0..layout.regs())
        .step_by(each as usize)
        .map(|r| {
            let at = layout.reg_part(r);
            ((at[0], at[1]), r)
        })
        .collect()
}

impl Select<'_> {
    /// The registers of an operand as MMA instructions take them.
    pub fn operand_words(&mut self, v: Value) -> Vec<Reg> {
        let dtype = self.dtype(v);
        if let Repr::Packed(words) = self.repr(v) {
            return words.clone();
        }
        let regs = self.regs(v);
        match dtype {
            DType::F64 => regs,
            // TMA has rounded it.
            DType::Tf32 if self.has_roles() && self.is_from_pipeline(v) => regs,
            // The hardware would truncate; the dtype rounds.
            DType::Tf32 => regs
                .into_iter()
                .map(|r| {
                    let d = self.asm.reg(Class::B32);
                    let (a, round) = (r.into(), Some(Round::Rna));
                    self.asm.emit(Inst::Cvt {
                        d,
                        to: Ty::Tf32,
                        a,
                        b: None,
                        from: Ty::F32,
                        round,
                        ftz: false,
                        sat: false,
                    });
                    d
                })
                .collect(),
            _ => {
                let each = (32 / dtype.bits().max(8)) as usize;
                regs.chunks(each).map(|c| self.scalars().encode_packed(dtype, c)).collect()
            }
        }
    }

    /// Whether a tile is loaded from a stage of a pipeline.
    fn is_from_pipeline(&self, v: Value) -> bool {
        let func = self.func;
        let load = func.def(v).filter(|op| op.code == StagedOp::FragLoad);
        let mut from = load.and_then(|op| func.def(op.operands[0]));
        while let Some(op) = from.filter(|op| op.code == StagedOp::SmemView) {
            from = func.def(op.operands[0]);
        }
        from.is_some_and(|op| op.code == StagedOp::Field)
    }

    pub fn mma(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        let [a, b, acc] = [0, 1, 2].map(|i| op.operands[i]);
        let types = [a, b, acc].map(|v| matrix_type(self.dtype(v)));
        let [Some(ta), Some(tb), Some(tc)] = types else {
            return self.unsupported(id, "tensor cores do not take these dtypes");
        };
        let is_f64 = ta == Ty::F64;
        if is_f64 && self.mma_tall(id) {
            return Ok(());
        }
        let (m, n) = if is_f64 { (8, 8) } else { (16, 8) };
        let k = if is_f64 { 4 } else { 256 / ta.bits() };
        let fits = |row: &&MmaRow, k: u32| {
            (row.m, row.n, row.k, row.a, row.b, row.c) == (m, n, k, ta, tb, tc)
        };
        let rows = &self.caps.mma_rows;
        let whole = rows.iter().find(|r| fits(r, k)).copied();
        // An MMA of depth k is two of half the depth: their fragments are its halves.
        let half = rows.iter().find(|r| fits(r, k / 2)).copied();
        let (Some(row), parts) = (if whole.is_some() { (whole, 1) } else { (half, 2) }) else {
            return self.unsupported(id, "tensor cores of this target do not take these dtypes");
        };
        let lc = self.layout(acc);
        // Elements per thread of each atom.
        let ec = m * n / 32;
        let mut of_a = self.operand(a, true);
        let mut of_b = self.operand(b, false);
        let in_c = atoms(&lc, ec);
        let mut sums = self.regs(acc);
        let depth = of_a.depth();
        let (rows, cols): (BTreeSet<u32>, BTreeSet<u32>) = in_c.keys().copied().unzip();
        let rotation = self.rotation_of(id);
        let steps = (depth.len() - usize::from(rotation.is_some())).max(1);
        let share = self.held_copies().div_ceil(steps);
        let mut next = match &rotation {
            Some(rotation) => Some(rotation.first.clone()),
            None => self.step_fragments(acc, &mut of_a, &mut of_b, 0),
        };
        for step in 0..depth.len() {
            let Some([fa, fb]) = next else {
                return self.unsupported(id, "the operands of an MMA do not fit its accumulator");
            };
            // The operands of the next step are in flight while this one is multiplied.
            next = match &rotation {
                _ if step + 1 < depth.len() => {
                    self.step_fragments(acc, &mut of_a, &mut of_b, step + 1)
                }
                Some(rotation) => Some(self.rotate(rotation)),
                None => None,
            };
            self.issue_copies(share);
            for (i, (row_at, a)) in rows.iter().zip(&fa).enumerate() {
                let forth: Vec<_> = cols.iter().zip(&fb).collect();
                let back = forth.iter().rev();
                // Serpentine order: each pair of neighbours shares an operand.
                let order: Vec<_> =
                    if i % 2 == 0 { forth.iter().collect() } else { back.collect() };
                for (col_at, b) in order {
                    let Some(&first) = in_c.get(&(*row_at, **col_at)) else { continue };
                    let first = first as usize;
                    for part in 0..parts {
                        let (na, nb) = (a.len() / parts, b.len() / parts);
                        let c = sums[first..][..ec as usize].to_vec();
                        let d: Vec<Reg> = c.iter().map(|r| self.asm.reg(r.class)).collect();
                        self.asm.emit(Inst::Mma {
                            row,
                            d: d.clone(),
                            a: a[part * na..][..na].to_vec(),
                            b: b[part * nb..][..nb].to_vec(),
                            c,
                        });
                        sums[first..][..ec as usize].copy_from_slice(&d);
                    }
                }
            }
        }
        if let (Some(rotation), Some(next)) = (rotation, next) {
            for (to, from) in rotation.first.iter().zip(&next) {
                self.move_all(&to.concat(), &from.concat());
            }
        }
        self.set(op.result(), Repr::Tile(sums));
        Ok(())
    }

    /// An MMA of f64 by the instructions of 16 rows and up to 16 k, where the target has them: two
    /// rows of small atoms, and up to four along k, form one large atom.
    fn mma_tall(&mut self, id: OpId) -> bool {
        let op = &self.func.ops[id];
        let [a, b, acc] = [0, 1, 2].map(|i| op.operands[i]);
        let [in_a, in_b] = [a, b].map(|v| atoms(&self.layout(v), 1));
        let in_c = atoms(&self.layout(acc), 2);
        let depth: BTreeSet<u32> = in_a.keys().map(|&(_, k)| k).collect();
        let depth: Vec<u32> = depth.into_iter().collect();
        let paired = in_c.keys().all(|&(row, col)| in_c.contains_key(&(row ^ 8, col)));
        let fits = |row: &&MmaRow| {
            (row.m, row.a) == (16, Ty::F64) && depth.len().is_multiple_of(row.k as usize / 4)
        };
        let best = self.caps.mma_rows.iter().filter(fits).max_by_key(|row| row.k).copied();
        let Some(row) = best.filter(|_| paired) else { return false };
        let (wa, wb) = (self.regs(a), self.regs(b));
        let mut sums = self.regs(acc);
        let share = self.held_copies().div_ceil(depth.len().max(1));
        for ks in depth.chunks(row.k as usize / 4) {
            self.issue_copies(share * ks.len());
            for (&(top, col), &first) in in_c.iter().filter(|((row, _), _)| row & 8 == 0) {
                let places = [first as usize, in_c[&(top ^ 8, col)] as usize];
                let c: Vec<Reg> = places.iter().flat_map(|&p| [sums[p], sums[p + 1]]).collect();
                let d: Vec<Reg> = c.iter().map(|r| self.asm.reg(r.class)).collect();
                let of_a = ks.iter().flat_map(|&k| [in_a[&(top, k)], in_a[&(top ^ 8, k)]]);
                let a = of_a.map(|r| wa[r as usize]).collect();
                let b = ks.iter().map(|&k| wb[in_b[&(k, col)] as usize]).collect();
                self.asm.emit(Inst::Mma { row, d: d.clone(), a, b, c });
                for (place, new) in places.iter().zip(d.chunks(2)) {
                    sums[*place..place + 2].copy_from_slice(new);
                }
            }
        }
        self.set(op.result(), Repr::Tile(sums));
        true
    }

    /// An operand of an MMA.
    fn operand(&mut self, v: Value, left: bool) -> Operand {
        match self.repr(v).clone() {
            Repr::Lazy(m) => self.operand_in(v, left, Some(m)),
            _ => self.operand_in(v, left, None),
        }
    }

    /// An operand in shared memory.
    pub fn operand_in(&mut self, v: Value, left: bool, m: Option<Smem>) -> Operand {
        let layout = self.layout(v);
        let bits = matrix_type(self.dtype(v)).map_or(32, Ty::bits);
        // Elements per thread of an atom, and of a word.
        let (each, per_word) = match bits {
            64 => (1, 1),
            bits => (if left { 128 } else { 64 } / bits, 32 / bits),
        };
        let atoms = atoms(&layout, each);
        let words = (each / per_word) as usize;
        let from = m.and_then(|m| {
            let form = self.matrix_form(&m, &layout)?;
            Some(From::Memory { m, form, known: BTreeMap::new() })
        });
        let from = from.unwrap_or_else(|| From::Words(self.operand_words(v)));
        Operand { layout, atoms, words, per_word, from }
    }

    /// The fragments of both operands for one step along k.
    pub fn step_fragments(
        &mut self,
        acc: Value,
        of_a: &mut Operand,
        of_b: &mut Operand,
        step: usize,
    ) -> Option<[Vec<Vec<Reg>>; 2]> {
        let k = *of_a.depth().get(step)?;
        let lc = self.layout(acc);
        let each = if self.dtype(acc).bytes() == 8 { 2 } else { 4 };
        let (rows, cols): (BTreeSet<u32>, BTreeSet<u32>) = atoms(&lc, each).into_keys().unzip();
        let a = self.fragments(of_a, rows.iter().map(|&r| (r, k)).collect())?;
        let b = self.fragments(of_b, cols.iter().map(|&c| (k, c)).collect())?;
        Some([a, b])
    }

    /// The words of some atoms.
    fn fragments(&mut self, of: &mut Operand, at: Vec<(u32, u32)>) -> Option<Vec<Vec<Reg>>> {
        let firsts: Option<Vec<u32>> =
            at.iter().map(|at| of.atoms.get(at).map(|r| r / of.per_word)).collect();
        let firsts = firsts?;
        let each = of.words;
        match &mut of.from {
            From::Words(words) => {
                Some(firsts.iter().map(|&w| words[w as usize..][..each].to_vec()).collect())
            }
            From::Memory { m, form, known } => {
                let all: Vec<u32> = firsts.iter().flat_map(|&w| w..w + each as u32).collect();
                let words = self.matrix_words(m, &of.layout, form, &all, known);
                Some(words.chunks(each).map(<[Reg]>::to_vec).collect())
            }
        }
    }

    /// Whether a tile is read only by MMAs before its memory may change: then each step of an MMA
    /// loads its own fragments.
    pub fn is_lazy(&mut self, id: OpId) -> bool {
        let func = self.func;
        let op = &func.ops[id];
        let v = op.result();
        let m = self.smem(op.operands[0]);
        let layout = self.layout(v);
        if self.matrix_form(&m, &layout).is_none() {
            return false;
        }
        let mut left = func.walk().iter().filter(|&&o| func.ops[o].operands.contains(&v)).count();
        let ops = &func.blocks[op.block].ops;
        let after = ops.iter().skip_while(|&&o| o != id).skip(1);
        for &user in after {
            if left == 0 {
                break;
            }
            let user = &func.ops[user];
            let ends =
                matches!(user.code, StagedOp::Release | StagedOp::Drain | StagedOp::FragStore);
            if ends || !user.regions.is_empty() {
                return false;
            }
            if user.operands.contains(&v) {
                let mma = user.code == StagedOp::Tile(TileOp::Mma) && user.operands[2] != v;
                if !mma {
                    return false;
                }
                left -= 1;
            }
        }
        left == 0
    }

    /// How `ldmatrix` addresses a tile in shared memory, where its layout is that of an MMA
    /// operand: eight rows of 16 bytes at a time, transposed where the memory is.
    pub fn matrix_form(&self, m: &Smem, layout: &Layout) -> Option<MatrixForm> {
        self.matrix_form_of(&m.layout, m.dtype, layout)
    }

    /// Whether `ldmatrix` can read a tile of this layout from memory of this form.
    pub fn takes_matrix(&self, shared: &Shared, dtype: DType, layout: &Layout) -> bool {
        self.matrix_form_of(shared, dtype, layout).is_some()
    }

    fn matrix_form_of(&self, shared: &Shared, dtype: DType, layout: &Layout) -> Option<MatrixForm> {
        let bytes = dtype.bytes() as u32;
        if bytes > 2 || layout.rank() != 2 || layout.has_padding() || layout.ctas() > 1 {
            return None;
        }
        if !Feature::Ldmatrix.on().has(self.caps.target) {
            return None;
        }
        let packed = 4 / bytes;
        let unit = |d: usize, n: u32| {
            let mut v = vec![0; 2];
            v[d] = n;
            v
        };
        let (lanes, regs) = (layout.bases(In::Lane), layout.bases(In::Reg));
        // Words are along one dim, the eight rows along the other.
        let pair = (0..2).find(|&p| {
            lanes[0] == unit(p, packed)
                && lanes[1] == unit(p, 2 * packed)
                && (0..3).all(|i| lanes[2 + i] == unit(1 - p, 1 << i))
                && (0..packed.ilog2()).all(|i| regs.get(i as usize) == Some(&unit(p, 1 << i)))
        })?;
        let fast = *shared.order.first()?;
        let trans = fast != pair;
        let (strides, panel) = shared.strides();
        let apart = strides.get(1).copied().unwrap_or(8) * bytes;
        let whole = |n: u32| n.is_multiple_of(16);
        let aligned = whole(apart)
            && (shared.panel.is_none() || whole(panel * bytes))
            && shared.swizzle.is_none_or(|s| s.base >= 4);
        // Only 16-bit elements can be transposed.
        (aligned && (!trans || bytes == 2)).then_some(MatrixForm { trans, slow: 1 - fast, packed })
    }

    /// Loads a tile from shared memory by `ldmatrix`, where possible.
    pub fn matrix_fragments(&mut self, m: &Smem, layout: &Arc<Layout>) -> Option<Vec<Reg>> {
        let form = self.matrix_form(m, layout)?;
        let all: Vec<u32> = (0..layout.regs() / form.packed).collect();
        Some(self.matrix_words(m, layout, &form, &all, &mut BTreeMap::new()))
    }

    /// Some words of a tile.
    fn matrix_words(
        &mut self,
        m: &Smem,
        layout: &Layout,
        form: &MatrixForm,
        words: &[u32],
        known: &mut KnownPlaces,
    ) -> Vec<Reg> {
        let mut out = Vec::with_capacity(words.len());
        for (addr, n) in self.matrix_runs(m, layout, form, words, known) {
            let d: Vec<Reg> = (0..n).map(|_| self.asm.reg(Class::B32)).collect();
            self.asm.emit(Inst::Ldmatrix { d: d.clone(), trans: form.trans, addr });
            out.extend(d);
        }
        out
    }

    /// The accesses that move some words of a tile, in order: the address of each lane's row of 16
    /// bytes, and the number of words of one access, as many as the layout allows.
    pub fn matrix_runs(
        &mut self,
        m: &Smem,
        layout: &Layout,
        form: &MatrixForm,
        words: &[u32],
        known: &mut KnownPlaces,
    ) -> Vec<(Addr, usize)> {
        let at = |w: u32| layout.reg_part(form.packed * w);
        let rows: Vec<Vec<u32>> = (0..3)
            .map(|i| {
                let mut v = vec![0; 2];
                v[form.slow] = 1 << i;
                v
            })
            .collect();
        let warps = layout.bases(In::Warp);
        let mut out = Vec::new();
        let mut left = words;
        while let Some(&first) = left.first() {
            let lanes = |n: u32| -> Option<Vec<Vec<u32>>> {
                let group = left.get(..1 << n)?;
                let from = |i: usize| -> Option<Vec<u32>> {
                    let (a, b) = (at(group[i]), at(first));
                    a.iter().zip(&b).map(|(a, b)| a.checked_sub(*b)).collect()
                };
                let mut bases = rows.clone();
                for i in 0..n {
                    bases.push(from(1 << i)?);
                }
                let sums = group.len() < 4
                    || (0..2).all(|d| from(3).is_some_and(|f| f[d] == bases[3][d] + bases[4][d]));
                bases.resize(5, vec![0; 2]);
                bases.extend(warps.iter().cloned());
                let apart = (0..2).all(|d| {
                    bases.iter().map(|b| b[d]).sum::<u32>() == bases.iter().fold(0, |x, b| x | b[d])
                });
                (sums && apart).then_some(bases)
            };
            let (n, bases) = [2, 1, 0]
                .into_iter()
                .find_map(|n| lanes(n).map(|bases| (n, bases)))
                .unwrap_or_else(|| unreachable!("one matrix always lies so"));
            let coords: Vec<Option<Reg>> = (0..2)
                .map(|d| self.thread_sum(&bases.iter().map(|b| b[d]).collect::<Vec<_>>()))
                .collect();
            let places = known.entry(coords.clone()).or_default();
            let addr = self.place_address(&coords, m, &at(first), places);
            out.push((addr, 1 << n));
            left = &left[1 << n..];
        }
        out
    }
}
