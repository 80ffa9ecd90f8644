//! Writes the Staged function: every op with the layouts of its tiles, and a layout conversion
//! wherever an operand has another layout than its op needs.

use super::layouts::{Layouts, inverse, permutation};
use super::seeds::{better_access, canonical, extents, is_ordered, product};
use super::threads::Team;
use super::tile_ops::{axis_of, combined, cut_axis, position, sorted};
use super::{MatrixRow, Staging};
use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_diag::{Code, Diagnostic, Diagnostics, Loc};
use tessera_ir::{Attr, BlockId, Builder, Func, Op, OpId, OpSpec, Opcode, Type, Value, ValueDef};
use tessera_layout::{Layout, Shared};
use tessera_numerics::DType;
use tessera_staged::{Staged, StagedBuild, StagedFunc, StagedOp};
use tessera_tile::{Tile, TileFunc, TileOp};

pub(super) struct Open<'a> {
    pub(super) func: &'a TileFunc,
    pub(super) staging: &'a Staging<'a>,
    pub(super) team: Team,
    layouts: &'a Layouts,
    pub(super) out: StagedFunc,
    /// The new value of each value.
    pub(super) map: BTreeMap<Value, Value>,
    /// Copies of a value in other layouts, and the block that each was made in.
    copies: BTreeMap<(Value, Arc<Layout>), (Value, BlockId)>,
}

pub fn open(
    func: &TileFunc,
    staging: &Staging<'_>,
    team: Team,
    layouts: &Layouts,
) -> Result<StagedFunc, Diagnostics> {
    let mut out = Func::<Staged>::new(func.name.clone());
    out.loc = func.loc.clone();
    for name in ["kind", "grid", "config"] {
        if let Some(attr) = func.attrs.get(name) {
            out.attrs.set(name, attr.clone());
        }
    }
    out.attrs.set("threads", Attr::Int(i64::from(team.warps) * 32));
    if team.blocks > 1 {
        out.attrs.set("cluster", Attr::ints([i64::from(team.blocks)]));
    }
    let body = out.body;
    let mut map = BTreeMap::new();
    for &v in func.params() {
        let new = out.add_arg(body, func.ty(v).clone(), func.name_of(v));
        map.insert(v, new);
    }
    let copies = BTreeMap::new();
    let mut open = Open { func, staging, team, layouts, out, map, copies };
    open.block(func.body, body)?;
    Ok(open.out)
}

impl<'a> Open<'a> {
    /// The type of a value in the new function.
    fn ty(&self, v: Value) -> Type {
        match self.func.ty(v) {
            Type::Tile { shape, dtype } => {
                Type::Frag { shape: shape.clone(), dtype: *dtype, layout: self.layouts[&v].clone() }
            }
            other => other.clone(),
        }
    }

    pub(super) fn frag(&self, v: Value, layout: Arc<Layout>) -> Type {
        let ty = self.func.ty(v);
        Type::Frag { shape: ty.shape().to_vec(), dtype: ty.dtype(), layout }
    }

    pub(super) fn build(&mut self, block: BlockId, loc: &Loc) -> Builder<'_, Staged> {
        Builder::at_end(&mut self.out, block, loc.clone())
    }

    fn block(&mut self, from: BlockId, to: BlockId) -> Result<(), Diagnostics> {
        let func = self.func;
        for &id in &func.blocks[from].ops {
            self.op(id, to)?;
        }
        Ok(())
    }

    /// The new value with this layout.
    pub(super) fn at(
        &mut self,
        v: Value,
        layout: &Arc<Layout>,
        block: BlockId,
        loc: &Loc,
    ) -> Value {
        let Type::Tile { .. } = self.func.ty(v) else { return self.map[&v] };
        let new = self.map[&v];
        if self.out.ty(new).layout() == Some(layout) {
            return new;
        }
        if let Some(&(copy, made)) = self.copies.get(&(v, layout.clone()))
            && self.out.block_within(block, made)
        {
            return copy;
        }
        let (copy, made) = match self.again(v, layout, block, 6) {
            Some(copy) => (copy, block),
            None => self.moved(new, self.frag(v, layout.clone()), block, loc),
        };
        self.copies.insert((v, layout.clone()), (copy, made));
        copy
    }

    /// A tile in another layout, and the block of the conversion: before all loops that the tile is
    /// defined outside.
    fn moved(&mut self, tile: Value, ty: Type, block: BlockId, loc: &Loc) -> (Value, BlockId) {
        let home = match self.out.values[tile].def {
            ValueDef::Result(id, _) => self.out.ops[id].block,
            ValueDef::Arg(block, _) => block,
        };
        let mut at = block;
        let mut before = None;
        while at != home {
            let Some(around) = self.out.blocks[at].parent else { break };
            let is_loop =
                matches!(self.out.ops[around].code, StagedOp::Tile(TileOp::For | TileOp::While));
            if !is_loop {
                break;
            }
            at = self.out.ops[around].block;
            before = Some(around);
        }
        let place = before.and_then(|op| self.out.blocks[at].ops.iter().position(|&o| o == op));
        let mut build = match place {
            Some(place) => Builder::before(&mut self.out, at, place, loc.clone()),
            None => self.build(block, loc),
        };
        let block = build.block;
        (build.convert_layout(tile, ty), block)
    }

    /// Rematerialises a value in another layout, where that moves no data: constants, positions and
    /// what is computed from them alone.
    fn again(
        &mut self,
        v: Value,
        layout: &Arc<Layout>,
        block: BlockId,
        fuel: u32,
    ) -> Option<Value> {
        if !self.is_cheap(v, fuel) {
            return None;
        }
        let op = self.func.def(v)?;
        let operands: Vec<Value> = op
            .operands
            .iter()
            .map(|&o| {
                let Type::Tile { .. } = self.func.ty(o) else { return Some(self.map[&o]) };
                let needed = match op.code {
                    TileOp::Expand => Arc::new(layout.squeeze(axis_of(op))?),
                    TileOp::Broadcast => Arc::new(layout.broadcast_from(&extents(self.func.ty(o)))),
                    TileOp::Transpose => {
                        Arc::new(layout.transpose(&inverse(&permutation(op.attr("perm")))))
                    }
                    _ => layout.clone(),
                };
                self.again(o, &needed, block, fuel - 1)
            })
            .collect::<Option<_>>()?;
        let mut spec = OpSpec::new(StagedOp::Tile(op.code), &operands);
        spec.attrs = op.attrs.clone();
        let (ty, loc) = (self.frag(v, layout.clone()), op.loc.clone());
        Some(self.build(block, &loc).one(spec, ty))
    }

    fn is_cheap(&self, v: Value, fuel: u32) -> bool {
        let Type::Tile { .. } = self.func.ty(v) else { return true };
        let (Some(op), Some(fuel)) = (self.func.def(v), fuel.checked_sub(1)) else { return false };
        matches!(
            op.code,
            TileOp::Const
                | TileOp::Iota
                | TileOp::Ew(_)
                | TileOp::Select
                | TileOp::Cast
                | TileOp::Broadcast
                | TileOp::Expand
                | TileOp::Transpose
        ) && op.operands.iter().all(|&o| self.is_cheap(o, fuel))
    }

    /// An op with its operands in another layout and results of these types.
    fn copy_op(
        &mut self,
        id: OpId,
        block: BlockId,
        operands: Vec<Value>,
        results: Vec<Type>,
    ) -> OpId {
        let op = &self.func.ops[id];
        let positional = op.positional().len();
        let mut spec = OpSpec::<Staged>::new(StagedOp::Tile(op.code), &operands[..positional]);
        let mut start = positional;
        for (row, &len) in op.code.info().groups.iter().zip(&op.group_lens) {
            spec = spec.group(row.name, &operands[start..start + len]);
            start += len;
        }
        spec.attrs = op.attrs.clone();
        let spec = spec.results(results);
        let loc = op.loc.clone();
        self.build(block, &loc).op(spec).expect("types are given")
    }

    /// The operands of an op, tiles in this layout.
    fn operands_at(&mut self, op: &Op<Tile>, layout: &Arc<Layout>, block: BlockId) -> Vec<Value> {
        op.operands.iter().map(|&v| self.at(v, layout, block, &op.loc)).collect()
    }

    /// Maps the results of an op, converted where they must be.
    fn give(&mut self, id: OpId, new: OpId) {
        let results = self.out.ops[new].results.clone();
        for (&v, r) in self.func.ops[id].results.iter().zip(results) {
            self.name(v, r);
            self.map.insert(v, r);
        }
    }

    fn name(&mut self, v: Value, new: Value) {
        if let Some(name) = self.func.name_of(v) {
            self.out.set_name(new, name);
        }
    }

    /// A tile whose op gave another layout than the assigned one.
    pub(super) fn settle(&mut self, v: Value, got: Value, block: BlockId, loc: &Loc) {
        let wanted = self.layouts[&v].clone();
        let value = if self.out.ty(got).layout() == Some(&wanted) {
            got
        } else {
            let ty = self.frag(v, wanted);
            self.build(block, loc).convert_layout(got, ty)
        };
        self.name(v, value);
        self.map.insert(v, value);
    }

    #[deny(clippy::wildcard_enum_match_arm)]
    fn op(&mut self, id: OpId, block: BlockId) -> Result<(), Diagnostics> {
        use TileOp::*;
        let func = self.func;
        let op = &func.ops[id];
        match op.code {
            For | If | While | SlowPath => {
                return self.control(id, block);
            }
            Yield => return self.yields(id, block),
            Mma if !self.staging.caps.async_mma.is_empty() => {
                return self.async_mma(id, block);
            }
            Mma => return self.mma(id, block),
            Expand | Transpose | Broadcast | Reshape
                if matches!(func.ty(op.operands[0]), Type::Tile { .. }) =>
            {
                return self.rearrange(id, block);
            }
            Reduce | ArgReduce => return self.reduce(id, block),
            Load if self.layouts.contains_key(&op.result()) => {
                return self.load(id, block);
            }
            Store if self.layouts.contains_key(&op.operands[1]) => {
                return self.store(id, block);
            }
            Barrier => {
                let code = match self.team.blocks {
                    1 => StagedOp::BlockBarrier,
                    _ => StagedOp::ClusterBarrier,
                };
                self.build(block, &op.loc).sync(code);
                return Ok(());
            }
            // `stage-copies` made them loads and stores.
            CopyAsync | CopyCommit | CopyWait => {
                let why = "copies into shared buffers are not supported here";
                let error = Diagnostic::new(Code::E_UNSUPPORTED, why);
                return Err(error.at(op.loc.clone()).into());
            }
            // What is said of memory is for checks.
            Owned => return Ok(()),
            ReduceBy | ScanBy => return self.combine(id, block),
            Sort => return self.sort(id, block),
            Slice if cut_axis(func, op).is_some() => return self.slice(id, block),
            Histogram => {
                let operands = op.operands.iter().map(|v| self.map[v]).collect();
                let new = self.copy_op(id, block, operands, vec![self.ty(op.result())]);
                self.give(id, new);
                return Ok(());
            }
            Slice | Concat | Take => {
                return Err(Diagnostic::new(
                    Code::E_TILE_LOWERING,
                    format!(
                        "`tile.{}` was left in the program: `tile-expand-parts` replaces it",
                        op.code.mnemonic()
                    ),
                )
                .at(op.loc.clone())
                .into());
            }
            Return | ProgramId | NumPrograms | LinearId | LocalId | GroupSize | WarpSize | Dim
            | Origin | Const | Iota | Select | Cast | Bitcast | Reshape | Transpose | Broadcast
            | Expand | Load | Store | Gather | Scatter | Accumulate | BufAlloc | Atomic
            | GroupReduce | GroupScan | GroupBroadcast | GroupShuffle | Philox | Print | Assert
            | Scan | Ew(_) | Asm | AsmEffect => {}
        }
        // All tiles of any other op have one layout: that of the result, or of what is written.
        let place = op
            .results
            .iter()
            .chain(op.operands.get(1))
            .chain(op.operands.iter())
            .find_map(|v| self.layouts.get(v).cloned());
        let operands = match &place {
            // `print` takes tiles in any layout.
            Some(layout) if op.code != Print => self.operands_at(op, layout, block),
            _ => op.operands.iter().map(|v| self.map[v]).collect(),
        };
        let results = op.results.iter().map(|&v| self.ty(v)).collect();
        let new = self.copy_op(id, block, operands, results);
        self.give(id, new);
        Ok(())
    }

    /// Loads in the layout that suits the memory, and converts the tile to its own.
    fn load(&mut self, id: OpId, block: BlockId) -> Result<(), Diagnostics> {
        let op = &self.func.ops[id];
        let result = op.result();
        let own = self.layouts[&result].clone();
        let better = better_access(self.func, self.staging, self.team, id, result, &own);
        let place = better.map_or(own, Arc::new);
        let operands = op.operands.iter().map(|v| self.map[v]).collect();
        let ty = self.frag(result, place);
        let new = self.copy_op(id, block, operands, vec![ty]);
        let got = self.out.ops[new].result();
        self.settle(result, got, block, &op.loc);
        Ok(())
    }

    /// Stores in the layout that suits the memory.
    fn store(&mut self, id: OpId, block: BlockId) -> Result<(), Diagnostics> {
        let op = &self.func.ops[id];
        let value = op.operands[1];
        let own = self.layouts[&value].clone();
        let better = better_access(self.func, self.staging, self.team, id, value, &own);
        let place = better.map_or(own, Arc::new);
        let operands = self.operands_at(op, &place, block);
        self.copy_op(id, block, operands, Vec::new());
        Ok(())
    }

    fn rearrange(&mut self, id: OpId, block: BlockId) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        let (x, result) = (op.operands[0], op.result());
        let (had, wanted) = (self.layouts[&x].clone(), self.layouts[&result].clone());
        let shape = extents(func.ty(x));
        // The layout that the operand needs for the wanted result; else the one that comes out.
        let (needed, gives) = match op.code {
            TileOp::Expand => match wanted.squeeze(axis_of(op)) {
                Some(l) if l.expand(axis_of(op)) == *wanted => (Arc::new(l), wanted),
                _ => (had.clone(), Arc::new(had.expand(axis_of(op)))),
            },
            TileOp::Transpose => {
                let perm = permutation(op.attr("perm"));
                (Arc::new(wanted.transpose(&inverse(&perm))), wanted)
            }
            TileOp::Broadcast => (Arc::new(wanted.broadcast_from(&shape)), wanted),
            _ => {
                let to = extents(func.ty(result));
                let linear = |shape: &[u32]| {
                    let l = super::seeds::plain(shape, self.team);
                    l.reshape(&to).map(|to| (Arc::new(l), Arc::new(to)))
                };
                let back =
                    wanted.reshape(&shape).filter(|l| l.reshape(&to).as_ref() == Some(&*wanted));
                match (had.reshape(&to), back) {
                    (_, Some(l)) => (Arc::new(l), wanted),
                    (Some(l), None) => (had, Arc::new(l)),
                    // Where no layout serves both, the data moves.
                    (None, None) => linear(&shape).unwrap_or((had, wanted)),
                }
            }
        };
        let operand = self.at(x, &needed, block, &op.loc);
        let ty = self.frag(result, gives);
        let new = self.copy_op(id, block, vec![operand], vec![ty]);
        let got = self.out.ops[new].result();
        self.settle(result, got, block, &op.loc);
        Ok(())
    }

    fn reduce(&mut self, id: OpId, block: BlockId) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        let (x, result) = (op.operands[0], op.result());
        let mut place = self.layouts[&x].clone();
        if is_ordered(func, self.staging, id) {
            place = Arc::new(canonical(&extents(func.ty(x)), axis_of(op), self.team));
        }
        let operand = self.at(x, &place, block, &op.loc);
        let ty = match func.ty(result) {
            Type::Tile { .. } => self.frag(result, Arc::new(place.reduce(axis_of(op)))),
            other => other.clone(),
        };
        let new = self.copy_op(id, block, vec![operand], vec![ty]);
        let got = self.out.ops[new].result();
        match func.ty(result) {
            Type::Tile { .. } => self.settle(result, got, block, &op.loc),
            _ => {
                self.name(result, got);
                self.map.insert(result, got);
            }
        }
        Ok(())
    }

    /// Reductions and scans by a function: all tiles in the layout that suits the op.
    fn combine(&mut self, id: OpId, block: BlockId) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        let Some(place) = combined(func, self.staging, self.team, id).map(Arc::new) else {
            let why = "this tile has too many positions to be combined";
            return Err(Diagnostic::new(Code::E_TILE_LOWERING, why).at(op.loc.clone()).into());
        };
        let operands = self.operands_at(op, &place, block);
        let left = match op.code {
            TileOp::ReduceBy => Arc::new(place.reduce(axis_of(op))),
            _ => place,
        };
        let ty = |&v: &Value| match func.ty(v) {
            Type::Tile { .. } => self.frag(v, left.clone()),
            other => other.clone(),
        };
        let results = op.results.iter().map(ty).collect();
        let new = self.copy_op(id, block, operands, results);
        let to = self.out.ops[new].regions[0];
        for &arg in &func.blocks[op.regions[0]].args {
            let v = self.out.add_arg(to, func.ty(arg).clone(), func.name_of(arg));
            self.map.insert(arg, v);
        }
        self.block(op.regions[0], to)?;
        self.settle_all(id, new, block);
        Ok(())
    }

    fn sort(&mut self, id: OpId, block: BlockId) -> Result<(), Diagnostics> {
        let op = &self.func.ops[id];
        let x = op.operands[0];
        let Some((from, to)) = sorted(&self.layouts[&x], axis_of(op), self.team) else {
            let why = "this tile has too many positions to be sorted";
            return Err(Diagnostic::new(Code::E_TILE_LOWERING, why).at(op.loc.clone()).into());
        };
        let operand = self.at(x, &from, block, &op.loc);
        let results = op.results.iter().map(|&v| self.frag(v, to.clone())).collect();
        let new = self.copy_op(id, block, vec![operand], results);
        self.settle_all(id, new, block);
        Ok(())
    }

    /// One position of an axis: where a thread holds the whole axis, it has it already.
    fn slice(&mut self, id: OpId, block: BlockId) -> Result<(), Diagnostics> {
        let op = &self.func.ops[id];
        let (x, result) = (op.operands[0], op.result());
        let Some((axis, _)) = cut_axis(self.func, op) else { return Ok(()) };
        let ty = self.frag(result, Arc::new(position(&self.layouts[&x], axis)));
        let operand = self.map[&x];
        let new = self.copy_op(id, block, vec![operand], vec![ty]);
        self.settle_all(id, new, block);
        Ok(())
    }

    /// Maps results that may have other layouts than the assigned ones.
    fn settle_all(&mut self, id: OpId, new: OpId, block: BlockId) {
        let op = &self.func.ops[id];
        for (&v, got) in op.results.iter().zip(self.out.ops[new].results.clone()) {
            if self.func.ty(v).is_tile() {
                self.settle(v, got, block, &op.loc);
            } else {
                self.name(v, got);
                self.map.insert(v, got);
            }
        }
    }

    fn yields(&mut self, id: OpId, block: BlockId) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        // The layouts that the op around needs: those of its results, or of a loop's arguments.
        let parent = func.blocks[op.block].parent.map(|p| &func.ops[p]);
        let wanted: Vec<Option<Arc<Layout>>> = (0..op.operands.len())
            .map(|i| {
                let p = parent?;
                let is_condition = p.code == TileOp::While && p.regions[0] == op.block;
                // A combiner yields scalars.
                let is_combiner = matches!(p.code, TileOp::ReduceBy | TileOp::ScanBy);
                if is_condition || is_combiner {
                    None
                } else {
                    self.layouts.get(&p.results[i]).cloned()
                }
            })
            .collect();
        let operands: Vec<Value> = op
            .operands
            .iter()
            .zip(wanted)
            .map(|(&v, wanted)| match wanted {
                Some(l) => self.at(v, &l, block, &op.loc),
                None => self.map[&v],
            })
            .collect();
        self.copy_op(id, block, operands, Vec::new());
        Ok(())
    }

    fn control(&mut self, id: OpId, block: BlockId) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        let inits = op.group("init").len();
        let first = op.operands.len() - inits;
        let operands: Vec<Value> = op
            .operands
            .iter()
            .enumerate()
            .map(|(i, &v)| match i.checked_sub(first).map(|i| op.results[i]) {
                Some(result) => match self.layouts.get(&result).cloned() {
                    Some(l) => self.at(v, &l, block, &op.loc),
                    None => self.map[&v],
                },
                None => self.map[&v],
            })
            .collect();
        let results: Vec<Type> = op.results.iter().map(|&v| self.ty(v)).collect();
        let new = self.copy_op(id, block, operands, results);
        let regions = self.out.ops[new].regions.clone();
        for (&from, &to) in op.regions.iter().zip(&regions) {
            for (i, &arg) in func.blocks[from].args.iter().enumerate() {
                // Carried values have the layouts of the results.
                let carried = match op.code {
                    TileOp::For => i.checked_sub(1),
                    _ => Some(i),
                };
                let ty = match carried {
                    Some(i) => self.ty(op.results[i]),
                    None => func.ty(arg).clone(),
                };
                let v = self.out.add_arg(to, ty, func.name_of(arg));
                self.map.insert(arg, v);
            }
            self.block(from, to)?;
        }
        self.give(id, new);
        Ok(())
    }

    fn mma(&mut self, id: OpId, block: BlockId) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        let [a, b, acc] = [0, 1, 2].map(|i| op.operands[i]);
        let (row, place) = product(func, self.staging, self.team, id);
        let place = Arc::new(place);
        let sums = self.at(acc, &place, block, &op.loc);
        let ty = self.frag(op.result(), place.clone());
        let got = match row {
            Some(row) => {
                let (la, lb) = fragments(row, &place, extents(func.ty(a))[1]);
                let a = self.at(a, &Arc::new(la), block, &op.loc);
                let b = self.at(b, &Arc::new(lb), block, &op.loc);
                let mut build = self.build(block, &op.loc);
                let (a, b) = (build.cast(a, row.a), build.cast(b, row.b));
                let new = self.copy_op(id, block, vec![a, b, sums], vec![ty]);
                self.out.ops[new].result()
            }
            None => {
                let a = self.in_shared(a, block, &op.loc);
                let b = self.in_shared(b, block, &op.loc);
                let mut build = self.build(block, &op.loc);
                build.sync(StagedOp::FenceAsync);
                build.sync(StagedOp::BlockBarrier);
                let open = build.mma_open(sums);
                let pending = build.mma_issue(a, b, open);
                let done = build.mma_retire(pending, 0, false);
                // The next iteration of a loop writes the same memory.
                build.sync(StagedOp::BlockBarrier);
                done
            }
        };
        self.settle(op.result(), got, block, &op.loc);
        Ok(())
    }

    /// A tile in a shared memory buffer of its own, written by the threads that hold it.
    fn in_shared(&mut self, v: Value, block: BlockId, loc: &Loc) -> Value {
        let (shape, dtype) = (extents(self.func.ty(v)), self.func.ty(v).dtype());
        let bytes = dtype.bytes() as u32;
        let mut shared = Shared::row_major(&shape, bytes);
        // Rows of whole wavefronts would put a column into one bank.
        shared.pad = (16 / bytes).max(1);
        let ty =
            Type::Smem { shape: self.func.ty(v).shape().to_vec(), dtype, layout: Arc::new(shared) };
        let tile = self.map[&v];
        let body = self.out.body;
        let mem = Builder::before(&mut self.out, body, 0, loc.clone()).smem_alloc(ty);
        self.build(block, loc).frag_store(mem, tile);
        mem
    }
}

/// The layouts of an MMA's operand fragments, given that of its accumulator.
pub fn fragments(row: MatrixRow, acc: &Layout, k: u32) -> (Layout, Layout) {
    if row.acc == DType::F64 {
        (Layout::mma_a_f64(acc, k), Layout::mma_b_f64(acc, k))
    } else {
        let bits = row.a.bits().max(8);
        (Layout::mma_a(acc, k, bits), Layout::mma_b(acc, k, bits))
    }
}
