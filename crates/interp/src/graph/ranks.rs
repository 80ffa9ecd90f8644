//! Programs of one rank, for all ranks of a mesh: each rank is a cursor into the region of a `manual`. It runs by itself
//! to a collective, where the ranks of a group synchronise; the verifier has made sure that all of them get there.

use super::World;
use super::array::Array;
use super::eval::Frame;
use super::graph_control::{Cursor, Halt};
use super::reduce::reduce;
use super::shape::{concat, strided};
use crate::fault::{Outcome, broken, fault};
use crate::value::Data;
use std::collections::BTreeMap;
use tessera_graph::ops::collective::{Manual, MeshAxes, Split, pairs};
use tessera_graph::states::is_collective;
use tessera_graph::{GraphFunc, GraphOp};
use tessera_ir::{Attr, Op, OpId};
use tessera_numerics::{DType, ReduceOp, Scalar};

fn part(x: &Array, start: &[i64], dims: &[usize]) -> Option<Array> {
    strided(x, dims, start, &vec![1; dims.len()], None)
}

/// Block `i` of `n` along `dim`.
fn slab(x: &Array, dim: usize, i: usize, n: usize) -> Option<Array> {
    let mut dims = x.dims.clone();
    dims[dim] /= n;
    let mut start = vec![0; dims.len()];
    start[dim] = (i * dims[dim]) as i64;
    part(x, &start, &dims)
}

fn joined(all: &[&Array], dim: usize) -> Option<Array> {
    let mut dims = all.first()?.dims.clone();
    dims[dim] = all.iter().map(|x| x.dims[dim]).sum();
    concat(all, &dims, dim)
}

/// The values of a group, combined in the canonical order over the positions.
fn combined(all: &[&Array], op: ReduceOp) -> Option<Array> {
    let first = all.first()?;
    let mut dims = vec![all.len()];
    dims.extend(&first.dims);
    let mut data = (*first.data).clone();
    for x in &all[1..] {
        data = super::shape::append(data, &x.data)?;
    }
    reduce(&Array::new(dims, first.elem, data), op, &[0])
}

/// The whole of which ranks have these blocks; of copies the first counts.
fn whole(mesh: &MeshAxes, split: &Split, blocks: &[&Array]) -> Option<Array> {
    let first = blocks.first()?;
    let dims: Vec<usize> =
        first.dims.iter().zip(split).map(|(d, axes)| d * mesh.position(0, axes).1).collect();
    let mut data = Data::fill(Scalar::zero(first.dtype()), 0);
    for x in blocks {
        data = super::shape::append(data, &x.data)?;
    }
    let (each, local) = (first.len(), crate::shape::strides_of(&first.dims));
    // The rank that has each block: the lowest of those with these coordinates.
    let mut ranks: BTreeMap<Vec<usize>, usize> = BTreeMap::new();
    for rank in (0..blocks.len()).rev() {
        ranks.insert(split.iter().map(|axes| mesh.position(rank, axes).0).collect(), rank);
    }
    let mut from = Vec::new();
    super::array::positions(&dims, |p| {
        let block: Vec<usize> = p.iter().zip(&first.dims).map(|(i, d)| i / d).collect();
        let inside: usize =
            p.iter().zip(&first.dims).zip(&local).map(|((i, d), s)| i % d * s).sum();
        from.push(ranks.get(&block).map_or(super::array::NOWHERE, |r| r * each + inside));
    });
    Array::new(vec![blocks.len() * each], first.elem, data).take(&dims, &from, None)
}

impl<'a> World<'a> {
    /// Runs a `manual`: each rank to an op that it cannot do alone, then the groups in which all ranks are at that op.
    pub fn manual(&mut self, frame: &Frame<'a>, id: OpId) -> Outcome<Vec<Array>> {
        let func = frame.func;
        let op = &func.ops[id];
        let loc = &op.loc;
        let manual = Manual::of(&op.attrs).map_err(|r| fault(r.code, r.message, loc))?;
        let mesh = &manual.mesh;
        let operands = frame.arrays(&op.operands, loc)?;
        let region = op.regions[0];
        let mut ranks = Vec::new();
        for rank in 0..mesh.count() as usize {
            let mut own = Frame { func, env: BTreeMap::new(), symbols: frame.symbols.clone() };
            for ((x, split), &arg) in
                operands.iter().zip(&manual.ins).zip(&func.blocks[region].args)
            {
                let (start, dims) = mesh.block(split, &x.dims, rank);
                let start: Vec<i64> = start.iter().map(|&n| n as i64).collect();
                let made = part(x, &start, &dims).ok_or_else(|| broken("a block", loc))?;
                own.env.insert(arg, made);
            }
            let mut cursor = Cursor::new(own, region);
            let halt = self.advance(&mut cursor)?;
            ranks.push(Rank { cursor, halt });
        }
        while self.synchronise(mesh, &mut ranks)? {}
        let mut yields = Vec::new();
        for rank in &ranks {
            match &rank.halt {
                Halt::Ended(values) => yields.push(values),
                Halt::At(_) => return Err(broken("a collective that a rank does not reach", loc)),
            }
        }
        let results = manual.outs.iter().enumerate().map(|(i, split)| {
            let blocks: Option<Vec<&Array>> = yields.iter().map(|y| y.get(i)).collect();
            whole(mesh, split, &blocks?)
        });
        results.map(|x| x.ok_or_else(|| broken("blocks of a whole", loc))).collect()
    }

    /// Completes collectives whose ranks have all arrived, and runs those ranks to their next. `false` where there was none.
    fn synchronise(&mut self, mesh: &MeshAxes, ranks: &mut [Rank<'a>]) -> Outcome<bool> {
        let mut moved = false;
        for rank in 0..ranks.len() {
            let Some((func, id)) = ranks[rank].place()? else { continue };
            let op = &func.ops[id];
            let axes = MeshAxes::of(&op.attrs).map_err(|r| fault(r.code, r.message, &op.loc))?;
            let members: Vec<usize> = match is_collective(op.code) {
                true => mesh.group(rank, &axes.names),
                false => vec![rank],
            };
            let mut here = true;
            for &r in &members {
                let place = ranks[r].place()?;
                here &= place.is_some_and(|(f, i)| std::ptr::eq(f, func) && i == id);
            }
            if !here {
                continue;
            }
            let results = together(mesh, &axes, ranks, &members, op)?;
            for (&r, result) in members.iter().zip(results) {
                let Rank { cursor, halt } = &mut ranks[r];
                cursor.resume(vec![result])?;
                *halt = self.advance(cursor)?;
            }
            moved = true;
        }
        Ok(moved)
    }
}

/// The program of a rank, and where it stopped.
struct Rank<'a> {
    cursor: Cursor<'a>,
    halt: Halt,
}

impl<'a> Rank<'a> {
    /// The function and the op that it waits at.
    fn place(&self) -> Outcome<Option<(&'a GraphFunc, OpId)>> {
        match self.halt {
            Halt::Ended(_) => Ok(None),
            Halt::At(id) => Ok(Some((self.cursor.frame()?.func, id))),
        }
    }
}

/// An op that knows the rank, or that ranks do together: the result of each member of a group.
#[deny(clippy::wildcard_enum_match_arm)]
fn together(
    mesh: &MeshAxes,
    axes: &MeshAxes,
    ranks: &[Rank<'_>],
    members: &[usize],
    op: &Op<tessera_graph::Graph>,
) -> Outcome<Vec<Array>> {
    use GraphOp::*;
    let loc = &op.loc;
    let int = |name: &str| op.attr(name).and_then(Attr::as_int).unwrap_or(0).max(0) as usize;
    let word = op.attr("op").and_then(Attr::as_word).unwrap_or_default();
    let operator = || ReduceOp::from_name(word);
    let x = |r: usize| ranks[r].cursor.frame()?.array(op.operands[0], loc);
    // The values of the members, in the order of their positions.
    let all = || -> Outcome<Vec<&Array>> { members.iter().map(|&r| x(r)).collect() };
    let mut out = Vec::new();
    for &rank in members {
        let (own, n) = mesh.position(rank, &axes.names);
        let made = match op.code {
            Vary => Some(x(rank)?.clone()),
            AxisIndex => {
                let data = Data::fill(Scalar::I64(own as i64), 1);
                Some(Array::new(Vec::new(), DType::I64.into(), data))
            }
            Own => slab(x(rank)?, int("dim"), own, n),
            AllReduce => operator().zip(Some(all()?)).and_then(|(f, all)| combined(&all, f)),
            AllGather => joined(&all()?, int("dim")),
            ReduceScatter => operator()
                .zip(Some(all()?))
                .and_then(|(f, all)| combined(&all, f))
                .and_then(|x| slab(&x, int("dim"), own, n)),
            AllToAll => {
                let cut: Option<Vec<Array>> =
                    all()?.iter().map(|x| slab(x, int("split"), own, n)).collect();
                cut.and_then(|cut| joined(&cut.iter().collect::<Vec<_>>(), int("concat")))
            }
            Permute => {
                let pairs = op.attr("pairs").and_then(|p| pairs(p, axes).ok()).unwrap_or_default();
                let all = all()?;
                match pairs.iter().find(|(_, target)| *target as usize == own) {
                    Some((source, _)) => all.get(*source as usize).map(|&x| x.clone()),
                    None => {
                        let x = x(rank)?;
                        let zeros = Data::fill(Scalar::zero(x.dtype()), x.len());
                        Some(Array::new(x.dims.clone(), x.elem, zeros))
                    }
                }
            }
            FromRank => all()?.get(int("root")).map(|&x| x.clone()),
            KernelCall | Return | Yield | Cond | While | Loop | Call | Composite | Const | Iota
            | Select | Cast | Bitcast | Dim | StopGradient | OptBarrier | Shard | Broadcast
            | Reshape | Transpose | Slice | Pad | Concat | Reverse | DynamicSlice
            | DynamicUpdateSlice | Gather | Scatter | Reduce | ArgReduce | Scan | Sort | Dot
            | Conv | WindowReduce | WindowArgReduce | Philox | Manual | Ew(_) => None,
        };
        out.push(made.ok_or_else(|| broken("operands of an unexpected type", loc))?);
    }
    Ok(out)
}
