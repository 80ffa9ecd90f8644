//! Warpgroup ping-pong, as CUTLASS's `KernelTmaWarpSpecializedPingpong`: two consumer warpgroups
//! alternate on whole tiles. While one runs its epilogue, the other issues MMAs.
//!
//! Input: a warp-specialized function whose consumer has several replicas that take alternate
//! tiles; its pipeline counters are those of one consumer that takes all tiles. Output: each
//! replica's counters skip the iterations of the others, which requires that all tiles have equally
//! many. Order barriers give each replica the tensor cores in turn, so that the mainloops do not
//! overlap and the epilogues are spread.

use super::Refusal;
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_ir::{Attr, Attrs, BlockId, OpId, OpSpec, Rewriter, Type, Value, ValueDef};
use tessera_numerics::ScalarFn;
use tessera_staged::{Staged, StagedBuild, StagedFunc, StagedOp};
use tessera_tile::{TileFunc, TileOp};

/// Consumer warpgroups in ping-pong.
pub const REPLICAS: u32 = 2;

/// Whether the user pins it: `warp_specialization = pingpong`.
pub fn is_requested(attrs: &Attrs) -> bool {
    let config = attrs.get("config").and_then(Attr::as_dict);
    config.and_then(|c| c.get("warp_specialization")).and_then(Attr::as_word) == Some("pingpong")
}

/// The values of `warp_specialization`.
const KNOWN: [&str; 2] = ["cooperative", "pingpong"];

/// Checks the requested value.
pub fn check(func: &TileFunc) -> Result<(), Diagnostics> {
    let config = func.attrs.get("config").and_then(Attr::as_dict);
    let Some(said) = config.and_then(|c| c.get("warp_specialization")) else { return Ok(()) };
    if said.as_word().is_some_and(|word| KNOWN.contains(&word)) {
        return Ok(());
    }
    let why = format!("expected `warp_specialization` to be {}, got {said}", KNOWN.join(" or "));
    let error = Diagnostic::new(Code::E_ARGUMENT, why).at(func.loc.clone());
    Err(error.help("leave it out, and the compiler chooses").into())
}

/// The function without that request.
pub fn without(func: &TileFunc) -> TileFunc {
    let mut func = func.clone();
    let config = func.attrs.get("config").and_then(Attr::as_dict);
    let mut rest = Attrs::new();
    for (name, value) in
        config.into_iter().flat_map(|c| c.iter()).filter(|(n, _)| *n != "warp_specialization")
    {
        rest.set(name, value.clone());
    }
    func.attrs.set("config", Attr::Dict(rest));
    func
}

/// How far a pipeline's counter advances in one tile.
enum Advance {
    Fixed(i64),
    /// By the iterations of this loop.
    Iterations(OpId),
}

struct PingpongPlan {
    roles: OpId,
    tiles: OpId,
    advances: Vec<Advance>,
    /// The first op of the loop's body that issues MMAs, and the last.
    first: OpId,
    last: OpId,
}

pub fn order_barriers(func: &StagedFunc) -> Result<StagedFunc, Refusal> {
    let plan = plan(func)?;
    let mut state =
        PingpongRewrite { plan: &plan, order_barrier: None, replica: None, far: Vec::new() };
    let mut rw = Rewriter::new(func);
    let body = rw.new.body;
    for &id in &func.blocks[func.body].ops {
        state.emit(&mut rw, id, body);
    }
    Ok(rw.new)
}

fn plan(func: &StagedFunc) -> Result<PingpongPlan, Refusal> {
    let is = |id: &OpId, code: StagedOp| func.ops[*id].code == code;
    let all = func.walk();
    let name = |id: &OpId| func.ops[*id].attr("name").and_then(Attr::as_word) == Some("consumer");
    let role = all.iter().copied().find(|id| is(id, StagedOp::WarpRole) && name(id));
    let role = role.ok_or("there is no role to divide")?;
    let roles = func.blocks[func.ops[role].block].parent.ok_or("a role stands alone")?;
    let inside = &func.blocks[func.ops[role].regions[0]].ops;
    let tiles = inside.iter().copied().find(|id| is(id, StagedOp::Tiles));
    let tiles = tiles.ok_or("there is no loop over groups")?;
    let op = &func.ops[tiles];
    if op.results.iter().any(|v| all.iter().any(|&o| func.ops[o].operands.contains(v))) {
        return Err("what one group leaves is used after all".into());
    }
    let body = op.regions[0];
    let axes = op.group("grid").len();
    let args = &func.blocks[body].args[axes..];
    let ends = ends(func, body);
    let advances: Result<Vec<_>, Refusal> =
        args.iter().zip(ends).map(|(&arg, &end)| advance(func, tiles, arg, end)).collect();
    let products: Vec<OpId> = func.blocks[body]
        .ops
        .iter()
        .copied()
        .filter(|&id| {
            let mut any = is(&id, StagedOp::MmaIssue);
            for &region in &func.ops[id].regions {
                func.walk_block(region, &mut |o| any |= is(&o, StagedOp::MmaIssue));
            }
            any
        })
        .collect();
    let [first, .., last] = products[..] else {
        let [one] = products[..] else { return Err("there are no MMAs".into()) };
        return Ok(PingpongPlan { roles, tiles, advances: advances?, first: one, last: one });
    };
    Ok(PingpongPlan { roles, tiles, advances: advances?, first, last })
}

fn ends(func: &StagedFunc, block: BlockId) -> &[Value] {
    func.terminator(block).map_or(&[], |end| func.ops[end].group("values"))
}

fn number(func: &StagedFunc, v: Value) -> Option<i64> {
    let op = func.def(v).filter(|op| op.code == StagedOp::Tile(TileOp::Const))?;
    op.attr("value").and_then(Attr::as_int)
}

/// The constant c where a value is `from + c`.
fn more(func: &StagedFunc, v: Value, from: Value) -> Option<i64> {
    if v == from {
        return Some(0);
    }
    let op = func.def(v).filter(|op| op.code == StagedOp::Tile(TileOp::Ew(ScalarFn::Add)))?;
    (op.operands[0] == from).then(|| number(func, op.operands[1]))?
}

fn advance(func: &StagedFunc, tiles: OpId, arg: Value, end: Value) -> Result<Advance, Refusal> {
    let other = || Refusal::from("a group hands the next more than the counters of pipelines");
    if *func.ty(arg) != Type::INDEX {
        return Err(other());
    }
    if let Some(n) = more(func, end, arg) {
        return Ok(Advance::Fixed(n));
    }
    let ValueDef::Result(id, i) = func.values[end].def else { return Err(other()) };
    let op = &func.ops[id];
    let counts_iterations =
        op.code == StagedOp::Tile(TileOp::For) && op.group("init").get(i) == Some(&arg);
    if !counts_iterations || op.block != func.ops[tiles].regions[0] {
        return Err(other());
    }
    let inner = func.blocks[op.regions[0]].args[1 + i];
    if ends(func, op.regions[0]).get(i).and_then(|&v| more(func, v, inner)) != Some(1) {
        return Err(other());
    }
    // The loop has the same bounds for all groups where these come from outside.
    let outside = |&v: &Value| {
        let block = match func.values[v].def {
            ValueDef::Result(by, _) => func.ops[by].block,
            ValueDef::Arg(block, _) => block,
        };
        let inside = func.ops[tiles].regions[0];
        block != inside && !func.ancestors(block).contains(&tiles)
    };
    if !op.positional().iter().all(outside) {
        return Err("groups may have loops of different lengths".into());
    }
    Ok(Advance::Iterations(id))
}

struct PingpongRewrite<'p> {
    plan: &'p PingpongPlan,
    order_barrier: Option<Value>,
    replica: Option<Value>,
    /// How far each counter advances in one tile, as new values.
    far: Vec<Value>,
}

type Rw<'f> = Rewriter<'f, Staged>;

impl PingpongRewrite<'_> {
    fn emit(&mut self, rw: &mut Rw<'_>, id: OpId, into: BlockId) {
        let old = rw.old;
        let plan = self.plan;
        let op = &old.ops[id];
        let loc = op.loc.clone();
        if id == plan.roles {
            let spec = OpSpec::new(StagedOp::OrderBarrierCreate, &[]);
            self.order_barrier = Some(rw.builder(into, loc.clone()).one(spec, Type::OrderBarrier));
        }
        if id == plan.tiles {
            self.distances(rw, into);
        }
        let hand = |rw: &mut Rw<'_>, code: StagedOp, order_barrier: Option<Value>| {
            if let Some(order_barrier) = order_barrier {
                rw.builder(into, loc.clone()).effect(OpSpec::new(code, &[order_barrier]));
            }
        };
        if id == plan.first {
            hand(rw, StagedOp::OrderWait, self.order_barrier);
        }
        let ends = op.is_terminator() && op.block == old.ops[plan.tiles].regions[0];
        if ends {
            self.leave_out(rw, id, into);
            return;
        }
        let mut inner = |rw: &mut Rw<'_>, o: OpId, b: BlockId| self.emit(rw, o, b);
        let new = rw.copy_op_with(id, into, &mut inner);
        if id == plan.last {
            hand(rw, StagedOp::OrderArrive, self.order_barrier);
        }
        if id == plan.tiles {
            self.begin_at_own(rw, new, into);
        }
    }

    /// Before the loop: how far counters advance in a tile.
    fn distances(&mut self, rw: &mut Rw<'_>, into: BlockId) {
        let old = rw.old;
        let loc = old.ops[self.plan.tiles].loc.clone();
        let spec = OpSpec::new(StagedOp::Replica, &[]);
        self.replica = Some(rw.builder(into, loc.clone()).one(spec, Type::INDEX));
        for advance in &self.plan.advances {
            let far = match advance {
                Advance::Fixed(n) => rw.builder(into, loc.clone()).index(*n),
                Advance::Iterations(id) => {
                    let [lo, hi, step] = [0, 1, 2].map(|i| rw.get(old.ops[*id].operands[i]));
                    let mut build = rw.builder(into, loc.clone());
                    let [one, none] = [1, 0].map(|n| build.index(n));
                    let wide = build.ew(ScalarFn::Sub, &[hi, lo]);
                    let up = build.ew(ScalarFn::Sub, &[step, one]);
                    let wide = build.ew(ScalarFn::Add, &[wide, up]);
                    let iterations = build.ew(ScalarFn::FloorDiv, &[wide, step]);
                    build.ew(ScalarFn::Maximum, &[iterations, none])
                }
            };
            self.far.push(far);
        }
        // The initial counters of each replica.
        let inits = old.ops[self.plan.tiles].group("init").to_vec();
        for (init, &far) in inits.iter().zip(&self.far.clone()) {
            let (own, Some(replica)) = (rw.get(*init), self.replica) else { continue };
            let mut build = rw.builder(into, loc.clone());
            let before = build.ew(ScalarFn::Mul, &[replica, far]);
            let begin = build.ew(ScalarFn::Add, &[own, before]);
            self.far.push(begin);
        }
    }

    fn begin_at_own(&mut self, rw: &mut Rw<'_>, new: OpId, _into: BlockId) {
        let count = self.plan.advances.len();
        let op = &mut rw.new.ops[new];
        let first = op.operands.len() - count;
        op.operands[first..].copy_from_slice(&self.far[count..]);
    }

    /// At the end of a tile: skips the iterations of the others.
    fn leave_out(&mut self, rw: &mut Rw<'_>, id: OpId, into: BlockId) {
        let old = rw.old;
        let loc = old.ops[id].loc.clone();
        let ends = old.ops[id].group("values").to_vec();
        let mut next = Vec::new();
        for (&end, &far) in ends.iter().zip(&self.far) {
            let end = rw.get(end);
            let mut build = rw.builder(into, loc.clone());
            let others = build.index(i64::from(REPLICAS) - 1);
            let past = build.ew(ScalarFn::Mul, &[far, others]);
            next.push(build.ew(ScalarFn::Add, &[end, past]));
        }
        rw.builder(into, loc).yield_(&next);
    }
}
