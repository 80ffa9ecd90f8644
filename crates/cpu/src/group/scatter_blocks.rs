//! Scatters and folds at computed indices, in blocks.
//!
//! Each update loads, folds and stores one element, in order; that alone saturates the processor's
//! load and store units. So the addresses of a block are computed first, in vectors, and kept in
//! memory; then a loop takes one address after another. The loop has no test: indices outside the
//! array lead to a spare element. An address is written long before it is read, and the loads of
//! the index tile overlap with the updates of the previous block.

use super::group_plan::same_but_ones;
use super::loops::chunks;
use super::nest::{Nest, Node};
use super::sink::Sink;
use super::{Group, Repr};
use crate::atomic::Change;
use crate::llvm::{IntCmp, Val};
use crate::memory::Access;
use tessera_ir::OpId;
use tessera_tile::TileOp;

/// Elements of a block. The addresses of more would fill the L1 cache; those of fewer would be
/// loaded while their stores are still in flight.
const BLOCK: i64 = 128;
/// Bytes of an address, and at most of a value.
const WIDEST: i64 = 8;
/// Unroll factor of the loop over updates.
const ROUND: i64 = 16;
const LINE: i64 = 64;

/// Addresses and values of a block, computed and not yet applied.
pub struct Waiting {
    id: OpId,
    change: Change,
    places: Val,
    values: Val,
    /// The element that indices outside the array lead to.
    spare: Val,
}

impl Waiting {
    const BYTES: i64 = 2 * WIDEST * BLOCK + LINE;
}

impl<'a> Group<'a> {
    /// Room for the changes of a nest that writes nothing but these and tiles that it keeps; nothing
    /// where one change is much work, or where there are no vectors.
    pub fn waiting(&mut self, dims: &[i64], sink: &Sink) -> Option<Waiting> {
        let &Sink::Change(id) = sink else { return None };
        let op = &self.func.ops[id];
        let change = Change::of(self.func, op);
        if !change.is_short() || Nest::new(dims).lane.is_none() {
            return None;
        }
        let ir = self.ir;
        let places = self.room(Waiting::BYTES as u64);
        let values = ir.offset_const(places, WIDEST * BLOCK);
        let spare = ir.offset_const(values, WIDEST * BLOCK);
        Some(Waiting { id, change, places, values, spare })
    }

    /// The loops of a nest whose first sink's changes wait for the end of their block.
    pub fn in_blocks(
        &mut self,
        n: &mut Nest,
        roots: &[Node],
        depth: usize,
        kept: &[Sink],
        waiting: &Waiting,
    ) {
        self.hoist(n, roots, depth);
        let Some(&axis) = n.order.get(depth) else { return };
        let (ir, extent) = (self.ir, n.dims[axis]);
        if n.lane != Some(axis) {
            ir.for_range(ir.c64(0), ir.c64(extent), 1, &[], |_, at, _| {
                n.index[axis] = Some(at);
                n.open();
                self.in_blocks(n, roots, depth + 1, kept, waiting);
                n.close();
                Vec::new()
            });
            return;
        }
        let value = self.func.ops[waiting.id].operands[1];
        let one = self.for_all_lanes(n, (value, n.identity())).map(|node| self.eval(n, &node));
        for chunk in self.beside_each_other(n, roots, chunks(extent, self.lanes)) {
            let last = chunk.first + chunk.count;
            ir.for_range(ir.c64(chunk.first), ir.c64(last), BLOCK, &[], |ir, from, _| {
                let to = ir.add_const(from, BLOCK.min(chunk.count));
                let to = if chunk.count % BLOCK.min(chunk.count) == 0 {
                    to
                } else {
                    ir.smin(to, ir.c64(last))
                };
                ir.for_range(from, to, chunk.step(), &[], |ir, at, _| {
                    n.index[axis] = Some(at);
                    n.lanes = chunk.lanes;
                    n.tail = chunk.tail(ir);
                    n.open();
                    self.wait(n, roots, kept, waiting, ir.sub(at, from), one.is_none());
                    n.close();
                    Vec::new()
                });
                let round =
                    if chunk.count < chunk.step() { chunk.count } else { chunk.step().min(ROUND) };
                self.change_block(waiting, ir.sub(to, from), round, one);
                Vec::new()
            });
        }
        (n.lanes, n.tail) = (1, None);
    }

    /// What all lanes of a vector find a value in, where it is no matter of theirs.
    fn for_all_lanes(&self, n: &Nest, mut node: Node) -> Option<Node> {
        let func = self.func;
        let follows = |node: &Node| node.1.iter().flatten().any(|&a| n.lane == Some(a.into()));
        while follows(&node) {
            let id =
                func.def_id(node.0).filter(|_| matches!(self.repr(node.0), Repr::Expression))?;
            let op = &func.ops[id];
            let plain = match op.code {
                TileOp::Broadcast | TileOp::Expand => true,
                TileOp::Reshape => same_but_ones(func.ty(op.operands[0]), func.ty(op.result())),
                _ => false,
            };
            node = self.inputs(id, &node.1).into_iter().next().filter(|_| plain)?;
        }
        Some(node)
    }

    /// Writes down where the lanes' elements are, and with what they change.
    fn wait(
        &mut self,
        n: &mut Nest,
        roots: &[Node],
        kept: &[Sink],
        waiting: &Waiting,
        at: Val,
        each: bool,
    ) {
        let (ir, identity) = (self.ir, n.identity());
        for root in roots {
            self.eval(n, root);
        }
        for sink in kept {
            if let Sink::Keep(v, b) = sink {
                self.keep(n, *v, b);
            }
        }
        let op = &self.func.ops[waiting.id];
        let mem = self.memory(op.operands[0]);
        let places = self.each_position(n, op, &identity);
        let checked = vec![true; places.len()];
        let access =
            Access { mem: &mem, at: &places, checked: &checked, lanes: n.lanes, mask: n.tail };
        let (places, on) = access.places(ir);
        let spare = ir.splat(waiting.spare, n.lanes);
        let places = on.map_or(places, |on| ir.select(on, places, spare));
        ir.store(places, ir.offset(waiting.places, ir.mul_const(at, WIDEST)), 8);
        if each {
            let dtype = self.func.ty(op.operands[1]).dtype().carrier();
            let value = self.eval(n, &(op.operands[1], identity));
            let bits = self.carrier_bits(self.widen(n, value), dtype);
            let p = ir.offset(waiting.values, ir.mul_const(at, dtype.bytes() as i64));
            ir.store(bits, p, dtype.bytes() as u32);
        }
    }

    /// Applies the updates of a block, in order; `round` divides their number, or is their number.
    fn change_block(&mut self, waiting: &Waiting, count: Val, round: i64, one: Option<Val>) {
        let (ir, s) = (self.ir, self.s);
        let op = &self.func.ops[waiting.id];
        let mem = self.memory(op.operands[0]);
        let dtype = self.func.ty(op.operands[1]).dtype().carrier();
        let element = |row: Val, ty, i: Val, bytes: i64| {
            ir.load(ty, ir.offset(row, ir.mul_const(i, bytes)), bytes as u32)
        };
        let place = |i: Val| element(waiting.places, ir.ptr(), i, WIDEST);
        let value = |i: Val| {
            let each = || {
                let bits = element(waiting.values, s.stored(dtype, 1), i, dtype.bytes() as i64);
                s.decode(bits, dtype)
            };
            one.unwrap_or_else(each)
        };
        let alone = self.alone_at(op.operands[0]);
        ir.when(alone, |ir| {
            ir.for_range(ir.c64(0), count, round, &[], |ir, i, _| {
                for j in 0..round {
                    let i = ir.add_const(i, j);
                    waiting.change.emit_alone(&s, &mem, place(i), value(i), None);
                }
                Vec::new()
            });
        });
        ir.when(ir.not(alone), |ir| {
            ir.for_range(ir.c64(0), count, 1, &[], |ir, i, _| {
                let p = place(i);
                let number = |p: Val| ir.ptr_to_int(p, ir.i64());
                let on = ir.icmp(IntCmp::LLVMIntNE, number(p), number(waiting.spare));
                ir.when(on, |_| {
                    waiting.change.emit(&s, &mem, p, value(i), None);
                });
                Vec::new()
            });
        });
    }
}
