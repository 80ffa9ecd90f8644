//! Loops and branches. Carried scalars are SSA values of the loop; each carried tile has a buffer
//! in memory, to which the body's new tile is copied at the end of an iteration.

use super::nest::{Nest, shape_of};
use super::{Buffer, Group, Repr};
use crate::code::Site;
use crate::llvm::{IntCmp, Ir, Val};
use tessera_ir::{BlockId, OpId, Value};
use tessera_tile::TileOp;

/// What a loop carries: scalars in order, and for each value its place among them or in memory.
enum Carried {
    Scalar(usize),
    Tile(Buffer),
}

impl<'a> Group<'a> {
    fn is_tile(&self, v: Value) -> bool {
        self.func.ty(v).rank() > 0
    }

    /// Places for values of a loop or branch, the tiles' begun with `init`.
    fn places(&mut self, like: &[Value], init: &[Value]) -> Vec<Carried> {
        let mut scalars = 0;
        let mut out = Vec::new();
        for (i, &v) in like.iter().enumerate() {
            if self.is_tile(v) {
                let place = self.buffer_for(v);
                if let Some(&from) = init.get(i) {
                    self.move_into(from, &place);
                }
                out.push(Carried::Tile(place));
            } else {
                out.push(Carried::Scalar(scalars));
                scalars += 1;
            }
        }
        out
    }

    fn move_into(&mut self, from: Value, to: &Buffer) {
        match self.repr(from) {
            Repr::Buffer(b) if b.ptr == to.ptr => {}
            Repr::Buffer(b) => self.copy_tile(&b, to),
            Repr::Expression => {
                // Into its own memory first where it is wanted there, else straight to the place.
                if self.pending.contains(&from) {
                    let b = self.in_memory(from);
                    self.copy_tile(&b, to);
                } else {
                    self.compute_into(from, to.clone());
                }
            }
            Repr::Scalar(_) | Repr::Memory(_) => unreachable!("a tile is carried"),
        }
    }

    fn bind(&mut self, values: &[Value], places: &[Carried], scalars: &[Val]) {
        for (&v, place) in values.iter().zip(places) {
            let repr = match place {
                Carried::Scalar(i) => Repr::Scalar(scalars[*i]),
                Carried::Tile(b) => Repr::Buffer(b.clone()),
            };
            self.set(v, repr);
        }
    }

    fn scalars(&self, values: &[Value]) -> Vec<Val> {
        values.iter().filter(|v| !self.is_tile(**v)).map(|&v| self.scalar(v)).collect()
    }

    fn yields(&self, block: BlockId) -> Vec<Value> {
        match self.func.terminator(block) {
            Some(id) if self.func.ops[id].code == TileOp::Yield => {
                self.func.ops[id].operands.clone()
            }
            _ => Vec::new(),
        }
    }

    /// Stores what a block yields to the buffers of the carried values. All are computed before any
    /// buffer is written, for one may be computed from another's old tile.
    fn hand_over(&mut self, yields: &[Value], places: &[Carried]) {
        let mut moves = Vec::new();
        for (i, (&v, place)) in yields.iter().zip(places).enumerate() {
            if let Carried::Tile(to) = place {
                if self.fits_in_place(yields, i, to) {
                    self.compute_into(v, to.clone());
                    continue;
                }
                let from = self.in_memory(v);
                if from.ptr != to.ptr {
                    moves.push((from, to.clone()));
                }
            }
        }
        // A buffer that is itself the source of another one must not be written first.
        for i in 0..moves.len() {
            if moves.iter().enumerate().any(|(j, (_, to))| j != i && to.ptr == moves[i].0.ptr) {
                let (from, _) = &moves[i];
                let spare = self.buffer_of(from.dtype, from.shape.clone());
                let from = from.clone();
                self.copy_tile(&from, &spare);
                moves[i].0 = spare;
            }
        }
        for (from, to) in &moves {
            self.copy_tile(from, to);
        }
    }

    /// Whether a yielded expression can be computed in place: it reads each old element of the
    /// buffer only where it writes it, and nothing else that is yielded reads the buffer.
    fn fits_in_place(&self, yields: &[Value], i: usize, to: &Buffer) -> bool {
        if !matches!(self.repr(yields[i]), Repr::Expression) {
            return false;
        }
        let identity = Nest::new(&to.shape).identity();
        let held = |v: Value| matches!(self.repr(v), Repr::Buffer(b) if b.ptr == to.ptr);
        yields.iter().enumerate().all(|(j, &v)| {
            let map = if self.is_tile(v) {
                Nest::new(&shape_of(self.func.ty(v))).identity()
            } else {
                vec![]
            };
            let reached = self.reached(&[(v, map)]);
            reached.iter().filter(|(r, _)| held(*r)).all(|(r, map)| {
                j == i && *map == identity && shape_of(self.func.ty(*r)) == to.shape
            })
        })
    }

    pub fn counted(&mut self, id: OpId) {
        let func = self.func;
        let op = &func.ops[id];
        let ir = self.ir;
        self.flush();
        let (lo, hi, step) =
            (self.scalar(op.operands[0]), self.scalar(op.operands[1]), self.scalar(op.operands[2]));
        if ir.as_int(step).is_none_or(|s| s <= 0) {
            let bad = ir.icmp(IntCmp::LLVMIntSLE, step, ir.c64(0));
            let site = self.code.site(Site::loop_step(func, id));
            self.fail(bad, site);
        }
        let (body, init) = (op.regions[0], op.group("init").to_vec());
        let args = func.blocks[body].args.clone();
        let places = self.places(&args[1..], &init);
        let first = self.scalars(&init);
        let (before, head, end) = (ir.here(), ir.block("for"), ir.block("end"));
        ir.branch(ir.icmp(IntCmp::LLVMIntSLT, lo, hi), head, end);
        ir.goto(head);
        let at = ir.phi(ir.i64(), &[(lo, before)]);
        let phis: Vec<_> = first.iter().map(|&v| ir.phi(ir.ty(v), &[(v, before)])).collect();
        self.set(args[0], Repr::Scalar(at));
        self.bind(&args[1..], &places, &phis);
        let scope = self.code.mark();
        self.block(body);
        let yields = self.yields(body);
        self.hand_over(&yields, &places);
        self.pending.clear();
        let next = self.scalars(&yields);
        self.code.release(scope);
        self.poll(due(ir, at, lo, hi, step));
        // At the end of the number range the sum stays there, and no bound is above it.
        let ends = ir.as_int(hi).zip(ir.as_int(step));
        let after = if ends.is_some_and(|(hi, step)| hi.checked_add(step).is_some()) {
            ir.add(at, step)
        } else {
            ir.intrinsic("llvm.sadd.sat", &[ir.i64()], &[at, step])
        };
        let last = ir.here();
        ir.incoming(at, after, last);
        phis.iter().zip(&next).for_each(|(&p, &v)| ir.incoming(p, v, last));
        ir.branch(ir.icmp(IntCmp::LLVMIntSLT, after, hi), head, end);
        ir.goto(end);
        let join = |(&a, &b): (&Val, &Val)| ir.phi(ir.ty(a), &[(a, before), (b, last)]);
        let results: Vec<_> = first.iter().zip(&next).map(join).collect();
        self.bind(&op.results, &places, &results);
    }

    pub fn conditional(&mut self, id: OpId) {
        let func = self.func;
        let op = &func.ops[id];
        let ir = self.ir;
        self.flush();
        let (cond, body, init) = (op.regions[0], op.regions[1], op.group("init").to_vec());
        let (test_args, args) = (func.blocks[cond].args.clone(), func.blocks[body].args.clone());
        let places = self.places(&args, &init);
        let first = self.scalars(&init);
        let (before, head) = (ir.here(), ir.block("while"));
        let (inner, end) = (ir.block("body"), ir.block("end"));
        ir.jump(head);
        ir.goto(head);
        let phis: Vec<_> = first.iter().map(|&v| ir.phi(ir.ty(v), &[(v, before)])).collect();
        self.bind(&test_args, &places, &phis);
        let scope = self.code.mark();
        self.block(cond);
        self.pending.clear();
        let test = self.yields(cond)[0];
        ir.branch(self.scalar(test), inner, end);
        ir.goto(inner);
        self.bind(&args, &places, &phis);
        self.block(body);
        let yields = self.yields(body);
        self.hand_over(&yields, &places);
        self.pending.clear();
        let next = self.scalars(&yields);
        self.code.release(scope);
        self.poll(None);
        let last = ir.here();
        phis.iter().zip(&next).for_each(|(&p, &v)| ir.incoming(p, v, last));
        ir.jump(head);
        ir.goto(end);
        self.bind(&op.results, &places, &phis);
    }

    pub fn branch(&mut self, id: OpId) {
        let func = self.func;
        let op = &func.ops[id];
        let ir = self.ir;
        self.flush();
        let cond = self.scalar(op.operands[0]);
        let places = self.places(&op.results, &[]);
        let (yes, no, end) = (ir.block("then"), ir.block("else"), ir.block("end"));
        ir.branch(cond, yes, no);
        let mut arms = Vec::new();
        for (&region, block) in op.regions.iter().zip([yes, no]) {
            ir.goto(block);
            let scope = self.code.mark();
            self.block(region);
            let yields = self.yields(region);
            self.hand_over(&yields, &places);
            self.pending.clear();
            self.code.release(scope);
            arms.push((self.scalars(&yields), ir.here()));
            ir.jump(end);
        }
        ir.goto(end);
        let (a, b) = (&arms[0], &arms[1]);
        let join = |(&x, &y): (&Val, &Val)| ir.phi(ir.ty(x), &[(x, a.1), (y, b.1)]);
        let results: Vec<_> = a.0.iter().zip(&b.0).map(join).collect();
        self.bind(&op.results, &places, &results);
    }

    /// Lets the host stop a long loop. `due` is true once in `TOGETHER` iterations, which are counted then.
    fn poll(&mut self, due: Option<Val>) {
        let ir = self.ir;
        let site = self.code.site(Site::interrupted());
        let stop = match due {
            None => crate::code::poll(ir, self.words, 1),
            Some(due) => {
                let words = self.words;
                ir.if_then(due, ir.bool(false), |ir| crate::code::poll(ir, words, TOGETHER))
            }
        };
        self.fail(stop, site);
    }
}

/// How many iterations a long loop counts in one step: to count each is a chain of loads and stores
/// as long as a small body.
const TOGETHER: i64 = 64;

/// Where the bounds of a loop are known: whether this iteration is one in `TOGETHER`.
fn due(ir: &Ir, at: Val, lo: Val, hi: Val, step: Val) -> Option<Val> {
    let (lo, hi, step) = (ir.as_int(lo)?, ir.as_int(hi)?, ir.as_int(step)?);
    let round = step.checked_mul(TOGETHER).filter(|_| step > 0 && step.count_ones() == 1)?;
    if hi.checked_sub(lo)? < round.checked_mul(4)? {
        return None;
    }
    let place = ir.and(ir.sub(at, ir.c64(lo)), ir.c64(round - step));
    Some(ir.icmp(IntCmp::LLVMIntEQ, place, ir.c64(round - step)))
}
