//! Kernels that are one matmul over the whole grid.
//!
//! A group computes a tile of the result: a loop over blocks of k with one `mma`, then an
//! elementwise epilogue and stores. Where every axis of every tile follows m, n or k from the
//! group's own corner on, the tiles of all groups together are one matmul of whole operands, and
//! the user's tile sizes do not matter: the grid is emitted as one blocked GEMM, with the loads as
//! its operands and the rest of the body as its epilogue.
//!
//! Before: a valid group function. After: [`find`] describes the matmul, or finds none.

use super::Group;
use super::group_plan::{is_expression, same_but_ones};
use super::nest::{Map, Node};
use std::collections::{BTreeMap, BTreeSet};
use tessera_ir::{Attr, Dim, OpId, Value};
use tessera_tile::{Atom, Linear, TileFunc, TileOp, linear_of};

/// What an axis of a tile follows; the numbers stand in maps.
pub const ROW: u8 = 0;
pub const COL: u8 = 1;
pub const DEPTH: u8 = 2;

pub struct WholeMatmul {
    pub loop_op: OpId,
    pub mma: OpId,
    /// The loop's position and its result.
    pub k: Value,
    pub sums: Value,
    /// What the sums begin with.
    pub init: Value,
    /// Grid axes of rows and columns.
    pub axes: [usize; 2],
    /// Extents of one group's tile: rows, columns, depth.
    pub tile: [i64; 3],
    pub stores: Vec<OpId>,
    /// Loads and stores, with what each axis of their memory follows.
    pub accesses: BTreeMap<OpId, Vec<Option<u8>>>,
    /// Axes of accesses that are in bounds wherever the matmul's own indices are.
    pub trusted: BTreeSet<(OpId, usize)>,
    /// An access and its axis whose extent bounds k.
    pub depth_bound: Option<(OpId, usize)>,
}

pub fn find(group: &Group<'_>) -> Option<WholeMatmul> {
    let func = group.func;
    let mut loops = Vec::new();
    let mut stores = Vec::new();
    for &id in &func.blocks[func.body].ops {
        match func.ops[id].code {
            TileOp::For => loops.push(id),
            TileOp::Store | TileOp::Accumulate => stores.push(id),
            _ if is_plain(func, id) => {}
            _ => return None,
        }
    }
    let ([loop_op], [first, ..]) = (loops.as_slice(), stores.as_slice()) else { return None };
    let (loop_op, first) = (*loop_op, *first);
    let op = &func.ops[loop_op];
    let body = op.regions[0];
    let args = &func.blocks[body].args;
    let (&[k, acc], &[init], &[sums]) = (args.as_slice(), op.group("init"), op.results.as_slice())
    else {
        return None;
    };
    let mut mma = None;
    for &id in &func.blocks[body].ops {
        match func.ops[id].code {
            TileOp::Mma if mma.is_none() => mma = Some(id),
            TileOp::Yield => {}
            _ if is_plain(func, id) => {}
            _ => return None,
        }
    }
    let mma = mma?;
    let product = &func.ops[mma];
    let yielded = func.terminator(body).map(|t| func.ops[t].operands.clone())?;
    let carried = product.operands[2] == acc && yielded == [product.result()];
    if !carried || group.plan.users(acc).len() != 1 || group.plan.users(product.result()).len() != 1
    {
        return None;
    }
    let shape = |v: Value| func.ty(v).static_shape().unwrap_or_default();
    let (a, b) = (product.operands[0], product.operands[1]);
    let tile = [shape(a)[0], shape(b)[1], shape(a)[1]];
    let step = linear_of(func, op.operands[2]).as_constant()?;
    if step != tile[2] || tile.iter().any(|&d| d < 2) {
        return None;
    }
    let axes = corner(func, first, &tile)?;
    let mut whole = WholeMatmul {
        loop_op,
        mma,
        k,
        sums,
        init,
        axes,
        tile,
        stores,
        accesses: BTreeMap::new(),
        trusted: BTreeSet::new(),
        depth_bound: None,
    };
    // A loop whose bounds differ between groups is not one depth.
    if op.operands[..2].iter().any(|&v| whole.moves(func, v)) {
        return None;
    }
    let result = vec![Some(ROW), Some(COL)];
    let mut roots: Vec<Node> = vec![
        (a, vec![Some(ROW), Some(DEPTH)]),
        (b, vec![Some(DEPTH), Some(COL)]),
        (init, result.clone()),
    ];
    for &store in &whole.stores.clone() {
        let op = &func.ops[store];
        if func.ty(op.operands[1]).rank() != 2 || shape(op.operands[1]) != tile[..2] {
            return None;
        }
        whole.accept(group, store, &result)?;
        roots.push((op.operands[1], result.clone()));
        for &mask in op.group("mask") {
            let map = if func.ty(mask).rank() == 0 { Map::new() } else { result.clone() };
            roots.push((mask, map));
        }
    }
    whole.walk(group, &roots)?;
    whole.hazards(group)?;
    whole.trust(group, [a, b].iter().all(|&v| is_zero_outside(func, v)));
    // The first store's array is what bounds the rows and columns of all.
    let bounded = |&store: &OpId| {
        let follows = whole.accesses[&store].iter().enumerate();
        follows.filter(|(_, l)| l.is_some()).all(|(axis, _)| whole.trusted.contains(&(store, axis)))
    };
    whole.stores.iter().all(bounded).then_some(whole)
}

/// Whether an operand is what was loaded, so that positions outside the array are zero.
fn is_zero_outside(func: &TileFunc, v: Value) -> bool {
    zero_outside(func, v).is_some()
}

/// The padding of a loaded operand, where it is zero: whether it is negative zero.
pub fn zero_outside(func: &TileFunc, mut v: Value) -> Option<bool> {
    while let Some(op) = func.def(v) {
        match op.code {
            TileOp::Load => {
                let Some(&other) = op.group("other").first() else { return Some(false) };
                return constant_zero(func, other);
            }
            TileOp::Cast | TileOp::Transpose | TileOp::Expand | TileOp::Reshape => {
                v = op.operands[0];
            }
            _ => return None,
        }
    }
    None
}

fn constant_zero(func: &TileFunc, v: Value) -> Option<bool> {
    let op = func.def(v)?;
    match op.code {
        TileOp::Cast => constant_zero(func, op.operands[0]),
        TileOp::Const => {
            let value = op.attr("value").and_then(Attr::as_float)?;
            (value == 0.0).then_some(value.is_sign_negative())
        }
        _ => None,
    }
}

/// Ops without effects that are computed where they are used, and scalars.
fn is_plain(func: &TileFunc, id: OpId) -> bool {
    let scalar = matches!(
        func.ops[id].code,
        TileOp::ProgramId
            | TileOp::NumPrograms
            | TileOp::Dim
            | TileOp::GroupSize
            | TileOp::WarpSize
            | TileOp::Return
    );
    scalar || is_expression(func, id)
}

/// The grid axes whose groups write one tile after another along rows and columns.
fn corner(func: &TileFunc, store: OpId, tile: &[i64; 3]) -> Option<[usize; 2]> {
    let op = &func.ops[store];
    let extent = op.attr("extent").and_then(Attr::as_ints)?;
    let mut axes = Vec::new();
    for (&at, _) in op.group("at").iter().zip(&extent).filter(|(_, e)| **e > 0) {
        let form = linear_of(func, at);
        let extent = tile[axes.len().min(1)];
        match form.terms.iter().collect::<Vec<_>>().as_slice() {
            [(Atom::Program(axis), by)] if **by == extent && form.constant == 0 => {
                axes.push(usize::try_from(*axis).ok()?);
            }
            _ => return None,
        }
    }
    let axes: [usize; 2] = axes.try_into().ok()?;
    (axes[0] != axes[1]).then_some(axes)
}

impl WholeMatmul {
    fn walk(&mut self, group: &Group<'_>, roots: &[Node]) -> Option<()> {
        let func = group.func;
        let (mut list, mut seen) = (roots.to_vec(), BTreeSet::new());
        while let Some(node) = list.pop() {
            if !seen.insert(node.clone()) {
                continue;
            }
            let (v, map) = &node;
            if *v == self.sums {
                if *map != [Some(ROW), Some(COL)] {
                    return None;
                }
                continue;
            }
            if func.ty(*v).rank() == 0 {
                if self.moves(func, *v) {
                    return None;
                }
                continue;
            }
            let id = func.def_id(*v)?;
            match func.ops[id].code {
                // A position inside the tile.
                TileOp::Iota => return None,
                TileOp::Reshape
                    if !same_but_ones(func.ty(func.ops[id].operands[0]), func.ty(*v)) =>
                {
                    return None;
                }
                TileOp::Load => {
                    self.accept(group, id, map)?;
                    if let Some(&other) = func.ops[id].group("other").first()
                        && self.moves(func, other)
                    {
                        return None;
                    }
                }
                _ if is_expression(func, id) => list.extend(group.inputs(id, map)),
                _ => return None,
            }
        }
        Some(())
    }

    /// Whether a block access follows the matmul along every axis.
    fn accept(&mut self, group: &Group<'_>, id: OpId, map: &Map) -> Option<()> {
        let func = group.func;
        let op = &func.ops[id];
        let extent = op.attr("extent").and_then(Attr::as_ints)?;
        if op.attr("step").and_then(Attr::as_ints).is_some_and(|s| s.iter().any(|&s| s != 1)) {
            return None;
        }
        let mut axes = map.iter();
        let mut follows = Vec::new();
        for (&at, &e) in op.group("at").iter().zip(&extent) {
            let label = if e == 0 { None } else { axes.next().copied().flatten() };
            let form = linear_of(func, at);
            let rest = self.rest(&form, label, e)?;
            if rest.terms.keys().any(|atom| self.atom_moves(func, atom)) {
                return None;
            }
            follows.push(label);
        }
        match self.accesses.get(&id) {
            Some(before) if *before != follows => None,
            _ => {
                self.accesses.insert(id, follows);
                Some(())
            }
        }
    }

    /// What is left of a start when the tile's own corner is taken away.
    fn rest(&self, form: &Linear, label: Option<u8>, extent: i64) -> Option<Linear> {
        let (atom, by) = match label {
            None => return Some(form.clone()),
            Some(DEPTH) => (Atom::Value(self.k), 1),
            Some(axis) => {
                (Atom::Program(self.axes[axis as usize] as i64), self.tile[axis as usize])
            }
        };
        let wanted = self.tile[label.map_or(0, usize::from)];
        let own = Linear::atom(atom).scaled(by)?;
        let fits = extent == wanted && form.terms.get(own.terms.keys().next()?) == Some(&by);
        if fits { form.minus(&own) } else { None }
    }

    fn atom_moves(&self, func: &TileFunc, atom: &Atom) -> bool {
        match atom {
            Atom::Dim(_) => false,
            Atom::Program(axis) => self.axes.contains(&(*axis as usize)),
            Atom::Value(v) => self.moves(func, *v),
        }
    }

    /// Whether a scalar differs between the groups or iterations that become one matmul.
    fn moves(&self, func: &TileFunc, v: Value) -> bool {
        let (mut list, mut seen) = (vec![v], BTreeSet::new());
        while let Some(v) = list.pop() {
            if !seen.insert(v) {
                continue;
            }
            if v == self.k {
                return true;
            }
            let Some(op) = func.def(v) else { continue };
            match op.code {
                TileOp::ProgramId => {
                    let axis = op.attr("axis").and_then(Attr::as_int).unwrap_or(0);
                    if self.axes.contains(&(axis as usize)) {
                        return true;
                    }
                }
                _ => list.extend(&op.operands),
            }
        }
        false
    }

    /// What is written may be read only where it is about to be written, after the sums.
    fn hazards(&self, group: &Group<'_>) -> Option<()> {
        let func = group.func;
        let starts = |id: OpId| -> Vec<Linear> {
            func.ops[id].group("at").iter().map(|&v| linear_of(func, v)).collect()
        };
        for (&id, follows) in &self.accesses {
            let op = &func.ops[id];
            for &store in &self.stores {
                if store == id || func.ops[store].operands[0] != op.operands[0] {
                    continue;
                }
                // Of several stores one may write what another is still to read.
                if self.stores.len() > 1 {
                    return None;
                }
                let same = starts(id) == starts(store) && *follows == self.accesses[&store];
                let after = op.block == func.body && op.code == TileOp::Load;
                if !same || !after {
                    return None;
                }
            }
        }
        // Scalars that are loaded come before all stores, so they too may not be written.
        let written: BTreeSet<Value> =
            self.stores.iter().map(|&s| func.ops[s].operands[0]).collect();
        let stale = func.walk().into_iter().any(|id| {
            let op = &func.ops[id];
            matches!(op.code, TileOp::Load | TileOp::Gather)
                && written.contains(&op.operands[0])
                && !self.accesses.contains_key(&id)
        });
        (!stale).then_some(())
    }

    /// Finds the axes whose extent is that of the matmul itself.
    /// `zeros`: past the end of k both operands are zero, so that the loop may end there.
    fn trust(&mut self, group: &Group<'_>, zeros: bool) {
        let func = group.func;
        let first = self.stores[0];
        let dim = |id: OpId, axis: usize| func.ty(func.ops[id].operands[0]).shape()[axis].clone();
        let along = |label: u8| self.accesses[&first].iter().position(|&l| l == Some(label));
        let bounds = [along(ROW), along(COL)].map(|axis| axis.map(|a| dim(first, a)));
        // k is bounded where the right operand and every other load along it agree.
        let mut depth: Option<(OpId, usize, Dim, Linear)> = None;
        let from = linear_of(func, func.ops[self.loop_op].operands[0]).as_constant();
        let mut agree = zeros && from.is_some_and(|lo| lo >= 0);
        for (&id, follows) in &self.accesses {
            for (axis, &label) in follows.iter().enumerate() {
                if label != Some(DEPTH) {
                    continue;
                }
                let (d, form) = (dim(id, axis), linear_of(func, func.ops[id].group("at")[axis]));
                // Nothing before the first position either.
                let own = self.rest(&form, label, self.tile[2]).and_then(|r| r.as_constant());
                agree &= own.is_some_and(|c| c >= 0);
                match &depth {
                    None => depth = Some((id, axis, d, form)),
                    Some((_, _, same, from)) => {
                        agree &= *same == d && *from == form && d != Dim::Any
                    }
                }
            }
        }
        let mut trusted = BTreeSet::new();
        for (&id, follows) in &self.accesses {
            for (axis, &label) in follows.iter().enumerate() {
                let start = linear_of(func, func.ops[id].group("at")[axis]);
                let inside = match label {
                    Some(DEPTH) => agree,
                    Some(label) => {
                        let own = self.rest(&start, Some(label), self.tile[label as usize]);
                        own.is_some_and(|r| r == Linear::constant(0))
                            && bounds[label as usize].as_ref() == Some(&dim(id, axis))
                            && dim(id, axis) != Dim::Any
                    }
                    None => false,
                };
                if inside {
                    trusted.insert((id, axis));
                }
            }
        }
        self.trusted = trusted;
        self.depth_bound = depth.filter(|_| agree).map(|(id, axis, ..)| (id, axis));
    }
}
