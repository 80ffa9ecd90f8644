//! Programs of one rank, for all ranks of a mesh: the region of a `manual` runs once for each rank, op
//! by op together. At a collective the ranks of a group synchronise. Where a condition differs, the ranks go
//! on in two parties; the verifier has made sure that none waits for the other.

use super::World;
use super::array::Array;
use super::eval::Frame;
use super::graph_control::{stack, step, truth};
use super::reduce::reduce;
use super::shape::{concat, strided};
use crate::fault::{Outcome, broken, fault};
use crate::value::Data;
use std::collections::BTreeMap;
use tessera_diag::{Code, Loc};
use tessera_graph::dims::substitute_type;
use tessera_graph::ops::collective::{Manual, MeshAxes, Split, pairs};
use tessera_graph::{GraphFunc, GraphOp};
use tessera_ir::{Attr, BlockId, Op, OpId};
use tessera_numerics::{DType, ReduceOp, Scalar};

/// What each of some ranks has, in their order.
type ByRank = Vec<Vec<Array>>;

/// The coordinates of a rank, row-major over the axes.
fn coords(mesh: &MeshAxes, rank: usize) -> Vec<usize> {
    let mut rest = rank;
    let mut out = vec![0; mesh.sizes.len()];
    for (at, &size) in mesh.sizes.iter().enumerate().rev() {
        out[at] = rest % size as usize;
        rest /= size as usize;
    }
    out
}

/// The position along named axes, row-major in their order, of how many.
fn position(mesh: &MeshAxes, at: &[usize], names: &[String]) -> (usize, usize) {
    let places = names.iter().filter_map(|n| mesh.place(n));
    places.fold((0, 1), |(p, n), i| {
        let size = mesh.sizes[i] as usize;
        (p * size + at[i], n * size)
    })
}

/// Where the block of a rank begins, and its extents.
fn block(mesh: &MeshAxes, split: &Split, dims: &[usize], rank: usize) -> (Vec<i64>, Vec<usize>) {
    let at = coords(mesh, rank);
    let each = dims.iter().zip(split).map(|(&d, axes)| {
        let (p, n) = position(mesh, &at, axes);
        ((p * (d / n)) as i64, d / n)
    });
    each.unzip()
}

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
    let at = coords(mesh, 0);
    let dims: Vec<usize> =
        first.dims.iter().zip(split).map(|(d, axes)| d * position(mesh, &at, axes).1).collect();
    let mut data = Data::fill(Scalar::zero(first.dtype()), 0);
    for x in blocks {
        data = super::shape::append(data, &x.data)?;
    }
    let (each, local) = (first.len(), crate::shape::strides_of(&first.dims));
    // The rank that has each block: the lowest of those with these coordinates.
    let mut ranks: BTreeMap<Vec<usize>, usize> = BTreeMap::new();
    for rank in (0..blocks.len()).rev() {
        let here = coords(mesh, rank);
        ranks.insert(split.iter().map(|axes| position(mesh, &here, axes).0).collect(), rank);
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

/// The ranks that run a program.
struct Ranks<'a, 'm> {
    mesh: &'m MeshAxes,
    /// One for each rank of the mesh, of the function that they are in.
    frames: Vec<Frame<'a>>,
}

impl<'a> World<'a> {
    /// Runs a `manual`.
    pub fn manual(&mut self, frame: &Frame<'a>, id: OpId) -> Outcome<Vec<Array>> {
        let func = frame.func;
        let op = &func.ops[id];
        let loc = &op.loc;
        let manual = Manual::of(&op.attrs).map_err(|r| fault(r.code, r.message, loc))?;
        let mesh = &manual.mesh;
        let operands = frame.arrays(&op.operands, loc)?;
        let region = op.regions[0];
        let mut ranks = Ranks { mesh, frames: Vec::new() };
        for rank in 0..mesh.count() as usize {
            let mut own = Frame { func, env: BTreeMap::new(), symbols: frame.symbols.clone() };
            for ((x, split), &arg) in
                operands.iter().zip(&manual.ins).zip(&func.blocks[region].args)
            {
                let (start, dims) = block(mesh, split, &x.dims, rank);
                let made = part(x, &start, &dims).ok_or_else(|| broken("a block", loc))?;
                own.env.insert(arg, made);
            }
            ranks.frames.push(own);
        }
        let all: Vec<usize> = (0..ranks.frames.len()).collect();
        let yields = self.block_of_ranks(&mut ranks, &all, region)?;
        let results = manual.outs.iter().enumerate().map(|(i, split)| {
            let blocks: Option<Vec<&Array>> = yields.iter().map(|y| y.get(i)).collect();
            whole(mesh, split, &blocks?)
        });
        results.map(|x| x.ok_or_else(|| broken("blocks of a whole", loc))).collect()
    }

    /// Runs a block for some ranks.
    fn block_of_ranks(
        &mut self,
        ranks: &mut Ranks<'a, '_>,
        party: &[usize],
        block: BlockId,
    ) -> Outcome<ByRank> {
        let Some(&first) = party.first() else { return Ok(Vec::new()) };
        let func = ranks.frames[first].func;
        for &id in &func.blocks[block].ops {
            let op = &func.ops[id];
            if op.is_terminator() {
                let each = party.iter().map(|&r| ranks.frames[r].arrays(&op.operands, &op.loc));
                return each.collect();
            }
            self.poll.poll()?;
            let results = self.op_of_ranks(ranks, party, id)?;
            for (&rank, results) in party.iter().zip(results) {
                ranks.frames[rank].set(&op.results, results, &op.loc)?;
            }
        }
        Err(broken("a block without an end", &func.loc))
    }

    #[deny(clippy::wildcard_enum_match_arm)]
    fn op_of_ranks(
        &mut self,
        ranks: &mut Ranks<'a, '_>,
        party: &[usize],
        id: OpId,
    ) -> Outcome<ByRank> {
        use GraphOp::*;
        let op = &ranks.frames[party[0]].func.ops[id];
        match op.code {
            Vary | Own | AllReduce | AllGather | ReduceScatter | AllToAll | Permute | FromRank
            | AxisIndex => synchronise(ranks, party, op),
            Cond => self.cond_of_ranks(ranks, party, op),
            While => self.while_of_ranks(ranks, party, op),
            Loop => self.loop_of_ranks(ranks, party, op),
            Call | Composite => self.call_of_ranks(ranks, party, op),
            KernelCall | Return | Yield | Const | Iota | Select | Cast | Bitcast | Dim
            | StopGradient | OptBarrier | Broadcast | Reshape | Transpose | Slice | Pad
            | Concat | Reverse | DynamicSlice | DynamicUpdateSlice | Gather | Scatter | Reduce
            | ArgReduce | Scan | Sort | Dot | Conv | WindowReduce | WindowArgReduce | Philox
            | Manual | Ew(_) => party.iter().map(|&r| self.op(&mut ranks.frames[r], id)).collect(),
        }
    }

    fn region_of_ranks(
        &mut self,
        ranks: &mut Ranks<'a, '_>,
        party: &[usize],
        region: BlockId,
        args: ByRank,
    ) -> Outcome<ByRank> {
        for (&rank, args) in party.iter().zip(args) {
            let func = ranks.frames[rank].func;
            ranks.frames[rank].set(&func.blocks[region].args, args, &func.loc)?;
        }
        self.block_of_ranks(ranks, party, region)
    }

    fn cond_of_ranks(
        &mut self,
        ranks: &mut Ranks<'a, '_>,
        party: &[usize],
        op: &'a Op<tessera_graph::Graph>,
    ) -> Outcome<ByRank> {
        let mut sides = [Vec::new(), Vec::new()];
        for &r in party {
            let yes = truth(ranks.frames[r].array(op.operands[0], &op.loc)?, &op.loc)?;
            sides[if yes { 0 } else { 1 }].push(r);
        }
        let mut out = vec![Vec::new(); party.len()];
        for (side, &region) in sides.iter().zip(&op.regions) {
            let made = self.block_of_ranks(ranks, side, region)?;
            for (r, results) in side.iter().zip(made) {
                if let Some(at) = party.iter().position(|p| p == r) {
                    out[at] = results;
                }
            }
        }
        Ok(out)
    }

    fn while_of_ranks(
        &mut self,
        ranks: &mut Ranks<'a, '_>,
        party: &[usize],
        op: &'a Op<tessera_graph::Graph>,
    ) -> Outcome<ByRank> {
        let loc = &op.loc;
        let init = op.group("init");
        let mut carried: BTreeMap<usize, Vec<Array>> = BTreeMap::new();
        for &r in party {
            carried.insert(r, ranks.frames[r].arrays(init, loc)?);
        }
        let mut going = party.to_vec();
        while !going.is_empty() {
            let args: ByRank = going.iter().map(|r| carried[r].clone()).collect();
            let tests = self.region_of_ranks(ranks, &going, op.regions[0], args)?;
            let mut next = Vec::new();
            for (&r, test) in going.iter().zip(&tests) {
                let test = test.first().ok_or_else(|| broken("no condition", loc))?;
                if truth(test, loc)? {
                    next.push(r);
                }
            }
            going = next;
            let args: ByRank = going.iter().map(|r| carried[r].clone()).collect();
            let made = self.region_of_ranks(ranks, &going, op.regions[1], args)?;
            carried.extend(going.iter().copied().zip(made));
        }
        Ok(carried.into_values().collect())
    }

    fn loop_of_ranks(
        &mut self,
        ranks: &mut Ranks<'a, '_>,
        party: &[usize],
        op: &'a Op<tessera_graph::Graph>,
    ) -> Outcome<ByRank> {
        let loc = &op.loc;
        let trip = ranks.frames[party[0]].value_of(op.attr("trip").and_then(Attr::as_expr), loc)?;
        let trip = usize::try_from(trip).map_err(|_| {
            let why = format!("expected a trip count of 0 or more, got {trip}");
            fault(Code::E_SHAPE_MISMATCH, why, loc)
        })?;
        let reverse = op.attr("reverse").and_then(Attr::as_bool).unwrap_or(false);
        let (init, xs) = (op.group("init"), op.group("xs"));
        let mut carried = ByRank::new();
        let mut stacks = ByRank::new();
        for &r in party {
            carried.push(ranks.frames[r].arrays(init, loc)?);
            stacks.push(ranks.frames[r].arrays(xs, loc)?);
        }
        let mut rows: Vec<Vec<Vec<Array>>> = vec![vec![Vec::new(); trip]; party.len()];
        for iteration in 0..trip {
            let i = if reverse { trip - 1 - iteration } else { iteration };
            let at = Data::fill(Scalar::I64(i as i64), 1);
            let mut args = ByRank::new();
            for (carried, stacks) in carried.iter_mut().zip(&stacks) {
                let mut own = vec![Array::new(Vec::new(), DType::I64.into(), at.clone())];
                own.append(carried);
                for x in stacks {
                    own.push(step(x, i).ok_or_else(|| broken("a step outside", loc))?);
                }
                args.push(own);
            }
            carried = self.region_of_ranks(ranks, party, op.regions[0], args)?;
            for (rows, carried) in rows.iter_mut().zip(&mut carried) {
                rows[i] = carried.split_off(init.len());
            }
        }
        for ((&r, carried), rows) in party.iter().zip(&mut carried).zip(&rows) {
            let frame = &ranks.frames[r];
            let n = carried.len().min(op.results.len());
            for (column, &result) in op.results[n..].iter().enumerate() {
                let ty = substitute_type(frame.func.ty(result), &frame.symbols);
                let made = stack(rows, column, &ty, trip);
                carried.push(made.ok_or_else(|| broken("steps of two shapes", loc))?);
            }
        }
        Ok(carried)
    }

    fn call_of_ranks(
        &mut self,
        ranks: &mut Ranks<'a, '_>,
        party: &[usize],
        op: &'a Op<tessera_graph::Graph>,
    ) -> Outcome<ByRank> {
        let loc = &op.loc;
        let name = tessera_graph::walk::called(op).unwrap_or_default();
        let callee: &'a GraphFunc = self.callee(name, loc)?;
        let mut inner = Ranks { mesh: ranks.mesh, frames: Vec::new() };
        for (r, own) in ranks.frames.iter().enumerate() {
            // Those that do not call have a frame that nothing looks into.
            let frame = match party.contains(&r) {
                true => self.entered(callee, own.arrays(&op.operands, loc)?, loc)?,
                false => Frame { func: callee, env: BTreeMap::new(), symbols: Default::default() },
            };
            inner.frames.push(frame);
        }
        self.block_of_ranks(&mut inner, party, callee.body)
    }
}

/// An op that knows the rank, or that ranks do together.
#[deny(clippy::wildcard_enum_match_arm)]
fn synchronise(
    ranks: &Ranks<'_, '_>,
    party: &[usize],
    op: &Op<tessera_graph::Graph>,
) -> Outcome<ByRank> {
    use GraphOp::*;
    let loc: &Loc = &op.loc;
    let mesh = ranks.mesh;
    let axes = MeshAxes::of(&op.attrs).map_err(|r| fault(r.code, r.message, loc))?;
    let int = |name: &str| op.attr(name).and_then(Attr::as_int).unwrap_or(0).max(0) as usize;
    let word = op.attr("op").and_then(Attr::as_word).unwrap_or_default();
    let operator = || ReduceOp::from_name(word);
    let mut out = ByRank::new();
    for &rank in party {
        let at = coords(mesh, rank);
        let (own, n) = position(mesh, &at, &axes.names);
        let x = |r: usize| ranks.frames[r].array(op.operands[0], loc);
        // The ranks of the group, by their position along the axes.
        let mut group: BTreeMap<usize, usize> = BTreeMap::new();
        for &other in party {
            let there = coords(mesh, other);
            let beside =
                (0..at.len()).all(|i| axes.names.contains(&mesh.names[i]) || there[i] == at[i]);
            if beside {
                group.insert(position(mesh, &there, &axes.names).0, other);
            }
        }
        let all = || -> Outcome<Vec<&Array>> {
            if group.len() != n {
                return Err(broken("a collective that a rank does not reach", loc));
            }
            group.values().map(|&r| x(r)).collect()
        };
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
                let pairs = op.attr("pairs").and_then(|p| pairs(p, &axes).ok()).unwrap_or_default();
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
            | Select | Cast | Bitcast | Dim | StopGradient | OptBarrier | Broadcast | Reshape
            | Transpose | Slice | Pad | Concat | Reverse | DynamicSlice | DynamicUpdateSlice
            | Gather | Scatter | Reduce | ArgReduce | Scan | Sort | Dot | Conv | WindowReduce
            | WindowArgReduce | Philox | Manual | Ew(_) => None,
        };
        out.push(vec![made.ok_or_else(|| broken("operands of an unexpected type", loc))?]);
    }
    Ok(out)
}
