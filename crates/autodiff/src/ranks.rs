//! All ranks of a mesh in one function: a `manual` becomes ops on whole arrays. A value that varies has
//! one more axis in front, with a row for each rank, as in batching; one that does not is there once. A
//! collective is a reduction, a permutation or a broadcast of that axis, seen as the axes of the mesh.
//! Sums keep the order that the collective has: `reduce` over the ranks of a group, row-major.
//!
//! This is how programs of ranks are compiled where all ranks are virtual and share one device.

use crate::context::Context;
use crate::emit::Emit;
use crate::kernel::KernelSet;
use crate::region::outline_all;
use crate::vmap::Batched;
use tessera_diag::{Diagnostic, Diagnostics};
use tessera_graph::ops::collective::{Manual, MeshAxes, Split, pairs};
use tessera_graph::{GraphFunc, GraphModule, GraphOp, tensor};
use tessera_ir::{Attr, Attrs, Dim, OpId, Type, Value};
use tessera_numerics::{DType, NumType, ReduceOp};

fn fixed(n: i64) -> Dim {
    Dim::Static(n)
}

/// Extents of dims that are split or joined: they are numbers, since ranks divide them.
fn number(dim: &Dim) -> i64 {
    dim.as_static().unwrap_or(1)
}

/// Replaces every `manual` of a module by a call of a function on whole arrays. `true` if there was one.
pub fn expand_ranks(module: &mut GraphModule) -> Result<bool, Diagnostics> {
    let mut any = false;
    let mut at = 0;
    while at < module.funcs.len() {
        let source = module.funcs[at].clone();
        at += 1;
        for id in source.walk().into_iter().filter(|&id| source.ops[id].code == GraphOp::Manual) {
            any = true;
            let mut kernels = KernelSet::default();
            let mut context = Context::new(module, &mut kernels);
            let made = context.all_ranks(&source, id)?;
            let name = context.add(made, &format!("{}.ranks", source.name));
            let op = &mut module.funcs[at - 1].ops[id];
            op.code = GraphOp::Call;
            op.attrs = Attrs::new().with("callee", Attr::Ref(name)).with("kind", Attr::word("jit"));
            op.regions.clear();
        }
    }
    Ok(any)
}

impl Context<'_> {
    /// The function that a `manual` computes.
    fn all_ranks(&mut self, source: &GraphFunc, id: OpId) -> Result<GraphFunc, Diagnostic> {
        let op = &source.ops[id];
        let manual = Manual::of(&op.attrs).map_err(|r| r.at(op.loc.clone()))?;
        let mesh = manual.mesh.clone();
        let bodies = outline_all(source, id);
        let mut em = Emit::new(&source.name);
        em.loc = op.loc.clone();
        let (mut args, mut on) = (Vec::new(), Vec::new());
        for (&v, split) in op.operands.iter().zip(&manual.ins) {
            let x = em.b.param(source.name_of(v).unwrap_or("x"), source.ty(v).clone());
            let varies = split.iter().any(|axes| !axes.is_empty());
            args.push(if varies { blocks(&mut em, &mesh, split, x)? } else { x });
            on.push(varies);
        }
        self.ranks = Some(mesh.clone());
        let size = fixed(mesh.count());
        let made = self.batch(&bodies[0].func, &on, &[], &size);
        self.ranks = None;
        let made = made?;
        let out = em.put_back(&made.func, &args)?;
        let mut results = Vec::new();
        for ((value, split), batched) in out.into_iter().zip(&manual.outs).zip(&made.batched) {
            let splits = split.iter().any(|axes| !axes.is_empty());
            results.push(match (batched, splits) {
                (false, false) => value,
                (false, true) => {
                    let dims = [&[size.clone()][..], &em.shape(value)].concat();
                    let axes: Vec<i64> = (1..dims.len() as i64).collect();
                    let wide = em.broadcast(value, &dims, &axes)?;
                    whole(&mut em, &mesh, split, wide)?
                }
                (true, _) => whole(&mut em, &mesh, split, value)?,
            });
        }
        Ok(em.end(&results))
    }

    /// An op that knows the rank, or that ranks do together, with the ranks along the first axis.
    #[deny(clippy::wildcard_enum_match_arm)]
    pub fn synchronise(
        &mut self,
        b: &mut Batched<'_>,
        id: OpId,
        mesh: &MeshAxes,
    ) -> Result<(), Diagnostic> {
        use GraphOp::*;
        let op = &b.source.ops[id];
        let axes = MeshAxes::of(&op.attrs).map_err(|r| r.at(op.loc.clone()))?;
        let group = Group::new(mesh, &axes);
        let int = |name: &str| op.attr(name).and_then(Attr::as_int).unwrap_or(0);
        let dim = int("dim") as usize;
        let word = op.attr("op").and_then(Attr::as_word).unwrap_or_default();
        let operator = ReduceOp::from_name(word).unwrap_or(ReduceOp::Sum);
        if op.code == AxisIndex {
            let ty = tensor(vec![fixed(group.n), fixed(group.others)], NumType::plain(DType::I64));
            let index = b.em.iota(&ty, 0)?;
            let index = group.back(&mut b.em, index)?;
            b.set(op.result(), index, true);
            return Ok(());
        }
        let x = op.operands[0];
        if op.code == Vary {
            let (new, on) = (b.new_value(x), b.on(x));
            b.set(op.result(), new, on);
            return Ok(());
        }
        let full = b.full(x)?;
        // [ranks of the group, groups, dims of the block]
        let y = group.front(&mut b.em, full)?;
        let em = &mut b.em;
        let (new, on) = match op.code {
            AllReduce => {
                let all = em.reduce(operator, y, &[0])?;
                group.spread(em, all)?
            }
            FromRank => {
                let root = row(em, y, int("root"))?;
                group.spread(em, root)?
            }
            AllGather => {
                let own = em.shape(y);
                // The ranks of the group move to the front of the dim that they are joined along.
                let moved = em.move_axis(y, 0, 1 + dim)?;
                let mut dims = own[1..].to_vec();
                dims[1 + dim] = fixed(group.n * number(&dims[1 + dim]));
                let all = em.reshape(moved, &dims)?;
                group.spread(em, all)?
            }
            Own | ReduceScatter => {
                // What `own` takes is the same for all.
                let all =
                    if op.code == Own { row(em, y, 0)? } else { em.reduce(operator, y, &[0])? };
                let mut dims = em.shape(all);
                let part = number(&dims[1 + dim]) / group.n;
                dims.splice(1 + dim..2 + dim, [fixed(group.n), fixed(part)]);
                let cut = em.reshape(all, &dims)?;
                let cut = em.move_axis(cut, 1 + dim, 0)?;
                (group.back(em, cut)?, true)
            }
            AllToAll => {
                let (split, concat) = (int("split") as usize, int("concat") as usize);
                let mut dims = em.shape(y);
                let part = number(&dims[2 + split]) / group.n;
                dims.splice(2 + split..3 + split, [fixed(group.n), fixed(part)]);
                let cut = em.reshape(y, &dims)?;
                // [sources, groups, …, targets, part, …] to [targets, groups, …, sources, dim, …].
                let mut perm: Vec<i64> = (0..dims.len() as i64).collect();
                let target = perm.remove(2 + split);
                perm[0] = target;
                perm.insert(2 + concat, 0);
                let turned = em.transpose(cut, &perm)?;
                let mut dims = em.shape(turned);
                let joined = number(&dims[2 + concat]) * number(&dims[3 + concat]);
                dims.splice(2 + concat..4 + concat, [fixed(joined)]);
                let made = em.reshape(turned, &dims)?;
                (group.back(em, made)?, true)
            }
            Permute => {
                let attr = op.attr("pairs").cloned().unwrap_or(Attr::List(Vec::new()));
                let pairs = pairs(&attr, &axes).map_err(|r| r.at(op.loc.clone()))?;
                let mut dims = em.shape(y);
                dims[0] = fixed(1);
                let ty = tensor(dims.clone(), tessera_graph::elem(&em.ty(y)));
                let mut all = Vec::new();
                for target in 0..group.n {
                    all.push(match pairs.iter().find(|p| p.1 == target) {
                        Some(&(source, _)) => {
                            let from = row(em, y, source)?;
                            em.reshape(from, &dims)?
                        }
                        None => em.zeros(&ty)?,
                    });
                }
                let all = em.concat(&all, 0)?;
                (group.back(em, all)?, true)
            }
            Vary | AxisIndex | Manual | KernelCall | Return | Yield | Cond | While | Loop
            | Call | Composite | Const | Iota | Select | Cast | Bitcast | Dim | StopGradient
            | OptBarrier | Shard | Broadcast | Reshape | Transpose | Slice | Pad | Concat
            | Reverse | DynamicSlice | DynamicUpdateSlice | Gather | Scatter | Reduce
            | ArgReduce | Scan | Sort | Dot | Conv | WindowReduce | WindowArgReduce | Philox
            | Ew(_) => {
                return em.refuse("an op that ranks do not do together", "report this");
            }
        };
        b.set(op.result(), new, on);
        Ok(())
    }
}

/// Row `i` along the first axis, without it.
fn row(em: &mut Emit, y: Value, i: i64) -> Result<Value, Diagnostic> {
    let mut limit = em.shape(y);
    let mut start = vec![fixed(0); limit.len()];
    (start[0], limit[0]) = (fixed(i), fixed(i + 1));
    let one = em.slice(y, &start, &limit, &vec![1; start.len()])?;
    let dims = em.shape(one)[1..].to_vec();
    em.reshape(one, &dims)
}

/// The ranks of a mesh, seen as groups that synchronise.
struct Group {
    /// How many ranks a group has, and how many groups there are.
    n: i64,
    others: i64,
    sizes: Vec<i64>,
    /// The axes of the mesh, those of a group first.
    order: Vec<usize>,
}

impl Group {
    fn new(mesh: &MeshAxes, axes: &MeshAxes) -> Self {
        let mut order: Vec<usize> = axes.names.iter().filter_map(|n| mesh.place(n)).collect();
        order.extend((0..mesh.names.len()).filter(|&i| !axes.names.contains(&mesh.names[i])));
        let n = axes.count();
        Self { n, others: mesh.count() / n, sizes: mesh.sizes.clone(), order }
    }

    /// [ranks, …] as [ranks of a group, groups, …].
    fn front(&self, em: &mut Emit, x: Value) -> Result<Value, Diagnostic> {
        let inner = em.shape(x)[1..].to_vec();
        let grid: Vec<Dim> = self.sizes.iter().map(|&n| fixed(n)).collect();
        let x = em.reshape(x, &[&grid[..], &inner].concat())?;
        let rest = (grid.len()..grid.len() + inner.len()).map(|i| i as i64);
        let perm: Vec<i64> = self.order.iter().map(|&i| i as i64).chain(rest).collect();
        let x = em.transpose(x, &perm)?;
        em.reshape(x, &[&[fixed(self.n), fixed(self.others)][..], &inner].concat())
    }

    /// The inverse of `front`.
    fn back(&self, em: &mut Emit, x: Value) -> Result<Value, Diagnostic> {
        let inner = em.shape(x)[2..].to_vec();
        let grid: Vec<Dim> = self.order.iter().map(|&i| fixed(self.sizes[i])).collect();
        let x = em.reshape(x, &[&grid[..], &inner].concat())?;
        let mut perm = vec![0; grid.len()];
        for (at, &axis) in self.order.iter().enumerate() {
            perm[axis] = at as i64;
        }
        perm.extend((grid.len()..grid.len() + inner.len()).map(|i| i as i64));
        let x = em.transpose(x, &perm)?;
        let all: i64 = self.sizes.iter().product();
        em.reshape(x, &[&[fixed(all)][..], &inner].concat())
    }

    /// [groups, …] for every rank of each group; one value where there is one group.
    fn spread(&self, em: &mut Emit, x: Value) -> Result<(Value, bool), Diagnostic> {
        if self.others == 1 {
            let dims = em.shape(x)[1..].to_vec();
            return Ok((em.reshape(x, &dims)?, false));
        }
        let dims = [&[fixed(self.n)][..], &em.shape(x)].concat();
        let axes: Vec<i64> = (1..dims.len() as i64).collect();
        let wide = em.broadcast(x, &dims, &axes)?;
        Ok((self.back(em, wide)?, true))
    }
}

/// The dims of a value with those that are split cut into the axes that split them and what is left:
/// all extents, and where each axis of the mesh and each block dim is among them.
fn cut(
    mesh: &MeshAxes,
    split: &Split,
    block: &[Dim],
) -> (Vec<Dim>, Vec<Option<usize>>, Vec<usize>) {
    let (mut dims, mut axes, mut inner) = (Vec::new(), vec![None; mesh.names.len()], Vec::new());
    for (names, own) in split.iter().zip(block) {
        for at in names.iter().filter_map(|n| mesh.place(n)) {
            axes[at] = Some(dims.len());
            dims.push(fixed(mesh.sizes[at]));
        }
        inner.push(dims.len());
        dims.push(own.clone());
    }
    (dims, axes, inner)
}

/// The blocks of a value: [ranks, block].
fn blocks(em: &mut Emit, mesh: &MeshAxes, split: &Split, x: Value) -> Result<Value, Diagnostic> {
    let ty: Type = em.ty(x);
    let loc = em.loc.clone();
    let block =
        tessera_graph::ops::collective::block_type(mesh, split, &ty).map_err(|r| r.at(loc))?;
    let (dims, axes, inner) = cut(mesh, split, block.shape());
    let x = em.reshape(x, &dims)?;
    let present: Vec<usize> = (0..axes.len()).filter(|&i| axes[i].is_some()).collect();
    let perm: Vec<i64> =
        present.iter().filter_map(|&i| axes[i]).chain(inner).map(|i| i as i64).collect();
    let x = em.transpose(x, &perm)?;
    let grid: Vec<Dim> = mesh.sizes.iter().map(|&n| fixed(n)).collect();
    let wide = [&grid[..], block.shape()].concat();
    let rest = grid.len()..wide.len();
    let to: Vec<i64> = present.into_iter().chain(rest).map(|i| i as i64).collect();
    let x = em.broadcast(x, &wide, &to)?;
    em.reshape(x, &[&[fixed(mesh.count())][..], block.shape()].concat())
}

/// The whole of blocks; of copies the first counts.
fn whole(em: &mut Emit, mesh: &MeshAxes, split: &Split, x: Value) -> Result<Value, Diagnostic> {
    let block = em.shape(x)[1..].to_vec();
    let (dims, axes, inner) = cut(mesh, split, &block);
    let grid: Vec<Dim> = mesh.sizes.iter().map(|&n| fixed(n)).collect();
    let mut limit = [&grid[..], &block].concat();
    let x = em.reshape(x, &limit)?;
    for (at, place) in axes.iter().enumerate() {
        if place.is_none() {
            limit[at] = fixed(1);
        }
    }
    let n = limit.len();
    let x = em.slice(x, &vec![fixed(0); n], &limit, &vec![1; n])?;
    let present: Vec<usize> = (0..axes.len()).filter(|&i| axes[i].is_some()).collect();
    let kept: Vec<Dim> = present.iter().map(|&i| grid[i].clone()).chain(block.clone()).collect();
    let x = em.reshape(x, &kept)?;
    // Axes and block dims, each to its place in the whole.
    let mut perm = vec![0; dims.len()];
    let places = present.iter().filter_map(|&i| axes[i]).chain(inner);
    for (from, to) in places.enumerate() {
        perm[to] = from as i64;
    }
    let x = em.transpose(x, &perm)?;
    let loc = em.loc.clone();
    let ty = tensor(block, tessera_graph::elem(&em.ty(x)));
    let whole =
        tessera_graph::ops::collective::whole_type(mesh, split, &ty).map_err(|r| r.at(loc))?;
    em.reshape(x, whole.shape())
}
