//! From Tile IR to a [`Program`]. Ops that the interpreter does not run are refused here, with
//! their location.

use crate::fault::{Outcome, broken, fault};
use crate::liveness::{Ends, ends_of};
use crate::program::{Action, Arg, Block, Change, Fold, Inst, Param, ParamKind, Program, Wait};
use crate::shape::strides_of;
use tessera_diag::{Code, Diagnostics};
use tessera_ir::{Attr, BlockId, Dim, Op, OpId, Type, Value};
use tessera_numerics::{DType, ReduceOp, Rounding, Scalar, ScalarFn, cast, decode};
use tessera_support::Entity;
use tessera_tile::ops::{atomic::combine, host::pieces, parts::slice_steps};
use tessera_tile::{KernelKind, Tile, TileFunc, TileOp, kind_of, lane_axis, lane_extents};

/// Elements of one tile or buffer: far above any kernel's, far below what memory holds.
const MAX_ELEMENTS: i64 = 1 << 28;

pub(crate) fn prepare(func: &TileFunc) -> Result<Program, Diagnostics> {
    tessera_ir::verify(func)?;
    tessera_tile::has_elements(func)?;
    let program = empty(func);
    let waits = |id: &OpId| matches!(func.ops[*id].code, TileOp::CopyCommit | TileOp::CopyWait);
    let mut p = Preparer { func, explicit: func.walk().iter().any(waits), program };
    let mut errors = Diagnostics::new();
    for &v in func.params() {
        match p.param(v) {
            Ok(param) => p.program.params.push(param),
            Err(e) => errors.push(*e),
        }
    }
    p.block(func.body, &mut errors);
    if errors.is_empty() { Ok(p.program) } else { Err(errors) }
}

/// A program without ops.
fn empty(func: &TileFunc) -> Program {
    Program {
        name: func.name.clone(),
        loc: func.loc.clone(),
        // The verifier guarantees that there is a kind.
        kind: kind_of(func).unwrap_or(KernelKind::Group),
        lanes: lane_extents(func),
        params: Vec::new(),
        blocks: Vec::new(),
        slots: func.values.len(),
        sites: 0,
        dims: Vec::new(),
        consts: Vec::new(),
        unset: Vec::new(),
    }
}

/// A program with the parameters of a function and none of its ops, for [`action_of`].
pub(crate) fn parameters(func: &TileFunc) -> Outcome<Program> {
    let mut p = Preparer { func, explicit: false, program: empty(func) };
    p.program.params = func.params().iter().map(|&v| p.param(v)).collect::<Outcome<_>>()?;
    Ok(p.program)
}

/// The action of one op without regions, in a function that may hold nothing else. Its constant and
/// its dimension symbol are added to `program`.
pub(crate) fn action_of(program: &mut Program, func: &TileFunc, id: OpId) -> Outcome<Action> {
    let taken = std::mem::replace(program, empty(func));
    let mut p = Preparer { func, explicit: false, program: taken };
    let action = p.action(id, &mut Diagnostics::new());
    *program = p.program;
    action?.ok_or_else(|| broken("an op that only ends a block", &func.ops[id].loc))
}

struct Preparer<'f> {
    func: &'f TileFunc,
    /// Whether the kernel waits for its copies itself.
    explicit: bool,
    program: Program,
}

impl Preparer<'_> {
    fn param(&self, v: Value) -> Outcome<Param> {
        let loc = &self.func.loc;
        let name = self.func.name_of(v).unwrap_or("").to_string();
        let kind = match self.func.ty(v) {
            Type::Scalar(dtype) => ParamKind::Scalar(*dtype),
            Type::View { elem, .. } if elem.packed => {
                let why =
                    format!("packed elements of `{name}` are not supported by the interpreter");
                return Err(fault(Code::E_UNSUPPORTED, why, loc));
            }
            Type::View { dims, elem, privilege } => ParamKind::View {
                dims: dims.iter().map(Dim::as_static).collect(),
                symbols: dims.iter().map(symbol).collect(),
                elem: *elem,
                privilege: *privilege,
            },
            ty @ (Type::Tile { .. }
            | Type::Buf { .. }
            | Type::Tensor { .. }
            | Type::Frag { .. }
            | Type::Smem { .. }
            | Type::Pipeline { .. }
            | Type::Stage { .. }
            | Type::Pending(_)
            | Type::OrderBarrier
            | Type::Event) => {
                let why = format!("expected a scalar or a view as parameter `{name}`, got {ty}");
                return Err(fault(Code::E_UNSUPPORTED, why, loc));
            }
        };
        Ok(Param { slot: v.index(), name, kind })
    }

    /// Prepares a block and those nested in it; gives its number.
    fn block(&mut self, id: BlockId, errors: &mut Diagnostics) -> usize {
        let number = self.program.blocks.len();
        self.program.blocks.push(Block::default());
        let func = self.func;
        let args = func.blocks[id].args.iter().map(|v| v.index()).collect();
        let mut block = Block { args, ..Block::default() };
        for (&op, ends) in func.blocks[id].ops.iter().zip(ends_of(func, id)) {
            let operands = slots(&func.ops[op], &ends);
            if func.ops[op].code == TileOp::Yield {
                block.yields = operands;
                continue;
            }
            match self.action(op, errors) {
                Ok(None) => {}
                Ok(Some(action)) => {
                    block.insts.push(Inst {
                        action,
                        args: operands,
                        results: func.ops[op].results.iter().map(|v| v.index()).collect(),
                        drops: ends.dead.iter().map(|v| v.index()).collect(),
                        elements: handled(func, op),
                        site: self.program.sites,
                        loc: func.ops[op].loc.clone(),
                    });
                    self.program.sites += 1;
                }
                Err(e) => errors.push(*e),
            }
        }
        self.program.blocks[number] = block;
        number
    }

    /// The action of an op; `None` for terminators.
    #[deny(clippy::wildcard_enum_match_arm)]
    fn action(&mut self, id: OpId, errors: &mut Diagnostics) -> Outcome<Option<Action>> {
        let func = self.func;
        let op = &func.ops[id];
        for &v in &op.results {
            self.check_size(func.ty(v), op)?;
        }
        let ty = |i: usize| func.ty(op.operands[i]);
        let dtype = |i: usize| func.ty(op.operands[i]).dtype();
        let result = || func.ty(op.result());
        Ok(Some(match op.code {
            TileOp::For => Action::For { body: self.block(op.regions[0], errors) },
            TileOp::If => Action::If {
                then: self.block(op.regions[0], errors),
                otherwise: self.block(op.regions[1], errors),
            },
            TileOp::SlowPath => Action::SlowPath { body: self.block(op.regions[0], errors) },
            TileOp::While => Action::While {
                cond: self.block(op.regions[0], errors),
                body: self.block(op.regions[1], errors),
            },
            TileOp::Yield | TileOp::Return => return Ok(None),
            TileOp::ProgramId => Action::ProgramId(int(op, "axis")? as usize),
            TileOp::NumPrograms => Action::NumPrograms(int(op, "axis")? as usize),
            TileOp::LinearId => Action::LinearId(lane_axis(op).unwrap_or(0)),
            TileOp::LocalId => Action::LocalId(lane_axis(op)),
            TileOp::GroupSize => Action::GroupSize,
            TileOp::WarpSize => Action::WarpSize,
            TileOp::Dim => {
                let name = op.attr("name").map(Attr::to_string).unwrap_or_default();
                Action::Dim(self.dim(&name))
            }
            TileOp::Origin => {
                let why = "an implicit tile origin was left in the program: `tile-normalise` replaces \
                           it by a grid coordinate or a loop";
                return Err(fault(Code::E_UNSUPPORTED, why, &op.loc));
            }
            TileOp::Const => self.constant(op)?,
            TileOp::Iota => Action::Iota {
                start: op.attr("start").and_then(Attr::as_int).unwrap_or(0) as i32,
                len: elements(result()),
            },
            TileOp::Select => Action::Select,
            TileOp::Cast => self.cast(op)?,
            TileOp::Bitcast => Action::Bitcast { from: dtype(0), to: result().dtype() },
            TileOp::Reshape | TileOp::Expand => Action::Same,
            TileOp::Transpose => {
                let (strides, shape) = (strides_of(&extents(ty(0))), extents(result()));
                let perm = ints(op, "perm")?;
                Action::Rearrange {
                    shape,
                    strides: perm.iter().map(|&p| strides[p as usize]).collect(),
                }
            }
            TileOp::Broadcast => Action::Rearrange {
                shape: extents(result()),
                strides: stretched(&extents(ty(0)), result().rank()),
            },
            TileOp::Load => {
                Action::Load { extent: ints(op, "extent")?, step: steps(op), dtype: dtype(0) }
            }
            TileOp::Store => {
                Action::Store { extent: ints(op, "extent")?, step: steps(op), unique: unique(op) }
            }
            TileOp::Owned => Action::Owned { extent: ints(op, "extent")?, step: steps(op) },
            TileOp::Gather => Action::Gather { rank: ty(0).rank(), dtype: dtype(0) },
            TileOp::Scatter => Action::Scatter { rank: ty(0).rank(), unique: unique(op) },
            TileOp::Accumulate => {
                let extent = ints(op, "extent")?;
                Action::Accumulate { extent, step: steps(op), fold: self.fold(op)? }
            }
            TileOp::BufAlloc => Action::BufAlloc {
                dims: result().static_shape().unwrap_or_default(),
                dtype: result().dtype(),
            },
            TileOp::CopyAsync => Action::CopyAsync {
                extent: ints(op, "extent")?,
                part: {
                    let mut part = ty(0).static_shape().unwrap_or_default();
                    part.iter_mut().take(op.group("into").len()).for_each(|e| *e = 0);
                    part
                },
                dtype: dtype(1),
                explicit: self.explicit,
                stage: op.attr("stage").and_then(Attr::as_int),
            },
            TileOp::CopyCommit => Action::CopyCommit,
            TileOp::CopyWait => Action::CopyWait(match op.attr("stage").and_then(Attr::as_int) {
                Some(stage) => Wait::Stage(stage),
                None => Wait::Groups(int(op, "n")? as usize),
            }),
            TileOp::Atomic => Action::Atomic {
                rank: ty(0).rank(),
                dtype: dtype(0),
                change: match (word(op, "op")?, combine(word(op, "op")?)) {
                    (_, Some(f)) => Change::Fold(self.fold_with(op, f)?),
                    ("cas", None) => Change::CompareExchange,
                    (_, None) => Change::Exchange,
                },
                wide: matches!(
                    op.attr("scope").and_then(Attr::as_word),
                    None | Some("device" | "mesh")
                ),
                acquire: matches!(
                    op.attr("order").and_then(Attr::as_word),
                    Some("acquire" | "acq_rel" | "seq_cst")
                ),
                release: matches!(
                    op.attr("order").and_then(Attr::as_word),
                    Some("release" | "acq_rel" | "seq_cst")
                ),
            },
            TileOp::GroupReduce => Action::GroupReduce(reduce_op(op)?),
            TileOp::GroupScan => {
                Action::GroupScan { op: reduce_op(op)?, exclusive: flag(op, "exclusive") }
            }
            TileOp::GroupBroadcast | TileOp::GroupShuffle => Action::GroupTake,
            TileOp::Philox => Action::Philox {
                word: op.attr("word").and_then(Attr::as_int).unwrap_or(0) as usize,
            },
            TileOp::Print => Action::Print {
                pieces: op.attr("text").and_then(Attr::as_str).and_then(pieces).unwrap_or_default(),
                shapes: op.operands.iter().map(|&v| extents(func.ty(v))).collect(),
            },
            TileOp::Assert => Action::Assert {
                text: op.attr("text").and_then(Attr::as_str).unwrap_or_default().to_string(),
            },
            TileOp::Barrier => Action::Barrier,
            TileOp::Mma => {
                let (a, b) = (extents(ty(0)), extents(ty(1)));
                Action::Mma { k: a[1], n: b[1] }
            }
            TileOp::Reduce => {
                let (len, inner) = along(ty(0), op)?;
                Action::Reduce { op: reduce_op(op)?, len, inner }
            }
            TileOp::Scan => {
                let (len, inner) = along(ty(0), op)?;
                Action::Scan { op: reduce_op(op)?, len, inner, exclusive: flag(op, "exclusive") }
            }
            TileOp::ArgReduce => {
                let (len, inner) = along(ty(0), op)?;
                Action::ArgReduce { max: word(op, "op")? == "max", len, inner }
            }
            TileOp::Ew(f) => Action::Ew { f, kernel: kernel(f, dtype(0), op)? },
            TileOp::Slice => {
                let (strides, start) = (strides_of(&extents(ty(0))), ints(op, "start")?);
                let step = slice_steps(op.attr("step"), strides.len());
                Action::Slice {
                    shape: extents(result()),
                    first: start.iter().zip(&strides).map(|(&at, s)| at as usize * s).sum(),
                    strides: step
                        .iter()
                        .zip(&strides)
                        .map(|(&by, &s)| by as isize * s as isize)
                        .collect(),
                }
            }
            TileOp::Concat => {
                let lens: Outcome<Vec<_>> =
                    op.operands.iter().map(|&v| Ok(along(func.ty(v), op)?.0)).collect();
                Action::Concat { lens: lens?, inner: along(ty(0), op)?.1 }
            }
            TileOp::Take => {
                let ((len, inner), (count, _)) = (along(ty(0), op)?, along(ty(1), op)?);
                Action::Take { len, count, inner }
            }
            TileOp::ReduceBy => {
                let (len, inner) = along(ty(0), op)?;
                Action::ReduceBy { combine: self.block(op.regions[0], errors), len, inner }
            }
            TileOp::ScanBy => {
                let (len, inner) = along(ty(0), op)?;
                let combine = self.block(op.regions[0], errors);
                Action::ScanBy { combine, len, inner, reverse: flag(op, "reverse") }
            }
            TileOp::Sort => {
                let (len, inner) = along(ty(0), op)?;
                Action::Sort { len, inner, descending: flag(op, "descending") }
            }
            TileOp::Histogram => Action::Histogram { bins: elements(result()) },
            TileOp::Asm | TileOp::AsmEffect => {
                let Some(&region) = op.regions.first() else {
                    return Err(Box::new(tessera_tile::no_otherwise(op, "the interpreter")));
                };
                let values = op.operands.iter().chain(&op.results);
                let elements = values.map(|&v| elements(func.ty(v))).max().unwrap_or(1);
                Action::Asm { otherwise: self.block(region, errors), elements }
            }
        }))
    }

    fn check_size(&self, ty: &Type, op: &Op<Tile>) -> Outcome<()> {
        let dims = ty.shape().iter().map(|d| d.as_static().unwrap_or(0));
        match dims.into_iter().try_fold(1i64, i64::checked_mul) {
            Some(n) if n <= MAX_ELEMENTS => Ok(()),
            _ => Err(fault(
                Code::E_TILE_LOWERING,
                format!(
                    "expected a tile of at most {MAX_ELEMENTS} elements, got shape {}",
                    shape_text(ty)
                ),
                &op.loc,
            )),
        }
    }

    fn dim(&mut self, name: &str) -> usize {
        let dims = &mut self.program.dims;
        dims.iter().position(|d| d == name).unwrap_or_else(|| {
            dims.push(name.to_string());
            dims.len() - 1
        })
    }

    fn constant(&mut self, op: &Op<Tile>) -> Outcome<Action> {
        let ty = self.func.ty(op.result());
        let value = match op.attr("value") {
            Some(Attr::Bool(b)) => Scalar::Bool(*b),
            // Unsigned values above i64::MAX are written as the i64 with the same bits.
            Some(Attr::Int(v)) => decode(ty.dtype(), *v as u64),
            Some(Attr::Float(v)) => cast(Scalar::F64(*v), DType::F64, ty.dtype()),
            _ => return Err(broken("a constant without a number", &op.loc)),
        };
        if op.attr("unset").is_some() {
            self.program.unset.push(self.program.consts.len());
        }
        self.program.consts.push((value, elements(ty)));
        Ok(Action::Const(self.program.consts.len() - 1))
    }

    fn cast(&self, op: &Op<Tile>) -> Outcome<Action> {
        let (from, to) = (self.func.ty(op.operands[0]).dtype(), self.func.ty(op.result()).dtype());
        let round = op.attr("round").and_then(Attr::as_word).and_then(Rounding::from_name);
        let round = drawless(round.unwrap_or(Rounding::Rne), op)?;
        let saturate = op.attr("saturate").and_then(Attr::as_bool);
        let saturate = saturate.unwrap_or(to.saturates_by_default());
        Ok(Action::Cast { from, to, round, saturate })
    }

    fn fold(&self, op: &Op<Tile>) -> Outcome<Fold> {
        self.fold_with(op, reduce_op(op)?.combine())
    }

    fn fold_with(&self, op: &Op<Tile>, f: ScalarFn) -> Outcome<Fold> {
        let compute = self.func.ty(op.operands[1]).dtype();
        let (round, saturate) = match self.func.ty(op.operands[0]) {
            Type::View { elem, .. } => (elem.rounding(), elem.saturates()),
            mem => (Rounding::Rne, mem.dtype().saturates_by_default()),
        };
        let kernel = kernel(f, compute, op)?;
        Ok(Fold { f, kernel, compute, round: drawless(round, op)?, saturate })
    }
}

/// Stochastic rounding needs a seed and a counter, which no op carries yet.
fn drawless(round: Rounding, op: &Op<Tile>) -> Outcome<Rounding> {
    if round != Rounding::Stochastic {
        return Ok(round);
    }
    let why = "stochastic rounding is not supported yet: the op has no seed to draw from";
    Err(fault(Code::E_UNSUPPORTED, why, &op.loc))
}

fn kernel(f: ScalarFn, dtype: DType, op: &Op<Tile>) -> Outcome<tessera_numerics::Kernel> {
    f.kernel(dtype).ok_or_else(|| {
        let why = format!("expected a dtype that `{}` takes, got {dtype}", f.name());
        fault(Code::E_TYPE, why, &op.loc)
    })
}

fn reduce_op(op: &Op<Tile>) -> Outcome<ReduceOp> {
    ReduceOp::from_name(word(op, "op")?)
        .ok_or_else(|| broken("a reduction operator that is none", &op.loc))
}

fn slots(op: &Op<Tile>, ends: &Ends) -> Vec<Arg> {
    op.operands.iter().map(|v| Arg { slot: v.index(), last: ends.movable.contains(v) }).collect()
}

fn symbol(dim: &Dim) -> Option<String> {
    match dim {
        Dim::Expr(e) => Some(e.to_string()),
        Dim::Static(_) | Dim::Any => None,
    }
}

/// A shape as Python writes it.
fn shape_text(ty: &Type) -> String {
    let dims: Vec<_> = ty.shape().iter().map(Dim::to_string).collect();
    format!("({})", dims.join(", "))
}

/// The extents of a tile, which the level makes static and positive.
fn extents(ty: &Type) -> Vec<usize> {
    ty.shape().iter().map(|d| d.as_static().unwrap_or(0).max(0) as usize).collect()
}

/// The extent of the op's axis, and the distance in elements of two neighbours along it.
fn along(ty: &Type, op: &Op<Tile>) -> Outcome<(usize, usize)> {
    let (shape, axis) = (extents(ty), int(op, "axis")? as usize);
    Ok((shape[axis], shape[axis + 1..].iter().product()))
}

fn elements(ty: &Type) -> usize {
    extents(ty).iter().product()
}

/// Elements of the tiles and buffers that an op makes and takes; arrays of the caller exist
/// already.
fn handled(func: &TileFunc, op: OpId) -> usize {
    let op = &func.ops[op];
    let tiles = op.results.iter().chain(&op.operands).map(|&v| func.ty(v));
    let tiles = tiles.filter(|ty| !matches!(ty, Type::View { .. }));
    let count = |ty: &Type| extents(ty).iter().fold(1, |n: usize, &d| n.saturating_mul(d));
    tiles.map(count).fold(0, usize::saturating_add)
}

/// Strides of an operand under the result's shape: an axis of extent 1 has stride 0.
fn stretched(from: &[usize], rank: usize) -> Vec<usize> {
    if from.is_empty() {
        return vec![0; rank];
    }
    let strides = strides_of(from);
    from.iter().zip(strides).map(|(&e, s)| if e == 1 { 0 } else { s }).collect()
}

fn int(op: &Op<Tile>, name: &str) -> Outcome<i64> {
    op.attr(name).and_then(Attr::as_int).ok_or_else(|| broken("an op without its integer", &op.loc))
}

/// Whether no other group writes what a store writes.
fn unique(op: &Op<Tile>) -> bool {
    op.attr("unique").and_then(Attr::as_bool) == Some(true)
}

fn steps(op: &Op<Tile>) -> Vec<i64> {
    op.attr("step").and_then(Attr::as_ints).unwrap_or_default()
}

fn flag(op: &Op<Tile>, name: &str) -> bool {
    op.attr(name).and_then(Attr::as_bool).unwrap_or(false)
}

fn ints(op: &Op<Tile>, name: &str) -> Outcome<Vec<i64>> {
    op.attr(name)
        .and_then(Attr::as_ints)
        .ok_or_else(|| broken("an op without its integers", &op.loc))
}

fn word<'o>(op: &'o Op<Tile>, name: &str) -> Outcome<&'o str> {
    op.attr(name).and_then(Attr::as_word).ok_or_else(|| broken("an op without its word", &op.loc))
}
