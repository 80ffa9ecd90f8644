//! Scans: running results along an axis.
//!
//! Along the vector axis, where the order of combining cannot be seen or the profile leaves it open, a
//! vector is scanned in itself (as many steps as its length has binary digits, each with the lanes that
//! many places before), and what all vectors before gave is combined with it: one operation is what
//! the next vector waits for. The result goes to where it is stored, if that is all that is done with it.
//! Otherwise elements are taken one after another, as the interpreter does: along another axis than
//! that of the vectors, each vector beside its neighbours.

use super::loops::chunks;
use super::nest::{Map, Nest, Node, shape_of};
use super::sink::Sink;
use super::{Buffer, Group, Repr};
use crate::llvm::Val;
use tessera_ir::{Attr, Effects, OpId, Opcode, Value};
use tessera_numerics::{DType, Profile, ReduceOp};
use tessera_tile::TileOp;

/// One op `scan`.
#[derive(Copy, Clone)]
struct Scan {
    x: Value,
    result: Value,
    axis: usize,
    fold: ReduceOp,
    exclusive: bool,
    dtype: DType,
}

/// Where running results go.
enum To {
    Buffer(Buffer),
    /// The op `store`, the only one that uses them.
    Store(OpId),
}

impl<'a> Group<'a> {
    fn scan_of(&self, id: OpId) -> Scan {
        let op = &self.func.ops[id];
        let name = op.attr("op").and_then(Attr::as_word).unwrap_or("sum");
        Scan {
            x: op.operands[0],
            result: op.result(),
            axis: op.attr("axis").and_then(Attr::as_int).unwrap_or(0) as usize,
            fold: ReduceOp::from_name(name).unwrap_or(ReduceOp::Sum),
            exclusive: op.attr("exclusive").and_then(Attr::as_bool) == Some(true),
            dtype: self.func.ty(op.operands[0]).dtype(),
        }
    }

    pub fn scan(&mut self, id: OpId) {
        let scan = self.scan_of(id);
        if !self.in_vectors(&scan) {
            return self.scan_one_by_one(&scan);
        }
        if let Some(store) = self.only_store(id) {
            self.put_off.insert(store, id);
            return;
        }
        let to = self.buffer_for(scan.result);
        self.scan_vectors(&scan, &To::Buffer(to.clone()));
        self.set(scan.result, Repr::Buffer(to));
    }

    /// A store whose scan was deferred to it: both are one nest. False where there is none.
    pub fn scan_into(&mut self, store: OpId) -> bool {
        let Some(id) = self.put_off.remove(&store) else { return false };
        let scan = self.scan_of(id);
        for v in self.pending.clone() {
            // What reads the array is computed before it is written, but for the scan's own elements.
            let own = self.reached(&[self.own_node(&scan)]).iter().any(|(r, _)| *r == v);
            if self.pending.contains(&v) && !own {
                self.in_memory(v);
            }
        }
        self.scan_vectors(&scan, &To::Store(store));
        true
    }

    fn own_node(&self, scan: &Scan) -> Node {
        let dims = shape_of(self.func.ty(scan.x));
        (scan.x, Nest::new(&dims).identity())
    }

    /// Whether elements are combined along the vector axis and in any order.
    fn in_vectors(&self, scan: &Scan) -> bool {
        let dims = shape_of(self.func.ty(scan.x));
        let along = dims.iter().rposition(|&d| d > 1).is_none_or(|last| last == scan.axis);
        let exact = matches!(scan.fold, ReduceOp::Max | ReduceOp::Min) || scan.dtype.is_int();
        let free = exact || self.profile != Profile::Strict;
        along && free && scan.dtype.carrier() != DType::Bool
    }

    /// The store that is the only use of a scan, if there is no effect between the two and the
    /// store writes nothing that the scan reads at another position.
    fn only_store(&self, id: OpId) -> Option<OpId> {
        let func = self.func;
        let (op, scan) = (&func.ops[id], self.scan_of(id));
        let &[store] = self.plan.users(scan.result) else { return None };
        let used = &func.ops[store];
        let plain = used.code == TileOp::Store
            && used.block == op.block
            && used.operands[1] == scan.result
            && used.group("mask").is_empty();
        let ops = &func.blocks[op.block].ops;
        let place = |id: OpId| ops.iter().position(|&o| o == id);
        let (from, to) = (place(id)?, place(store)?);
        let quiet = |o: &OpId| {
            matches!(func.ops[*o].code.info().effects, Effects::Pure | Effects::Read)
                && func.ops[*o].code != TileOp::Scan
        };
        let dims = shape_of(func.ty(scan.x));
        let fits = plain && from < to && ops[from + 1..to].iter().all(quiet);
        (fits && !self.reads_what_is_written(&dims, scan.x, store)).then_some(store)
    }

    fn scan_vectors(&mut self, scan: &Scan, to: &To) {
        let dims = shape_of(self.func.ty(scan.x));
        let roots = [self.own_node(scan)];
        let keeps = self.join_pending(&dims, &roots, None);
        let writes = match to {
            To::Buffer(_) => Vec::new(),
            To::Store(id) => vec![*id],
        };
        self.versions(&dims, &roots, &writes, |group, n| {
            n.lane = Some(scan.axis);
            n.order.retain(|&d| d != scan.axis);
            n.order.push(scan.axis);
            let outer = n.order.len() - 1;
            group.rows(n, &roots, 0, outer, &mut |group, n| {
                group.hoist(n, &roots, outer);
                group.scan_row(n, scan, &roots[0], &keeps, to);
            });
        });
        self.settle(&keeps);
    }

    fn scan_row(&mut self, n: &mut Nest, scan: &Scan, x: &Node, keeps: &[Sink], to: &To) {
        let (ir, axis) = (self.ir, scan.axis);
        // What all elements before gave.
        let mut before = self.s.identity(scan.fold, scan.dtype, 1);
        for chunk in chunks(n.dims[axis], self.lanes) {
            let (lo, hi) = (ir.c64(chunk.first), ir.c64(chunk.first + chunk.count));
            let wide = ir.splat(before, chunk.lanes);
            let after = ir.for_range(lo, hi, chunk.step(), &[wide], |ir, at, before| {
                n.index[axis] = Some(at);
                (n.lanes, n.tail) = (chunk.lanes, chunk.tail(ir));
                n.open();
                let element = self.eval(n, x);
                for keep in keeps {
                    if let Sink::Keep(v, b) = keep {
                        self.keep(n, *v, b);
                    }
                }
                let own = self.scan_vector(scan, self.widen(n, element));
                let all =
                    self.combine(scan, before[0], ir.splat(ir.extract(own, n.lanes - 1), n.lanes));
                let shown = if scan.exclusive { self.moved_up(scan, own, 1) } else { own };
                let y = self.combine(scan, before[0], shown);
                self.put_scanned(n, scan, to, y);
                n.close();
                vec![all]
            });
            before = ir.extract(after[0], 0);
        }
        (n.lanes, n.tail) = (1, None);
    }

    fn put_scanned(&mut self, n: &mut Nest, scan: &Scan, to: &To, y: Val) {
        let identity = n.identity();
        match to {
            To::Buffer(b) => self.write_buffer(n, b, &identity, y),
            To::Store(id) => {
                n.tell((scan.result, identity), y);
                self.store(n, *id);
            }
        }
    }

    fn combine(&self, scan: &Scan, a: Val, b: Val) -> Val {
        self.s.apply(scan.fold.combine(), scan.dtype, &[a, b])
    }

    /// The running results of one vector.
    fn scan_vector(&self, scan: &Scan, x: Val) -> Val {
        let lanes = self.ir.lanes(self.ir.ty(x));
        let (mut y, mut by) = (x, 1);
        while by < lanes {
            y = self.combine(scan, self.moved_up(scan, y, by), y);
            by *= 2;
        }
        y
    }

    /// Each lane's value moved up by `by` lanes; the first lanes get the identity.
    fn moved_up(&self, scan: &Scan, x: Val, by: u32) -> Val {
        let lanes = self.ir.lanes(self.ir.ty(x));
        let nothing = self.s.identity(scan.fold, scan.dtype, lanes);
        let pick = |lane: u32| if lane < by { lane } else { lanes + lane - by };
        self.ir.shuffle(nothing, x, &(0..lanes).map(pick).collect::<Vec<_>>())
    }

    fn scan_one_by_one(&mut self, scan: &Scan) {
        let from = self.in_memory(scan.x);
        let to = self.buffer_for(scan.result);
        let (ir, dims, axis, dtype) = (self.ir, from.shape.clone(), scan.axis, scan.dtype);
        let map: Map = (0..dims.len()).map(|d| Some(d as u8)).collect();
        self.beside(&dims, axis, &mut |group, n| {
            n.index[axis] = Some(ir.c64(0));
            let first = group.element(n, &from, &map);
            let empty = group.s.identity(scan.fold, dtype, n.lanes);
            group.write_buffer(n, &to, &map, if scan.exclusive { empty } else { first });
            ir.for_range(ir.c64(1), ir.c64(dims[axis]), 1, &[first], |_, at, before| {
                n.index[axis] = Some(at);
                let x = group.element(n, &from, &map);
                let with = group.combine(scan, before[0], x);
                group.write_buffer(n, &to, &map, if scan.exclusive { before[0] } else { with });
                vec![with]
            });
        });
        self.set(scan.result, Repr::Buffer(to));
    }
}
