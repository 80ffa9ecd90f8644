//! MMAs: `tile.mma` of tiles that are values or in memory.

use super::group_plan::is_expression;
use super::{Buffer, Group, Repr};
use crate::contract::{Kind, tile_product};
use tessera_ir::{BlockId, OpId, Value, ValueDef};
use tessera_numerics::DType;
use tessera_tile::TileOp;

impl<'a> Group<'a> {
    pub fn product(&mut self, id: OpId) {
        let func = self.func;
        let op = &func.ops[id];
        let (a, b) = (self.in_memory(op.operands[0]), self.in_memory(op.operands[1]));
        let acc = op.operands[2];
        let from_zero = self.is_zero(acc);
        let to = match self.repr(acc) {
            // Its last use: the accumulator is updated in place. A tile of an outer block is used
            // again in the next iteration.
            Repr::Buffer(place) if self.plan.users(acc).len() == 1 && self.is_of(acc, op.block) => {
                place
            }
            Repr::Buffer(place) => {
                let to = self.buffer_for(acc);
                self.copy_tile(&place, &to);
                to
            }
            _ if from_zero => self.buffer_for(acc),
            _ => {
                let to = self.buffer_for(acc);
                self.compute_into(acc, to.clone());
                self.own_copy(acc, to)
            }
        };
        let kind = match a.dtype {
            DType::F32 | DType::Tf32 => Kind::F32,
            DType::F64 => Kind::F64,
            _ => Kind::I32,
        };
        let bytes = a.dtype.bytes() as i64;
        let (m, k, n) = (a.shape[0], a.shape[1], b.shape[1]);
        let sizes = [m as u32, n as u32, k as u32];
        let row = |len: i64| len * bytes;
        tile_product(
            self.ir,
            self.isa,
            kind,
            sizes,
            (a.ptr, row(k)),
            (b.ptr, row(n)),
            (to.ptr, row(n)),
            from_zero,
        );
        self.set(op.result(), Repr::Buffer(to));
    }

    /// Whether a value belongs to the block itself.
    fn is_of(&self, v: Value, block: BlockId) -> bool {
        match self.func.values[v].def {
            ValueDef::Result(op, _) => self.func.ops[op].block == block,
            ValueDef::Arg(of, _) => of == block,
        }
    }

    /// A kept tile keeps its buffer for later users; the accumulator needs one of its own.
    fn own_copy(&mut self, acc: Value, place: Buffer) -> Buffer {
        if self.plan.users(acc).len() == 1 {
            return place;
        }
        let to = self.buffer_for(acc);
        self.copy_tile(&place, &to);
        to
    }

    pub fn is_zero(&self, v: Value) -> bool {
        let Some(id) = self.func.def_id(v) else { return false };
        let op = &self.func.ops[id];
        is_expression(self.func, id)
            && op.code == TileOp::Const
            && crate::frame::bits(tessera_tile::attrs::constant_of(op, self.func.ty(v).dtype()))
                == 0
    }
}
